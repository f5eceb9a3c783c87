//! State of one budget, and the only way to change it: [`Budget::charge`].
//!
//! A budget counts in nanoseconds of refill ([`Quota::token_ns`] for each token), as a *deficit*: zero is full,
//! [`Quota::fill_ns`] is empty, more is debt. Debt is tokens that were admitted before the level could be known; the
//! refill pays it back, so over any long run the admitted tokens equal the quota.
//!
//! Every limit below is small enough that a store which only has doubles (Lua in Redis) computes the same to the bit:
//! whole microseconds of a deficit, counts and charges all stay below 2^53.

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_protocol::quota::{FILL_NS_MAX, Quota};
use weir_protocol::sharing::Sharing;

pub use crate::id::BudgetId;
pub use crate::records::{CHARGE_TOKENS_MAX, COUNT_MAX, Count, SourceId};
use crate::records::{FanOut, News, SourceRecord, UnusedRefill, fill_us};
use crate::sorted::Sorted;
use crate::store_clock::StoreTime;

/// Maximum deficit, in nanoseconds; debt beyond it is forgiven.
pub const DEFICIT_NS_MAX: u64 = 256 * FILL_NS_MAX;
/// Maximum number of sources of a budget; beyond it, all but the [`SOURCES_KEPT`] that reported last are forgotten.
pub const SOURCES_MAX: usize = 2_048;
/// Number of sources left after forgetting; well below the maximum, so that forgetting is rare.
pub const SOURCES_KEPT: usize = SOURCES_MAX / 4 * 3;
/// Maximum number of replicas of a budget (thirty regions of four); beyond it, the most silent is forgotten first.
pub const REPLICAS_MAX: usize = 128;
/// Time for which a silent replica is remembered, in microseconds; by then its demand has faded.
pub const REPLICA_IDLE_US: u64 = 5_000_000;
/// Time for which a full budget is remembered, in microseconds: longer than any retry of a report takes.
pub const GRACE_US: u64 = 60_000_000;

/// Maximum time for which a budget is kept without a charge, in microseconds; a debt that takes longer is forgiven.
pub const KEPT_US_MAX: u64 = FILL_NS_MAX / 1_000 + GRACE_US;

/// Maximum lag that is assumed of a store that takes over, in microseconds.
pub const FORGOTTEN_US_MAX: u64 = 10_000_000;
/// Time before its span from which a report may claim refill, in microseconds: an interval, but no more than the span.
/// Without it, a key whose demand jumps would be admitted less than its quota.
pub const LENIENCE_US: u64 = 250_000;

/// Additional time for which a budget is kept if it is in debt or its fan-out is remembered, in microseconds.
/// A forward step of the store's clock by less than this does not lose the budget.
pub const STEP_KEPT_US: u64 = 7_200_000_000;

// Lua's doubles must hold each of these exactly (see the module's introduction).
const _: () = assert!(DEFICIT_NS_MAX / 1_000 < 1 << 53 && DEFICIT_NS_MAX.is_multiple_of(1_000));
const _: () = assert!(CHARGE_TOKENS_MAX * 1_000 < 1 << 53);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Thousandths of a token per second, admitted or not.
    pub milli: u64,
    pub askers: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    pub quota: Quota,
    /// The replica that charges: its region, or `region/replica` if several weir-syncs serve the region.
    pub replica: &'a str,
    pub demand: Demand,
    pub pop: &'a str,
    /// Counts of the POP's buckets for this budget, usually one.
    pub counts: &'a [Count],
}

/// A report's charge to one budget.
#[derive(Clone, Debug)]
pub struct PlanEntry {
    pub id: BudgetId,
    pub quota: Quota,
    pub sharing: Sharing,
    pub demand: Demand,
    /// Demand of the POP, in thousandths of a token per second.
    pub own_milli: u64,
    pub counts: Vec<Count>,
}

impl PlanEntry {
    /// Creates an entry that only reads a budget.
    pub fn new(id: BudgetId, quota: Quota, sharing: Sharing) -> Self {
        Self { id, quota, sharing, demand: Demand::default(), own_milli: 0, counts: Vec::new() }
    }

