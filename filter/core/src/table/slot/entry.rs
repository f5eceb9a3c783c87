//! What a slot holds: the local state of keys.

use super::moment::{Moment, epoch_of, stepped};
use crate::buckets::algorithm::Cell;
use crate::buckets::{Bucket, EvenShare};
use weir_wire::messages::{AdmitRatio, Grant, PARTS_MAX};
use weir_wire::quota::{Quota, TOKENS_MAX};
use weir_wire::time::{SECOND_NS, Time};

/// How long unconfirmed counts keep an otherwise idle entry, in nanoseconds.
pub(super) const UNCONFIRMED_NS_MAX: u64 = 60 * SECOND_NS;
/// The longest lease that is accepted, in milliseconds.
const LEASE_MS_MAX: u32 = 60_000;

/// The local state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A key within its even share: no other POP needs to hear of it.
    Cold(Cold),
    /// A key that weir-sync hears of.
    Watched(Watched),
}

/// A key within its even share; or one cell of a key under a rule that counts by another algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cold {
    /// The rule's whole quota.
    pub bucket: Bucket,
    /// The POP's even share of it; once that is used up, the key is watched.
    pub share: EvenShare,
}

/// A key that weir-sync hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The rule's whole quota, capped by grants.
    pub bucket: Bucket,
    /// When what it holds ends.
    pub until: Time,
    /// Names the span that the counts cover.
    pub epoch: u32,
    /// Tokens admitted in this epoch.
    pub admitted: u32,
    /// Tokens of this epoch that the budget is known to be charged for. A bounded rule is charged after
    /// it has admitted, a strict one before.
    pub charged: u32,
    /// What else there is to know, by how its rule is shared.
    pub kind: Kind,
}

/// What else there is to know of a watched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its rule is bounded.
    Bounded(Bounded),
    /// Its rule is strict.
    Strict(Strict),
}

/// A key of a bounded rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// Tokens asked for in this epoch, as far as workers have added theirs up.
    pub asked: u32,
    /// When the first admitted token that is not known to be charged was admitted.
    pub unheard_since: Moment,
    /// What it holds besides its bucket.
    pub hold: Hold,
}

/// A key of a strict rule: the tokens that are `charged` and not yet `admitted` may be spent, unless it is barred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strict {
    /// The tokens that requests wait for.
    pub awaited: u32,
    /// When a request last began to wait, or when weir-sync last said that there are no tokens.
    pub noted_at: Moment,
    /// Whether there are no tokens.
    pub is_barred: bool,
    /// What the budget had left as of the last answer; the burst before the first.
    pub left: u32,
}

/// What a bounded rule's key holds besides its bucket. Numbers of tokens are below 2^20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A grant, or none yet.
    Grant {
        /// The fraction to admit.
        ratio: AdmitRatio,
        /// The most tokens that the bucket may hold.
        burst: u32,
        /// It refills at the rate divided by this, 1 to [`PARTS_MAX`].
        parts: u32,
    },
    /// No grant. Out of touch, one request of `cost` tokens took more than an even share of the burst from a full
    /// bucket, which was charged `cost` once for each of `pops`.
    Share {
        /// Tokens that it gave.
        cost: u32,
        /// POPs that shared the quota, 2 to [`PARTS_MAX`].
        pops: u32,
    },
}

impl Kind {
    /// The number of tokens stored with what it holds.
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

/// What a POP may give of a key's quota before the fleet has heard of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unheard {
    /// The rule's whole quota.
    pub quota: Quota,
    /// The most that a bucket holds.
    pub local_burst: u32,
    /// How many parts the quota is cut into; a cold key has one of them.
    pub parts: u32,
}

impl Unheard {
    /// Tokens that `bucket` lacks at `now` of the local burst.
    fn missing(&self, bucket: Bucket, now: Time) -> u64 {
        let withheld = u64::from(self.quota.burst().saturating_sub(self.local_burst));
        bucket.missing(&self.quota, now).saturating_sub(withheld)
    }

