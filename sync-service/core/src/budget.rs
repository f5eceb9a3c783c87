//! The state of one budget and the only way to change it: [`Budget::charge`].
//!
//! A budget counts in nanoseconds of refill ([`Quota::token_ns`] each token), as a *deficit*: how
//! long until it is full. Zero is full, [`Quota::fill_ns`] is empty, more than that is debt. Debt is
//! what was admitted before anyone could know better; it is kept and paid back by the refill, so
//! over any long run what is admitted equals the quota.
//!
//! Every limit below is small enough that a store which only has doubles (Lua in Redis) computes the
//! same, to the bit: whole microseconds of a deficit, counts and charges all stay below 2^53.

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_wire::quota::{FILL_NS_MAX, Quota};

use crate::clock::{Clock, Word};
pub use crate::clock::{LOOK_US, STEP_US};
pub use crate::id::BudgetId;
use crate::sorted::Sorted;
pub use crate::source::{CHARGE_TOKENS_MAX, COUNT_MAX, Count, SourceId};
use crate::source::{News, SourceRecord};
use crate::spill::Spill;
use crate::spread::{Spread, fill_us};
use crate::store_clock::StoreTime;

/// The largest deficit, in nanoseconds; what would go beyond is forgiven.
pub const DEFICIT_NS_MAX: u64 = 256 * FILL_NS_MAX;
/// The most sources a budget remembers; beyond it, those heard of longest ago are forgotten until
/// [`SOURCES_KEPT`] are left.
pub const SOURCES_MAX: usize = 2_048;
/// How many sources are left after forgetting, so that it happens rarely.
pub const SOURCES_KEPT: usize = SOURCES_MAX / 4 * 3;
/// The most members (a region, or one of several weir-syncs that serve it) a budget remembers; the one
/// heard of longest ago goes first. Thirty regions of four.
pub const MEMBERS_MAX: usize = 128;
/// How long a member that says nothing is remembered, in microseconds: by then its demand has faded, and one that was
/// started again under another name takes up no room for longer.
pub const MEMBER_IDLE_US: u64 = 5_000_000;
/// How long a full budget is remembered, in microseconds: long enough for every retry of a report
/// to find its record.
pub const GRACE_US: u64 = 60_000_000;

/// The longest that a budget is kept without a charge, in microseconds: as long as the slowest bucket takes to fill. If
/// a debt takes longer to pay, the rest of it is forgiven.
pub const KEPT_US_MAX: u64 = FILL_NS_MAX / 1_000 + GRACE_US;

/// How far a store that takes over is believed to be behind at most, in microseconds.
pub const FORGOTTEN_US_MAX: u64 = 10_000_000;
/// A report may claim refill from so much before its span (an interval), in microseconds, but never from more than
/// twice the span ago. Otherwise a key whose demand jumps would be admitted less than its quota.
pub const LENIENCE_US: u64 = 250_000;

/// How much longer a budget is kept if it is in debt or its spread is remembered, in microseconds: the store's clock
/// may step forward by so much without forgetting it.
pub const STEP_KEPT_US: u64 = 7_200_000_000;

// Doubles must hold each of these exactly (see the module's introduction).
const _: () = assert!(DEFICIT_NS_MAX / 1_000 < 1 << 53 && DEFICIT_NS_MAX.is_multiple_of(1_000));
const _: () = assert!(CHARGE_TOKENS_MAX * 1_000 < 1 << 53);

/// How much a region is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Thousandths of a token per second, admitted or not.
    pub milli: u64,
    /// POPs that are asked at all.
    pub askers: u32,
}

/// What one report says about one budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    /// How large the budget is.
    pub quota: Quota,
    /// The region that speaks, or `region/replica` where several weir-syncs serve it.
    pub member: &'a str,
    /// What the region is asked for.
    pub demand: Demand,
    /// The POP whose counts follow.
    pub pop: &'a str,
    /// The counts of the POP's buckets for this budget, usually one.
    pub counts: &'a [Count],
}

/// A member's demand as a budget remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name: `region`, or `region/replica`. Every account has it, so it is shared.
    pub name: Arc<str>,
    /// What it said.
    pub demand: Demand,
    /// How long ago it said so, in microseconds.
    pub age_us: u64,
}

/// What a budget is after a charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Nanoseconds of refill until full.
    pub deficit_ns: u64,
    /// How many bursts deep the budget went of late; 0 where that is not worth remembering.
    pub spread: u32,
    /// Tokens that this charge took.
    pub charged: u64,
    /// The store's clock at the charge, in microseconds.
    pub now_us: u64,
    /// All members, by name, including the one that charged.
    pub members: Vec<Member>,
}