    pub fn is_reported(&self) -> bool {
        !self.counts.is_empty()
    }

    pub fn charge<'a>(&'a self, replica: &'a str, pop: &'a str) -> Charge<'a> {
        Charge { quota: self.quota, replica, demand: self.demand, pop, counts: &self.counts }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaDemand {
    /// `region` or `region/replica`; shared, because every account contains it.
    pub name: Arc<str>,
    pub demand: Demand,
    pub age_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Nanoseconds of refill until full.
    pub deficit_ns: u64,
    /// Recent fan-out: the number of bursts by which the budget was overdrawn; 0 if none is remembered.
    pub fan_out: u32,
    pub charged: u64,
    pub now_us: u64,
    /// All replicas, by name, including the one that charged.
    pub replicas: Vec<ReplicaDemand>,
}

/// State of one budget; a new one is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    deficit_ns: u64,
    /// Time that an empty budget takes to fill at the last charge's quota, in microseconds.
    fill_us: u64,
    /// Nanoseconds of refill per token at the last charge's quota; 0 for a new budget.
    token_ns: u64,
    /// Refill that is missing at an earlier quota beyond what is missing at this one, in microseconds; may be negative.
    /// It keeps POPs that alternate between two quotas within the larger burst and the larger rate.
    forgiven_us: i64,
    /// Lead of the budget's own clock over the store's, in microseconds.
    ahead_us: i64,
    /// Time of the last charge, on the budget's own clock like all other times here.
    at_us: u64,
    unused_refill: UnusedRefill,
    fan_out: FanOut,
    sources: Sorted<SourceId, SourceRecord>,
    replicas: Sorted<Arc<str>, ReplicaRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplicaRecord {
    demand: Demand,
    at_us: u64,
}