    /// The share of a key that lost its place and comes back owing `owed`: the debt counts as used of its even share,
    /// up to the whole share. So the fleet hears of the key however often it is evicted.
    ///
    /// A debt does not record how much of it the fleet has heard of: all of it if the key was watched; all but at most
    /// an even share if it was cold. So a key that was watched may be charged for that share again each time it is
    /// evicted, and a key that was past its share, in a slot without room to watch it, reports no more than the share.
    /// A bit to tell the two apart would halve the precision of the debt's time, or cost each slot two of its debts.
    pub fn share_of_debt(&self, owed: Bucket, now: Time) -> EvenShare {
        let unsaid_max = self.quota.burst().div_ceil(self.parts.max(1));
        let given = u32::try_from(self.missing(owed, now)).unwrap_or(u32::MAX);
        EvenShare::used(given.min(unsaid_max), now)
    }
}

impl Cold {
    /// A key that has not been seen.
    pub const NEW: Self = Self { bucket: Bucket::FULL, share: EvenShare::WHOLE };

    /// The entry whose bytes hold `cell`.
    pub fn of_cell(cell: Cell) -> Self {
        Self { bucket: Bucket::full_at(cell.until), share: EvenShare::from_bits(cell.word) }
    }

    /// The entry as a cell.
    pub fn cell(&self) -> Cell {
        Cell { until: self.bucket.refilled(), word: self.share.bits() }
    }
}

impl Watched {
    /// A key that becomes watched at `now`, because it takes `taking` tokens that its share does not have.
    ///
    /// What it was given unreported is reported now. Its share says how much that was; the bucket may lack more,
    /// because this POP may not give the whole burst alone, or because the key began with other keys' debts.
    pub fn begin(cold: &Cold, unheard: &Unheard, taking: u32, now: Time) -> Self {
        let Unheard { quota, parts, .. } = unheard;
        let used = cold.share.tokens_used(quota, *parts, now);
        // What the bucket no longer lacks has refilled since it was admitted.
        let refilled = u64::from(used).saturating_sub(unheard.missing(cold.bucket, now));
        let since = now.as_nanos().saturating_sub(quota.token_ns().saturating_mul(refilled));
        let admitted = used.saturating_add(taking);
        Self {
            bucket: cold.bucket,
            until: Time::ZERO,
            epoch: epoch_of(now),
            admitted,
            charged: 0,
            kind: Kind::Bounded(Bounded {
                // The worker counts the request itself.
                asked: used,
                unheard_since: Moment::of(Time::from_nanos(since)).within_reach(now),
                hold: Hold::Grant { ratio: AdmitRatio::ONE, burst: quota.burst(), parts: 1 },
            }),
        }
    }

    /// What it knows as a bounded rule's key. What it held as a strict rule's, before the rules were replaced, is over.
    fn bounded(&self) -> Bounded {
        match self.kind {
            Kind::Bounded(bounded) => bounded,
            Kind::Strict(Strict { noted_at, .. }) => Bounded {
                asked: self.admitted,
                unheard_since: noted_at,
                hold: Hold::Grant { ratio: AdmitRatio::ONE, burst: TOKENS_MAX, parts: 1 },
            },
        }
    }

    /// Changes what it knows as a bounded rule's key, which it is from now on.
    fn change_bounded(&mut self, change: impl FnOnce(&mut Bounded)) {
        let mut bounded = self.bounded();
        change(&mut bounded);
        self.kind = Kind::Bounded(bounded);
    }

    /// Notes that out of touch its full bucket gave `cost` tokens, and was charged that for each of `pops`.
    pub fn owe_share(&mut self, cost: u32, pops: u32) {
        let hold = Hold::Share { cost, pops: pops.clamp(1, PARTS_MAX) };
        (self.until, self.kind) = (Time::ZERO, Kind::Bounded(Bounded { hold, ..self.bounded() }));
    }

