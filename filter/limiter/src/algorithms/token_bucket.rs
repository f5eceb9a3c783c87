//! The token bucket, as one number.
//!
//! A bucket is the time at which it will be full again: the theoretical arrival time of the Generic Cell Rate Algorithm
//! (ITU-T I.371, annex A). This suits a table. It takes eight bytes, shows without the rule whether it contains
//! information (a full bucket does not), refills without a write, and represents debt without a sign.

use crate::algorithms::Admission;
use weir_protocol::quota::Quota;
use weir_protocol::time::{SECOND_NS, Time};

/// A token bucket: the time at which it is full again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    full_at: Time,
}

/// The cost of a request in nanoseconds of refill, precomputed for one quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    cost: u64,
    /// Maximum nanoseconds of refill that may be missing afterwards.
    most: u64,
    /// Maximum nanoseconds of refill that may be missing before; more are cut to this.
    sane: u64,
}

impl Portion {
    pub(crate) fn of(quota: &Quota, cost: u32) -> Self {
        let (cost, most) = (quota.token_ns().saturating_mul(u64::from(cost)), quota.fill_ns());
        Self { cost, most, sane: most + debt_ns_max(quota) }
    }
}

/// Nanoseconds of refill that a bucket with `tokens` lacks.
pub(crate) fn missing_ns(quota: &Quota, tokens: u32) -> u64 {
    quota.token_ns().saturating_mul(u64::from(quota.burst().saturating_sub(tokens)))
}

impl Bucket {
    pub const FULL: Self = Self { full_at: Time::ZERO };

    pub const fn full_at(full_at: Time) -> Self {
        Self { full_at }
    }

    /// Time at which the bucket will be full.
    pub const fn refilled(self) -> Time {
        self.full_at
    }

    /// True if the bucket is full at `now`. Dropping it then loses nothing.
    pub fn is_full(self, now: Time) -> bool {
        self.full_at <= now
    }

    pub fn fill_ns(self, now: Time) -> u64 {
        self.full_at.nanos_since(now)
    }

    /// Takes `cost` tokens at `now`, if there are enough.
    ///
    /// A `now` earlier than one seen before makes the bucket look emptier, never fuller (invariant I8).
    pub fn take(self, quota: &Quota, cost: u32, now: Time) -> Admission<Self> {
        self.take_portion(&Portion::of(quota, cost), now)
    }

    #[inline]
    pub(crate) fn take_portion(self, portion: &Portion, now: Time) -> Admission<Self> {
        let after = self.full_at.max(now).min(now + portion.sane) + portion.cost;
        match after.nanos_since(now + portion.most) {
            0 => Admission::Taken(Self { full_at: after }),
            wait_ns => Admission::Short { wait_ns },
        }
    }

    /// [`Bucket::held_to`] with a precomputed limit: the bucket, lacking at least `missing_ns` nanoseconds of refill.
    #[inline]
    pub(crate) fn lacking(self, missing_ns: u64, now: Time) -> Self {
        Self { full_at: self.full_at.max(now + missing_ns) }
    }

    /// The bucket after `n` tokens are taken at `now`, even into debt, which is cut at the maximum but never reduced.
    #[must_use]
    pub fn charged(self, quota: &Quota, n: u32, now: Time) -> Self {
        let owes = self.full_at.max(now) + quota.token_ns().saturating_mul(u64::from(n));
        let deepest = Self::FULL.capped(quota, i64::MIN, now);
        Self { full_at: owes.min(deepest.full_at) }.max(self)
    }

    /// The bucket after `cost` tokens are given back; at most full.
    #[must_use]
    pub fn give_back(self, quota: &Quota, cost: u32) -> Self {
        let ns = quota.token_ns().saturating_mul(u64::from(cost));
        Self { full_at: Time::from_nanos(self.full_at.as_nanos().saturating_sub(ns)) }
    }

    /// The bucket capped at `level_milli` thousandths of a token, which may be negative (debt). Never raises the level.
    #[must_use]
    pub fn capped(self, quota: &Quota, level_milli: i64, now: Time) -> Self {
        let missing_milli = i128::from(quota.burst()) * 1_000 - i128::from(level_milli);
        let missing_ns = missing_milli.max(0) * i128::from(quota.token_ns()) / 1_000;
        let missing_ns = u64::try_from(missing_ns).unwrap_or(u64::MAX);
        Self { full_at: self.full_at.max(now + missing_ns.min(deepest_ns(quota))) }
    }

    /// The bucket with at most `tokens` in it at `now`.
    #[must_use]
    pub fn held_to(self, quota: &Quota, tokens: u32, now: Time) -> Self {
        self.lacking(missing_ns(quota, tokens), now)
    }