impl Budget {
    /// Charges the tokens in `charge` that are not on record yet: each once, whatever the order of the reports.
    ///
    /// A budget may have been full, and lost refill, while a report's tokens were admitted but not charged yet. The
    /// unused refill within the report's span pays for them ([`UnusedRefill`]), except for tokens that the POP's own
    /// bucket still lacks. So tokens admitted at the rate leave no debt, however late they are charged or delayed on
    /// the way ([`SourceRecord::observe`]). When reports arrive in a bunch, what the bucket refilled between two of
    /// them is paid for with the later one. When the store's clock steps, no time passes ([`crate::store_clock`]).
    pub fn charge(&mut self, time: impl Into<StoreTime>, charge: &Charge<'_>) -> Account {
        let time = time.into();
        let before_us = self.fill_us;
        let now_us = self.advance(time, charge.quota);
        self.go_by(charge.quota, before_us);
        let refill_us = |tokens: u64| charge.quota.token_ns().saturating_mul(tokens) / 1_000;
        let (mut charged, mut reach_us, mut between_us) = (0, 0, 0_u64);
        for count in charge.counts {
            let News { tokens, since_us, passed_us, delay_us } = self.record(now_us, charge.pop, count);
            let earlier_us = refill_us(count.unconfirmed.saturating_sub(tokens));
            between_us = between_us.saturating_add(earlier_us.min(since_us).saturating_sub(passed_us));
            // New tokens were admitted since the record was made, unless a POP cannot admit that number in that time;
            // then the record was late.
            let price_us = refill_us(tokens);
            let least_us = price_us.saturating_sub(fill_us(charge.quota));
            // Some tokens are confirmed to the POP: the store has lost their charge, and the span begins after it.
            let forgotten_us = if tokens > count.unconfirmed { FORGOTTEN_US_MAX } else { 0 };
            let span_us = count.span_us.saturating_add(forgotten_us).min(since_us.max(least_us));
            if tokens > 0 {
                reach_us = reach_us.max(span_us.saturating_add(delay_us + span_us.min(LENIENCE_US)));
            }
            charged += tokens;
        }
        let charged = charged.min(CHARGE_TOKENS_MAX);
        let price_ns = charge.quota.token_ns().saturating_mul(charged);
        let missing = charge.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(count.missing));
        let refilled_us = refill_us(charged.saturating_sub(missing)).saturating_add(between_us);
        // Tokens that the POP's bucket lacks stay unpaid; the debt of other POPs may hide a part of them.
        let most_us = (self.deficit_ns / 1_000 + price_ns / 1_000).saturating_sub(refill_us(missing));
        let paid_us = refilled_us.min(price_ns / 1_000).min(most_us);
        let paid_us = self.unused_refill.claim(now_us.saturating_sub(reach_us), paid_us);
        self.deficit_ns = (price_ns - paid_us * 1_000).saturating_add(self.deficit_ns).min(DEFICIT_NS_MAX);
        self.fan_out.record(now_us, self.deficit_ns / 1_000, charge.quota);
        self.forget_sources();
        self.record_replica(now_us, charge.replica, charge.demand);
        Account {
            deficit_ns: self.deficit_ns,
            fan_out: self.fan_out.bursts(),
            charged,
            now_us: time.now_us,
            replicas: self.replicas_at(now_us),
        }
    }

    /// Time at which this budget can be dropped without losing a debt or a fan-out, in microseconds of the store's
    /// clock. If there is one, the time allows for a step of that clock.
    pub fn expires_us(&self) -> u64 {
        let is_in_debt = u128::from(self.deficit_ns) > u128::from(self.fill_us) * 1_000;
        let fan_out_us = self.fan_out.until_us().saturating_sub(self.at_us);
        let steps_us = if is_in_debt || fan_out_us > 0 { STEP_KEPT_US } else { 0 };
        let forgiven_us = u64::try_from(self.forgiven_us).unwrap_or(0);
        let kept_us = keep_us(self.deficit_ns)
            .saturating_add(forgiven_us)
            .max(fan_out_us)
            .saturating_add(steps_us)
            .min(KEPT_US_MAX);
        self.last_charge_us().saturating_add(kept_us)
    }

    pub fn deficit_ns(&self) -> u64 {
        self.deficit_ns
    }

    /// Nanoseconds of refill of all tokens missing at any of its quotas, as of the last charge.
    pub fn missing_ns(&self) -> u64 {
        self.deficit_ns.saturating_add_signed(self.forgiven_us * 1_000)
    }

    /// Adopts `quota`; before, an empty budget took `before_us` to fill. The deficit stays the same fraction of a
    /// burst. For a larger burst, debt beyond one burst keeps its tokens instead. If the deficit is then fewer tokens
    /// than were missing, the difference is [`Budget::forgiven_us`]; for a larger burst it is never fewer.
    fn go_by(&mut self, quota: Quota, before_us: u64) {
        let old_token_ns = core::mem::replace(&mut self.token_ns, quota.token_ns());
        let is_same = old_token_ns == quota.token_ns() && before_us == self.fill_us;
        if old_token_ns == 0 || is_same || self.deficit_ns == 0 && self.forgiven_us == 0 {
            return;
        }
        // Doubles, in this order, because Lua in Redis has only doubles.
        let (was, token) = (token_us(old_token_ns), token_us(quota.token_ns()));
        #[allow(clippy::cast_precision_loss, reason = "microseconds of a deficit and of a fill are below 2^53")]
        let [deficit_us, before_us, fill_us] = [self.deficit_ns / 1_000, before_us, self.fill_us].map(|us| us as f64);
        #[allow(clippy::cast_precision_loss, reason = "below 2^53, as a deficit")]
        let missing_us = (deficit_us + self.forgiven_us as f64) / was * token;
        let part_us = if fill_us / token > before_us / was {
            let first_us = deficit_us.min(before_us);
            (first_us / before_us * fill_us + (deficit_us - first_us) / was * token).max(missing_us)
        } else {
            deficit_us / before_us * fill_us
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let [missing_us, part_us] = [missing_us, part_us].map(|us| (us as u64).min(DEFICIT_NS_MAX / 1_000));
        self.deficit_ns = part_us * 1_000;
        self.forgiven_us = missing_us.cast_signed() - part_us.cast_signed();
    }

    /// Time of the last charge, on the store's clock.
    fn last_charge_us(&self) -> u64 {
        self.at_us.saturating_add_signed(self.ahead_us.saturating_neg())
    }

    /// Refills the budget up to its own current time, and returns that time. The budget's own clock is the store's
    /// without its steps: it never goes back, and skips the jumps that the caller has observed.
    fn advance(&mut self, time: StoreTime, quota: Quota) -> u64 {
        self.fill_us = fill_us(quota);
        self.ahead_us = self.ahead_us.saturating_sub_unsigned(time.skipped_us(self.last_charge_us()));
        let shown_us = time.now_us.saturating_add_signed(self.ahead_us);
        let now_us = shown_us.max(self.at_us);
        self.ahead_us = self.ahead_us.saturating_add_unsigned(now_us - shown_us);
        self.refill(now_us);
        now_us
    }

    fn refill(&mut self, now_us: u64) {
        let elapsed_us = now_us.saturating_sub(self.at_us);
        let deficit_us = self.deficit_ns / 1_000;
        let all_us = deficit_us + u64::try_from(self.forgiven_us).unwrap_or(0);
        if all_us < elapsed_us {
            self.unused_refill.add(self.at_us + all_us, now_us);
            (self.deficit_ns, self.forgiven_us) = (0, 0);
        } else if deficit_us < elapsed_us {
            (self.deficit_ns, self.forgiven_us) = (0, (all_us - elapsed_us).cast_signed());
        } else {
            self.deficit_ns -= elapsed_us * 1_000;
            self.forgiven_us = self.forgiven_us.max(-(self.deficit_ns / 1_000).cast_signed());
        }
        self.at_us = now_us;
    }

    fn record(&mut self, now_us: u64, pop: &str, count: &Count) -> News {
        match self.sources.find(|id| (id.epoch, id.pop.as_str()).cmp(&(count.epoch, pop))) {
            Ok(known) => known.observe(now_us, count),
            Err(vacancy) => {
                let (record, news) = SourceRecord::begin(now_us, count);
                self.sources.put(vacancy, SourceId { epoch: count.epoch, pop: pop.into() }, record);
                news
            }
        }
    }

    fn forget_sources(&mut self) {
        if self.sources.len() <= SOURCES_MAX {
            return;
        }
        let mut by_age: Vec<_> = self.sources.iter().map(|(id, r)| (r.seen_us, id)).collect();
        by_age.sort_unstable();
        let oldest_kept = by_age.get(self.sources.len() - SOURCES_KEPT).map(|&(at_us, id)| (at_us, id.clone()));
        let Some((at_us, id)) = oldest_kept else { return };
        self.sources.retain(|known, record| (record.seen_us, known) >= (at_us, &id));
    }

    fn record_replica(&mut self, now_us: u64, name: &str, demand: Demand) {
        let demand = Demand { milli: demand.milli.min(COUNT_MAX), ..demand };
        let record = ReplicaRecord { demand, at_us: now_us };
        match self.replicas.find(|known| (**known).cmp(name)) {
            Ok(known) => *known = record,
            Err(place) => _ = self.replicas.put(place, name.into(), record),
        }
        self.replicas.retain(|_, replica| now_us.saturating_sub(replica.at_us) <= REPLICA_IDLE_US);
        while self.replicas.len() > REPLICAS_MAX {
            let oldest = self.replicas.iter().min_by_key(|(name, replica)| (replica.at_us, *name));
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            self.replicas.retain(|known, _| *known != name);
        }
    }

    fn replicas_at(&self, now_us: u64) -> Vec<ReplicaDemand> {
        let replica = |(name, record): (&Arc<str>, &ReplicaRecord)| ReplicaDemand {
            name: Arc::clone(name),
            demand: record.demand,
            age_us: now_us.saturating_sub(record.at_us),
        };
        self.replicas.iter().map(replica).collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
fn token_us(token_ns: u64) -> f64 {
    (token_ns / 1_000) as f64 + (token_ns % 1_000) as f64 / 1_000.0
}

/// Time for which a budget with this deficit is kept, in microseconds: until it is full, and [`GRACE_US`] longer.
pub const fn keep_us(deficit_ns: u64) -> u64 {
    deficit_ns.div_ceil(1_000) + GRACE_US
}