    /// In touch again: its bucket is charged for them only once.
    pub fn forgive_share(&mut self, quota: &Quota) {
        if let Kind::Bounded(Bounded { hold, .. }) = &mut self.kind
            && let Hold::Share { cost, pops } = *hold
        {
            self.bucket = self.bucket.give_back(quota, pops.saturating_sub(1).saturating_mul(cost));
            *hold = Hold::Grant { ratio: AdmitRatio::ONE, burst: quota.burst(), parts: 1 };
        }
    }

    /// Holds `grant` from `now` on, its bucket capped at `level_milli` thousandths of a token.
    pub fn hold(&mut self, grant: &Grant, quota: &Quota, level_milli: i64, now: Time) {
        self.forgive_share(quota);
        let (burst, parts) = (grant.burst.min(TOKENS_MAX), grant.parts.clamp(1, PARTS_MAX));
        let hold = Hold::Grant { ratio: grant.ratio, burst, parts };
        self.kind = Kind::Bounded(Bounded { hold, ..self.bounded() });
        self.until = stepped(now + u64::from(grant.lease_ms.min(LEASE_MS_MAX)) * 1_000_000);
        self.bucket = self.bucket.capped(quota, level_milli, now);
    }

    /// Ends what it holds.
    pub fn release(&mut self, now: Time) {
        self.until = self.until.min(stepped(now));
    }

    /// The admit ratio in force at `now`; 1 without a lease.
    pub fn ratio_at(&self, now: Time) -> AdmitRatio {
        self.grant_at(now).map_or(AdmitRatio::ONE, |(ratio, ..)| ratio)
    }

    /// The most that the bucket may hold at `now`, and into how many parts its rate is cut, if a lease
    /// says so.
    pub fn hold_at(&self, now: Time) -> Option<(u32, u32)> {
        self.grant_at(now).map(|(_, burst, parts)| (burst, parts))
    }

    /// Whether it lets every request through that its bucket has tokens for, and stays in its epoch: it holds no share, and no lease
    /// thins it at `now`.
    #[cfg(feature = "own_memory")]
    pub(crate) fn is_open(&self, now: Time) -> bool {
        let is_granted = matches!(self.kind, Kind::Bounded(Bounded { hold: Hold::Grant { .. }, .. }));
        is_granted && self.ratio_at(now) == AdmitRatio::ONE && !self.is_to_renew()
    }

    fn grant_at(&self, now: Time) -> Option<(AdmitRatio, u32, u32)> {
        match self.kind {
            Kind::Bounded(Bounded { hold: Hold::Grant { ratio, burst, parts }, .. }) if now < self.until => {
                Some((ratio, burst, parts))
            }
            _ => None,
        }
    }

    /// Tokens that its bucket lacks at `now` of what it may hold: the burst of its lease, or else of `unheard`.
    pub fn missing(&self, unheard: &Unheard, now: Time) -> u64 {
        let local_burst = self.hold_at(now).map_or(unheard.local_burst, |(burst, _)| burst);
        Unheard { local_burst, ..*unheard }.missing(self.bucket, now)
    }

    /// The budget is charged for what a report made at `sent_at` said was `admitted`.
    pub fn confirm(&mut self, admitted: u32, sent_at: Time) {
        self.charged = self.charged.max(admitted).min(self.admitted);
        let sent_at = Moment::of(sent_at);
        self.change_bounded(|bounded| {
            if bounded.unheard_since.is_before(sent_at) {
                bounded.unheard_since = sent_at;
            }
        });
    }

    /// Tokens asked for in this epoch, as far as workers have added theirs up.
    pub fn asked(&self) -> u32 {
        self.bounded().asked
    }

    /// How long ago, in nanoseconds at `now`, the first token was admitted that is not known to be charged;
    /// zero if all are.
    pub fn unheard_ns(&self, now: Time) -> u64 {
        if self.admitted > self.charged { self.bounded().unheard_since.nanos_until(now) } else { 0 }
    }