    /// Takes `cost` tokens of a fair share at `now`. The share is a bucket of burst / `pops`, but at least `cost`
    /// tokens, that refills at rate / `pops`. It is this bucket, charged `pops` times the tokens.
    pub fn take_share(self, quota: &Quota, cost: u32, pops: u32, now: Time) -> Admission<Self> {
        let worth = u64::from(pops.max(1)).saturating_mul(u64::from(cost));
        let cost = quota.token_ns().saturating_mul(worth);
        self.take_portion(&Portion { cost, most: quota.fill_ns().max(cost), ..Portion::of(quota, 1) }, now)
    }

    /// Takes `cost` tokens at `now` from a bucket that refills at rate / `divisor`. It is this bucket, which must have
    /// `cost` tokens and is charged `divisor` times as many.
    pub fn take_slowly(self, quota: &Quota, cost: u32, divisor: u32, now: Time) -> Admission<Self> {
        let more = u64::from(divisor.saturating_sub(1)).saturating_mul(u64::from(cost));
        let after = |after: Self| Self { full_at: after.full_at + quota.token_ns().saturating_mul(more) };
        self.take(quota, cost, now).map(after)
    }

    /// Whole tokens at `now`.
    pub fn tokens(self, quota: &Quota, now: Time) -> u32 {
        let level_ns = quota.fill_ns().saturating_sub(self.fill_ns(now));
        u32::try_from(level_ns / quota.token_ns()).unwrap_or(u32::MAX)
    }

    /// Missing tokens at `now`, rounded up.
    pub fn missing(self, quota: &Quota, now: Time) -> u64 {
        self.fill_ns(now).div_ceil(quota.token_ns())
    }
}

/// Maximum debt of a bucket, in nanoseconds of refill: that of a burst at [`DEBT_BURSTS`] POPs at once, but at least a
/// minute and at most a day. It limits what a nonsensical message or a broken clock costs a client. The budget keeps
/// the whole debt, and grants accordingly.
fn debt_ns_max(quota: &Quota) -> u64 {
    quota.fill_ns().saturating_mul(DEBT_BURSTS).clamp(60 * SECOND_NS, 86_400 * SECOND_NS)
}

/// Longest time until a bucket is full, in nanoseconds.
pub(crate) fn deepest_ns(quota: &Quota) -> u64 {
    quota.fill_ns().saturating_add(debt_ns_max(quota))
}

const DEBT_BURSTS: u64 = 512;

/// A client's quota status under a rule, after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStatus {
    pub remaining: u32,
    /// Nanoseconds until there is one token more than now; zero when the bucket is full.
    pub more_ns: u64,
    /// Nanoseconds until the bucket is full; after a refusal, equal to `more_ns`.
    pub full_ns: u64,
}

impl BucketStatus {
    /// The status at `now` of an admitted client. In debt, the first token comes once the debt is paid.
    pub(crate) fn allowed(bucket: Bucket, quota: &Quota, now: Time) -> Self {
        let full_ns = bucket.fill_ns(now);
        let debt_ns = full_ns.saturating_sub(quota.fill_ns());
        let more_ns = match full_ns.saturating_sub(debt_ns) % quota.token_ns() {
            0 => full_ns.min(debt_ns.saturating_add(quota.token_ns())),
            part => part,
        };
        Self { remaining: bucket.tokens(quota, now), more_ns, full_ns }
    }

    /// The status after a refused request: the client gets nothing for `wait_ns`.
    pub(crate) fn refused(wait_ns: u64) -> Self {
        Self { remaining: 0, more_ns: wait_ns, full_ns: wait_ns }
    }

