//! The entries of a slot: the local state of keys.

use super::tag::{Moment, epoch_of, stepped};
use crate::algorithms::{Bucket, Cell, FairShare};
use weir_protocol::messages::{AdmitRatio, DIVISOR_MAX, Grant};
use weir_protocol::quota::{Quota, TOKENS_MAX};
use weir_protocol::time::{SECOND_NS, Time};

/// Time for which unconfirmed counts keep an otherwise idle entry, in nanoseconds.
pub(super) const UNCONFIRMED_NS_MAX: u64 = 60 * SECOND_NS;
const LEASE_MS_MAX: u32 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Cold(Cold),
    Watched(Watched),
}

/// A key within its fair share, or one cell of a key under another algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cold {
    /// Bucket of the rule's whole quota.
    pub(crate) bucket: Bucket,
    /// The POP's fair share of the quota; once it is used up, the key becomes watched.
    pub share: FairShare,
}

/// A key that is reported to weir-sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Bucket of the rule's whole quota, capped by grants.
    pub(crate) bucket: Bucket,
    pub(crate) until: Time,
    /// Identifies the period that the counts cover.
    pub epoch: u32,
    /// Tokens admitted in this epoch.
    pub admitted: u32,
    /// Tokens of this epoch that weir-sync confirmed as charged: after a bounded rule admits them, before a strict one.
    pub charged: u32,
    pub(crate) kind: SharingState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharingState {
    Bounded(Bounded),
    Strict(Strict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounded {
    /// Demand in this epoch, in tokens: the sum of the workers' additions so far.
    pub(crate) asked: u32,
    /// Time at which the first unconfirmed token was admitted.
    pub(crate) unconfirmed_since: Moment,
    pub(crate) hold: Hold,
}

/// State of a strict rule's key. `charged - admitted` tokens may be spent, unless the key is barred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strict {
    /// Tokens that requests wait for.
    pub(crate) awaited: u32,
    /// Time at which a request last began to wait, or of weir-sync's last reply without tokens.
    pub(crate) updated_at: Moment,
    /// True if the key is barred: the budget has no tokens for it until `until`.
    pub(crate) is_barred: bool,
    /// Tokens left in the budget as of the last reply; the burst before the first.
    pub(crate) left: u32,
}

/// Grant of a bounded rule's key, or charge to its fair share. Numbers of tokens are below 2^20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A grant, or none yet.
    Grant {
        ratio: AdmitRatio,
        /// Maximum number of tokens that the bucket may hold.
        burst: u32,
        /// Rate divisor, 1 to [`DIVISOR_MAX`].
        divisor: u32,
    },
    /// No grant. While the POP was offline, a request took more than a fair share of the burst from a full bucket,
    /// which was charged `cost` tokens for each of `pops`, 2 to [`DIVISOR_MAX`].
    Share { cost: u32, pops: u32 },
}

impl SharingState {
    pub(super) fn tokens(self) -> u32 {
        match self {
            Self::Bounded(Bounded {
                hold: Hold::Grant { burst: tokens, .. } | Hold::Share { cost: tokens, .. },
                ..
            })
            | Self::Strict(Strict { left: tokens, .. }) => tokens,
        }
    }
}

/// A POP's limits for a key before the fleet has a grant for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalLimits {
    pub(crate) quota: Quota,
    /// Maximum number of tokens that a bucket holds.
    pub(crate) local_burst: u32,
    /// Rate divisor of a cold key.
    pub(crate) divisor: u32,
}

impl LocalLimits {
    /// Tokens of the local burst that `bucket` lacks at `now`.
    fn missing(&self, bucket: Bucket, now: Time) -> u64 {
        let withheld = u64::from(self.quota.burst().saturating_sub(self.local_burst));
        bucket.missing(&self.quota, now).saturating_sub(withheld)
    }