/// The state of one budget; a new one is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    deficit_ns: u64,
    /// How long an empty budget takes to fill by the quota of the last charge, in microseconds.
    fill_us: u64,
    /// What a token is worth by the quota of the last charge; 0 for a new budget.
    token_ns: u64,
    clock: Clock,
    /// When it was last charged; on the budget's own clock, as are all other times here.
    at_us: u64,
    spill: Spill,
    spread: Spread,
    sources: Sorted<SourceId, SourceRecord>,
    members: Sorted<Arc<str>, MemberRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemberRecord {
    demand: Demand,
    at_us: u64,
}

impl Budget {
    /// Charges what `charge` says and the records do not have yet: each admitted token once, however often and in
    /// whichever order reports arrive.
    ///
    /// A report speaks of the past: while its tokens were admitted, the budget did not know of them, was full, and lost
    /// its refill. What was lost within the charge's span pays for them (see [`crate::spill`]). So tokens that were
    /// admitted at the rate leave no debt, however late the budget hears of them, even if their reports were held up on
    /// the way (see [`crate::source`]). It does not pay for tokens that the POP's own bucket still lacks: had they been
    /// admitted earlier, that would have refilled. When the store's clock steps, no time passes (see [`crate::clock`] and
    /// [`crate::store_clock`]).
    pub fn charge(&mut self, time: impl Into<StoreTime>, charge: &Charge<'_>) -> Account {
        let time = time.into();
        let (now_us, place) = self.tell(time, charge);
        self.go_by(charge.quota);
        let (mut charged, mut reach_us) = (0, 0);
        for count in charge.counts {
            let News { tokens, since_us, delay_us } = self.record(now_us, charge.pop, count, place);
            // New tokens were admitted since the record was made; unless a POP cannot admit so many in that time: then
            // the record was late.
            let price_us = charge.quota.token_ns().saturating_mul(tokens) / 1_000;
            let least_us = price_us.saturating_sub(fill_us(charge.quota));
            // The POP has heard that some of them were charged, so the store has forgotten that: the report's span begins
            // after it.
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
        let refilled_ns = charge.quota.token_ns().saturating_mul(charged.saturating_sub(missing));
        let paid_us = self.spill.claim(now_us.saturating_sub(reach_us), refilled_ns / 1_000);
        self.deficit_ns = (price_ns - paid_us * 1_000).saturating_add(self.deficit_ns).min(DEFICIT_NS_MAX);
        self.spread.note(now_us, self.deficit_ns / 1_000, charge.quota);
        self.forget_sources();
        self.note_member(now_us, charge.member, charge.demand);
        Account {
            deficit_ns: self.deficit_ns,
            spread: self.spread.bursts(),
            charged,
            now_us: time.now_us,
            members: self.members_at(now_us),
        }
    }

    /// When this budget can be forgotten without loss of debt or spread, on the store's clock in microseconds. If it
    /// has any, this is later by what that clock may step forward; but never later than [`KEPT_US_MAX`] after the last
    /// charge.
    pub fn expires_us(&self) -> u64 {
        let is_in_debt = u128::from(self.deficit_ns) > u128::from(self.fill_us) * 1_000;
        let spread_us = self.spread.until_us().saturating_sub(self.at_us);
        let steps_us = if is_in_debt || spread_us > 0 { STEP_KEPT_US } else { 0 };
        let kept_us = keep_us(self.deficit_ns).max(spread_us).saturating_add(steps_us).min(KEPT_US_MAX);
        self.clock.store_us(self.at_us).saturating_add(kept_us)
    }

    /// Nanoseconds of refill until full, as of the last charge.
    pub fn deficit_ns(&self) -> u64 {
        self.deficit_ns
    }

    /// How many sources are on record.
    pub fn sources_len(&self) -> usize {
        self.sources.len()
    }

    /// Goes by `quota` from now on. If its rate is another than before, the number of missing tokens stays, not the
    /// time to refill them: a client whose rate is raised does not wait as long as the old rate would have taken.
    fn go_by(&mut self, quota: Quota) {
        let before_ns = core::mem::replace(&mut self.token_ns, quota.token_ns());
        if before_ns == 0 || before_ns == quota.token_ns() || self.deficit_ns == 0 {
            return;
        }
        // In doubles, and in this order, like the store that only has doubles.
        #[allow(clippy::cast_precision_loss, reason = "whole microseconds of a deficit stay below 2^53")]
        let missing_us = (self.deficit_ns / 1_000) as f64 / token_us(before_ns) * token_us(quota.token_ns());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let missing_us = missing_us as u64;
        self.deficit_ns = missing_us.min(DEFICIT_NS_MAX / 1_000) * 1_000;
    }

    /// Refills the budget up to its own time now, which is returned, and the place of the record of the last count that has
    /// one.
    fn tell(&mut self, time: StoreTime, charge: &Charge<'_>) -> (u64, usize) {
        self.fill_us = fill_us(charge.quota);
        self.clock.skip(time.skipped_us(self.clock.store_us(self.at_us)));
        let told_us = self.clock.own_us(time.now_us);
        let mut place = 0;
        let known = charge.counts.iter().filter_map(|count| {
            place =
                self.sources.place(|id| (id.epoch, id.pop.as_str()).cmp(&(count.epoch, charge.pop))).ok()?;
            self.sources.at(place).map(|record| record.late_us(told_us, count))
        });
        let word = match known.min() {
            Some(late_us) => Word::Late(late_us),
            None if charge.counts.is_empty() => Word::None,
            None => Word::New,
        };
        let now_us = self.clock.tell(told_us, self.at_us, self.deficit_ns / 1_000, self.fill_us, word);
        // Where no POP confirms that so much time has passed, a full budget keeps at most a burst for late reports.
        let is_doubted = word == Word::None && now_us - self.at_us > self.fill_us.max(STEP_US);
        self.refill(now_us, if is_doubted { now_us - self.fill_us } else { 0 });
        (now_us, place)
    }

    /// Refills up to `now_us`; refill that was lost before `spills_us` is not kept for late reports.
    fn refill(&mut self, now_us: u64, spills_us: u64) {
        let elapsed_us = now_us.saturating_sub(self.at_us);
        if self.deficit_ns / 1_000 < elapsed_us {
            self.spill.add((self.at_us + self.deficit_ns / 1_000).max(spills_us), now_us);
            self.deficit_ns = 0;
        } else {
            self.deficit_ns -= elapsed_us * 1_000;
        }
        self.at_us = now_us;
    }

    /// Notes a count, whose record is likely at `guess`, and returns what is new in it.
    fn record(&mut self, now_us: u64, pop: &str, count: &Count, guess: usize) -> News {
        let order = |id: &SourceId| (id.epoch, id.pop.as_str()).cmp(&(count.epoch, pop));
        match self.sources.find_near(guess, order) {
            Ok(known) => known.hear(now_us, count),
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
        let oldest_kept =
            by_age.get(self.sources.len() - SOURCES_KEPT).map(|&(at_us, id)| (at_us, id.clone()));
        let Some((at_us, id)) = oldest_kept else { return };
        self.sources.retain(|known, record| (record.seen_us, known) >= (at_us, &id));
    }

    fn note_member(&mut self, now_us: u64, name: &str, demand: Demand) {
        let demand = Demand { milli: demand.milli.min(COUNT_MAX), ..demand };
        let record = MemberRecord { demand, at_us: now_us };
        match self.members.find(|known| (**known).cmp(name)) {
            Ok(known) => *known = record,
            Err(place) => _ = self.members.put(place, name.into(), record),
        }
        self.members.retain(|_, member| now_us.saturating_sub(member.at_us) <= MEMBER_IDLE_US);
        while self.members.len() > MEMBERS_MAX {
            let oldest = self.members.iter().min_by_key(|(name, member)| (member.at_us, *name));
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            self.members.retain(|known, _| *known != name);
        }
    }

    fn members_at(&self, now_us: u64) -> Vec<Member> {
        let member = |(name, record): (&Arc<str>, &MemberRecord)| Member {
            name: Arc::clone(name),
            demand: record.demand,
            age_us: now_us.saturating_sub(record.at_us),
        };
        self.members.iter().map(member).collect()
    }
}

/// How long a token takes to refill, in microseconds.
#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
fn token_us(token_ns: u64) -> f64 {
    (token_ns / 1_000) as f64 + (token_ns % 1_000) as f64 / 1_000.0
}

/// How long a budget with this deficit is worth keeping, in microseconds: until it is full, and [`GRACE_US`] longer.
/// After that only its records make it differ from a new one, and those only matter to reports that are still on their
/// way.
pub const fn keep_us(deficit_ns: u64) -> u64 {
    deficit_ns.div_ceil(1_000) + GRACE_US
}