    /// Nanoseconds until the next request may pass if nothing is left, else until the bucket is full.
    pub fn reset_ns(&self) -> u64 {
        if self.remaining == 0 { self.more_ns } else { self.full_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::quota::{Period, Rate};

    const T0: Time = Time::from_nanos(1_000_000_000_000);

    fn quota(count: u32, burst: u32) -> Quota {
        Quota::new(Rate::new(count, Period::Second).unwrap(), burst).unwrap()
    }

    #[test]
    fn a_cost_of_n_takes_as_much_as_n_requests() {
        let quota = quota(10, 12);
        let times = |n: u32, take: fn(Bucket, &Quota) -> Admission<Bucket>| {
            (0..n).try_fold(Bucket::FULL, |bucket, _| match take(bucket, &quota) {
                Admission::Taken(after) => Some(after),
                Admission::Short { .. } => None,
            })
        };
        assert_eq!(times(1, |b, q| b.take_share(q, 3, 4, T0)), times(3, |b, q| b.take_share(q, 1, 4, T0)));
        assert_eq!(times(1, |b, q| b.take_slowly(q, 3, 2, T0)), times(3, |b, q| b.take_slowly(q, 1, 2, T0)));
        // A share of three has three tokens and then no more. A request for five takes them from a full share.
        assert_eq!(times(2, |b, q| b.take_share(q, 3, 4, T0)), None);
        assert!(times(1, |b, q| b.take_share(q, 5, 4, T0)).is_some());
        assert!(matches!(
            times(1, |b, q| b.take_share(q, 1, 4, T0)).map(|b| b.take_share(&quota, 5, 4, T0)),
            Some(Admission::Short { .. })
        ));
    }

    // I3
    #[test]
    fn a_cap_lowers_and_never_raises() {
        let quota = quota(10, 10);
        let capped = Bucket::FULL.capped(&quota, 2_500, T0);
        assert_eq!(capped.tokens(&quota, T0), 2);
        assert_eq!(capped.capped(&quota, 9_000, T0), capped);
        let debt = capped.capped(&quota, -5_000, T0);
        assert_eq!(debt.take(&quota, 1, T0), Admission::Short { wait_ns: 600_000_000 });
        let nonsense = Bucket::FULL.capped(&quota, i64::MIN, T0);
        assert_eq!(nonsense.fill_ns(T0), quota.fill_ns() + debt_ns_max(&quota));
    }

    proptest! {
        /// The exact model: a level in token-nanoseconds that refills by one per nanosecond.
        // I3
        #[test]
        fn a_token_bucket_agrees_with_a_plain_level(
            count in 1u32..2_000, burst in 1u32..50,
            steps in prop::collection::vec((0u64..200_000_000, 1u32..4), 1..300),
        ) {
            let (quota, mut bucket, mut now) = (quota(count, burst), Bucket::FULL, T0);
            let mut level = quota.fill_ns();
            for (step, cost) in steps {
                now += step;
                level = (level + step).min(quota.fill_ns());
                let price = quota.token_ns() * u64::from(cost);
                let fits = level >= price;
                match bucket.take(&quota, cost, now) {
                    Admission::Taken(after) => { prop_assert!(fits); bucket = after; level -= price; }
                    Admission::Short { wait_ns } => {
                        prop_assert!(!fits);
                        if cost <= burst { prop_assert_eq!(wait_ns, price - level); }
                    }
                }
                prop_assert_eq!(u64::from(bucket.tokens(&quota, now)), level / quota.token_ns());
            }
        }
    }
}

#[cfg(test)]
mod debt_tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::time::SECOND_NS;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

    #[test]
    fn debt_is_bounded_and_an_earlier_clock_does_not_pay_it() {
        let quota = Quota::new("1/s".parse().unwrap(), 4).unwrap();
        let deep = Bucket::FULL.charged(&quota, u32::MAX, T0).charged(&quota, u32::MAX, T0);
        assert_eq!(deep.fill_ns(T0), (4 + 4 * 512) * SECOND_NS);
        assert_eq!(deep.charged(&quota, 1, Time::ZERO), deep);
    }

    proptest! {
        /// A charge that fits leaves the same bucket as a take. The next token comes after the wait of a short take.
        #[test]
        fn a_charge_agrees_with_takes(
            token_ns in 1_000u64..5_000, burst in 1u32..9,
            steps in prop::collection::vec((0u64..8_000, 0u32..20), 1..60),
        ) {
            let quota = Quota::from_token_ns(token_ns, burst).unwrap();
            let (mut bucket, mut now) = (Bucket::FULL, T0);
            for (step, n) in steps {
                now += step;
                let after = bucket.charged(&quota, n, now);
                if let Admission::Taken(taken) = bucket.take(&quota, n, now) {
                    prop_assert_eq!(after, taken);
                }
                bucket = after;
                let BucketStatus { remaining, more_ns, full_ns } = BucketStatus::allowed(bucket, &quota, now);
                let wait_ns = |n| match bucket.take(&quota, n, now) {
                    Admission::Taken(_) => 0,
                    Admission::Short { wait_ns } => wait_ns,
                };
                prop_assert_eq!(wait_ns(remaining), if remaining == 0 { wait_ns(0) } else { 0 });
                prop_assert_eq!(more_ns, if remaining < burst { wait_ns(remaining + 1) } else { full_ns });
                prop_assert_eq!(full_ns, wait_ns(burst));
            }
        }
    }
}