    /// The share of a key that was evicted and returns owing `owed`. The debt counts as used, up to the whole share, so
    /// that the fleet gets reports of the key however often it is evicted.
    ///
    /// A debt does not record how much of it was reported: all if the key was watched; all but at most a fair share if
    /// it was cold. So a key that was watched may be charged for that share again at each eviction, and a key beyond
    /// its share, in a slot without room to watch it, reports no more than the share.
    pub(crate) fn share_of_debt(&self, owed: Bucket, now: Time) -> FairShare {
        let unreported_max = self.quota.burst().div_ceil(self.divisor.max(1));
        let given = u32::try_from(self.missing(owed, now)).unwrap_or(u32::MAX);
        FairShare::used(given.min(unreported_max), now)
    }
}

impl Cold {
    pub(crate) const NEW: Self = Self { bucket: Bucket::FULL, share: FairShare::WHOLE };

    pub(crate) fn of_cell(cell: Cell) -> Self {
        Self { bucket: Bucket::full_at(cell.until), share: FairShare::from_bits(cell.word) }
    }

    pub(crate) fn cell(&self) -> Cell {
        Cell { until: self.bucket.refilled(), word: self.share.bits() }
    }
}

impl Watched {
    /// The entry of a key that becomes watched at `now`, because it takes `taking` tokens beyond its share. Its
    /// unreported tokens are reported now. The share has their number; the bucket may lack more.
    pub(crate) fn begin(cold: &Cold, limits: &LocalLimits, taking: u32, now: Time) -> Self {
        let LocalLimits { quota, divisor, .. } = limits;
        let used = cold.share.tokens_used(quota, *divisor, now);
        // Tokens that the bucket no longer lacks have refilled since they were admitted.
        let refilled = u64::from(used).saturating_sub(limits.missing(cold.bucket, now));
        let since = now.as_nanos().saturating_sub(quota.token_ns().saturating_mul(refilled));
        let admitted = used.saturating_add(taking);
        Self {
            bucket: cold.bucket,
            until: Time::ZERO,
            epoch: epoch_of(now),
            admitted,
            charged: 0,
            kind: SharingState::Bounded(Bounded {
                // The worker counts the request itself.
                asked: used,
                unconfirmed_since: Moment::of(Time::from_nanos(since)).within_reach(now),
                hold: Hold::Grant { ratio: AdmitRatio::ONE, burst: quota.burst(), divisor: 1 },
            }),
        }
    }

    /// The key's first entry after its rule's quota changed from `before`, with its new `bucket`. The grant carries
    /// over, for the same fraction of the rate and of the burst; `None` without a grant.
    pub(crate) fn under(&self, quota: &Quota, before: &Quota, bucket: Bucket, now: Time) -> Option<Self> {
        let (ratio, burst, divisor) = self.grant_at(now)?;
        let bits = u128::from(ratio.bits()) * u128::from(before.token_ns()) / u128::from(quota.token_ns());
        let ratio = match u32::try_from(bits) {
            Ok(bits) if ratio != AdmitRatio::ONE => AdmitRatio::from_bits(bits),
            _ => AdmitRatio::ONE,
        };
        let burst = u64::from(burst) * u64::from(quota.burst()) / u64::from(before.burst().max(1));
        let burst = u32::try_from(burst).unwrap_or(TOKENS_MAX).clamp(1, TOKENS_MAX);
        let (unconfirmed_since, hold) = (Moment::of(now), Hold::Grant { ratio, burst, divisor });
        let kind = SharingState::Bounded(Bounded { asked: 0, unconfirmed_since, hold });
        Some(Self { bucket, until: self.until, epoch: epoch_of(now), admitted: 0, charged: 0, kind })
    }

    /// State under a bounded rule. State from a strict rule, before the rules were replaced, has ended.
    fn bounded(&self) -> Bounded {
        match self.kind {
            SharingState::Bounded(bounded) => bounded,
            SharingState::Strict(Strict { updated_at, .. }) => Bounded {
                asked: self.admitted,
                unconfirmed_since: updated_at,
                hold: Hold::Grant { ratio: AdmitRatio::ONE, burst: TOKENS_MAX, divisor: 1 },
            },
        }
    }

    /// Changes the state under a bounded rule, to which the key belongs from now on.
    fn change_bounded(&mut self, change: impl FnOnce(&mut Bounded)) {
        let mut bounded = self.bounded();
        change(&mut bounded);
        self.kind = SharingState::Bounded(bounded);
    }