    fn is_to_renew(&self) -> bool {
        self.admitted.max(self.asked()) > COUNT_MAX
    }

    /// Begins a new epoch before a counter can wrap; it carries over what is not charged yet.
    pub(super) fn renew(&mut self, now: Time) {
        if self.is_to_renew() {
            self.admitted = self.admitted.saturating_sub(self.charged);
            (self.charged, self.epoch) = (0, epoch_of(now));
            if let Kind::Bounded(bounded) = &mut self.kind {
                bounded.asked = self.admitted;
            }
        }
    }

    /// Counts `tokens` that a bounded rule's key was asked for, admitted or not.
    pub fn count_asked(&mut self, tokens: u32, now: Time) {
        self.renew(now);
        self.change_bounded(|bounded| bounded.asked = bounded.asked.saturating_add(tokens));
    }

    /// Counts `cost` admitted tokens.
    pub fn count_admitted(&mut self, cost: u32, now: Time) {
        self.renew(now);
        let is_first = self.admitted <= self.charged;
        self.change_bounded(|bounded| {
            let since = if is_first { Moment::of(now) } else { bounded.unheard_since };
            bounded.unheard_since = since.within_reach(now);
        });
        self.admitted = self.admitted.saturating_add(cost);
    }
}

/// Counts above this begin a new epoch.
pub(super) const COUNT_MAX: u32 = u32::MAX / 2;

impl Entry {
    /// The bucket.
    pub fn bucket(&self) -> Bucket {
        match self {
            Self::Cold(cold) => cold.bucket,
            Self::Watched(watched) => watched.bucket,
        }
    }

    /// The most that the bucket may hold at `now`, and into how many parts its rate is cut, if a lease
    /// says so.
    pub fn hold_at(&self, now: Time) -> Option<(u32, u32)> {
        if let Self::Watched(watched) = self { watched.hold_at(now) } else { None }
    }

    /// The bucket, to change it.
    pub fn bucket_mut(&mut self) -> &mut Bucket {
        match self {
            Self::Cold(cold) => &mut cold.bucket,
            Self::Watched(watched) => &mut watched.bucket,
        }
    }

    /// How long ago it was last asked for, as far as it knows: the longest idle goes first.
    pub(super) fn idle_ticks(&self, now: Time) -> u32 {
        match self {
            Self::Cold(cold) => cold.share.age(now),
            Self::Watched(_) => 0,
        }
    }

    /// Whether it says no more than what its bucket lacks: then a debt can stand for it.
    pub(super) fn is_mere_debt(&self, now: Time) -> bool {
        match self {
            Self::Cold(_) => true,
            Self::Watched(w) => w.until <= now && w.admitted <= w.charged,
        }
    }

    /// A watched key's tokens that are not known to be charged, if it holds no lease and they are less than a burst.
    pub(super) fn light(&self, now: Time) -> Option<u32> {
        let Self::Watched(w) = self else { return None };
        let unsaid = w.admitted.saturating_sub(w.charged);
        (w.until <= now && unsaid < w.kind.tokens().max(1)).then_some(unsaid)
    }

    /// Whether it can go without loss. Dropping a partly used share delays weir-sync hearing of the key,
    /// so the entry that has been idle longest goes first.
    pub(super) fn is_spent(&self, now: Time) -> bool {
        match self {
            Self::Cold(cold) => cold.bucket.is_full(now),
            Self::Watched(w) => {
                let told =
                    w.admitted <= w.charged || now.nanos_since(w.bucket.refilled()) > UNCONFIRMED_NS_MAX;
                let is_exhausted = matches!(w.kind, Kind::Strict(Strict { is_barred: true, left: 0, .. }));
                w.bucket.is_full(now) && (w.until <= now || is_exhausted) && told
            }
        }
    }
}