    /// Records that the full bucket admitted `cost` tokens offline, and was charged them for each of `pops`.
    pub(crate) fn owe_share(&mut self, cost: u32, pops: u32) {
        let hold = Hold::Share { cost, pops: pops.clamp(1, DIVISOR_MAX) };
        (self.until, self.kind) = (Time::ZERO, SharingState::Bounded(Bounded { hold, ..self.bounded() }));
    }

    /// Reduces such a charge to a single `cost`, once the POP is online again.
    pub(crate) fn forgive_share(&mut self, quota: &Quota) {
        if let SharingState::Bounded(Bounded { hold, .. }) = &mut self.kind
            && let Hold::Share { cost, pops } = *hold
        {
            self.bucket = self.bucket.give_back(quota, pops.saturating_sub(1).saturating_mul(cost));
            *hold = Hold::Grant { ratio: AdmitRatio::ONE, burst: quota.burst(), divisor: 1 };
        }
    }

    /// Applies `grant` from `now` on, with the bucket capped at `level_milli` thousandths of a token.
    pub(crate) fn hold(&mut self, grant: &Grant, quota: &Quota, level_milli: i64, now: Time) {
        self.forgive_share(quota);
        let (burst, divisor) = (grant.burst.min(TOKENS_MAX), grant.divisor.clamp(1, DIVISOR_MAX));
        let hold = Hold::Grant { ratio: grant.ratio, burst, divisor };
        self.kind = SharingState::Bounded(Bounded { hold, ..self.bounded() });
        self.until = stepped(now + u64::from(grant.lease_ms.min(LEASE_MS_MAX)) * 1_000_000);
        self.bucket = self.bucket.capped(quota, level_milli, now);
    }

    pub(crate) fn release(&mut self, now: Time) {
        self.until = self.until.min(stepped(now));
    }

    /// The admit ratio valid at `now`; 1 without a grant.
    pub(crate) fn ratio_at(&self, now: Time) -> AdmitRatio {
        self.grant_at(now).map_or(AdmitRatio::ONE, |(ratio, ..)| ratio)
    }

    /// Maximum number of tokens that the bucket may hold at `now`, and its rate divisor; `None` without a grant.
    pub(crate) fn hold_at(&self, now: Time) -> Option<(u32, u32)> {
        self.grant_at(now).map(|(_, burst, divisor)| (burst, divisor))
    }

    /// True if it admits all that its bucket has tokens for: it owes no share, its ratio is 1, its epoch continues.
    pub(crate) fn is_open(&self, now: Time) -> bool {
        let is_granted = matches!(self.kind, SharingState::Bounded(Bounded { hold: Hold::Grant { .. }, .. }));
        is_granted && self.ratio_at(now) == AdmitRatio::ONE && !self.is_to_renew()
    }

    fn grant_at(&self, now: Time) -> Option<(AdmitRatio, u32, u32)> {
        match self.kind {
            SharingState::Bounded(Bounded { hold: Hold::Grant { ratio, burst, divisor }, .. }) if now < self.until => {
                Some((ratio, burst, divisor))
            }
            _ => None,
        }
    }

    /// Number of tokens that its bucket lacks at `now` until full, at the burst of its grant or else of `limits`.
    pub(crate) fn missing(&self, limits: &LocalLimits, now: Time) -> u64 {
        let local_burst = self.hold_at(now).map_or(limits.local_burst, |(burst, _)| burst);
        LocalLimits { local_burst, ..*limits }.missing(self.bucket, now)
    }

    /// Confirms the `admitted` tokens of a report made at `sent_at` as charged.
    pub(crate) fn confirm(&mut self, admitted: u32, sent_at: Time) {
        self.charged = self.charged.max(admitted).min(self.admitted);
        let sent_at = Moment::of(sent_at);
        self.change_bounded(|bounded| {
            if bounded.unconfirmed_since.is_before(sent_at) {
                bounded.unconfirmed_since = sent_at;
            }
        });
    }

    pub(crate) fn asked(&self) -> u32 {
        self.bounded().asked
    }

    /// Admitted tokens that no reply has confirmed as charged.
    pub(crate) fn unconfirmed(&self) -> u32 {
        self.admitted.saturating_sub(self.charged)
    }

    /// Age of the first unconfirmed token at `now`, in nanoseconds; zero if all are confirmed.
    pub(crate) fn unconfirmed_ns(&self, now: Time) -> u64 {
        if self.admitted > self.charged { self.bounded().unconfirmed_since.nanos_until(now) } else { 0 }
    }

    fn is_to_renew(&self) -> bool {
        self.admitted.max(self.asked()) > COUNT_MAX
    }

    /// Begins a new epoch before a counter can wrap. Unconfirmed tokens carry over.
    pub(super) fn renew(&mut self, now: Time) {
        if self.is_to_renew() {
            self.admitted = self.admitted.saturating_sub(self.charged);
            (self.charged, self.epoch) = (0, epoch_of(now));
            if let SharingState::Bounded(bounded) = &mut self.kind {
                bounded.asked = self.admitted;
            }
        }
    }

    /// Adds `tokens` to the demand of a bounded rule's key, admitted or not.
    pub(crate) fn count_asked(&mut self, tokens: u32, now: Time) {
        self.renew(now);
        self.change_bounded(|bounded| bounded.asked = bounded.asked.saturating_add(tokens));
    }

    pub(crate) fn count_admitted(&mut self, cost: u32, now: Time) {
        self.renew(now);
        let is_first = self.admitted <= self.charged;
        self.change_bounded(|bounded| {
            let since = if is_first { Moment::of(now) } else { bounded.unconfirmed_since };
            bounded.unconfirmed_since = since.within_reach(now);
        });
        self.admitted = self.admitted.saturating_add(cost);
    }
}

/// Counts above this begin a new epoch.
pub(super) const COUNT_MAX: u32 = u32::MAX / 2;

impl Entry {
    pub fn bucket(&self) -> Bucket {
        match self {
            Self::Cold(cold) => cold.bucket,
            Self::Watched(watched) => watched.bucket,
        }
    }

    pub(crate) fn hold_at(&self, now: Time) -> Option<(u32, u32)> {
        if let Self::Watched(watched) = self { watched.hold_at(now) } else { None }
    }

    pub(crate) fn bucket_mut(&mut self) -> &mut Bucket {
        match self {
            Self::Cold(cold) => &mut cold.bucket,
            Self::Watched(watched) => &mut watched.bucket,
        }
    }

    /// Known idle time in ticks. The entry that has been idle longest is evicted first.
    pub(super) fn idle_ticks(&self, now: Time) -> u32 {
        match self {
            Self::Cold(cold) => cold.share.age(now),
            Self::Watched(_) => 0,
        }
    }

    /// True if it records no more than the bucket's debt, which can then replace it.
    pub(super) fn is_mere_debt(&self, now: Time) -> bool {
        match self {
            Self::Cold(_) => true,
            Self::Watched(w) => w.until <= now && w.admitted <= w.charged,
        }
    }

    /// Unconfirmed tokens of a watched key, if it has no lease and they are less than a burst.
    pub(super) fn light(&self, now: Time) -> Option<u32> {
        let Self::Watched(w) = self else { return None };
        let unconfirmed = w.unconfirmed();
        (w.until <= now && unconfirmed < w.kind.tokens().max(1)).then_some(unconfirmed)
    }

    /// True if it can be dropped without loss. Dropping a partly used share only delays the first report of the key.
    pub(super) fn is_spent(&self, now: Time) -> bool {
        match self {
            Self::Cold(cold) => cold.bucket.is_full(now),
            Self::Watched(w) => {
                let is_reported = w.admitted <= w.charged || now.nanos_since(w.bucket.refilled()) > UNCONFIRMED_NS_MAX;
                let is_exhausted = matches!(w.kind, SharingState::Strict(Strict { is_barred: true, left: 0, .. }));
                w.bucket.is_full(now) && (w.until <= now || is_exhausted) && is_reported
            }
        }
    }
}
