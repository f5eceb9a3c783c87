//! The bucket that a POP has of each key: it admits no more than a burst and what refills, whatever weir-sync grants.

use std::time::Duration;

use weir_protocol::quota::Quota;

/// A bucket, which is full at first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// When it is full again, since the POP began.
    full_at: Duration,
}

impl Bucket {
    /// Takes as many of the `wanted` tokens as there are at `now`, and says how many that was.
    pub(super) fn take(&mut self, quota: Quota, now: Duration, wanted: u64) -> u64 {
        let lacking_ns = u64::try_from(self.full_at.saturating_sub(now).as_nanos()).unwrap_or(u64::MAX);
        let taken = wanted.min(quota.fill_ns().saturating_sub(lacking_ns) / quota.token_ns());
        self.full_at = self.full_at.max(now) + Duration::from_nanos(taken * quota.token_ns());
        taken
    }

    /// How many tokens it lacks at `now`.
    pub(super) fn missing(&self, quota: Quota, now: Duration) -> u64 {
        let lacking = self.full_at.saturating_sub(now).as_nanos();
        u64::try_from(lacking).unwrap_or(u64::MAX).div_ceil(quota.token_ns())
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::quota::{Period, Rate};

    use super::*;

    #[test]
    fn it_gives_its_burst_and_then_its_rate() {
        let quota = Rate::new(10, Period::Second).and_then(|rate| Quota::new(rate, 5).ok()).unwrap();
        let (mut bucket, at) = (Bucket::default(), |ms: u64| Duration::from_millis(1_000 + ms));
        assert_eq!(bucket.take(quota, at(0), 20), 5);
        assert_eq!((bucket.take(quota, at(99), 20), bucket.missing(quota, at(99))), (0, 5));
        assert_eq!((bucket.take(quota, at(250), 20), bucket.missing(quota, at(250))), (2, 5));
        assert_eq!(bucket.take(quota, at(9_000), 3), 3);
        assert_eq!(bucket.missing(quota, at(9_000)), 3);
    }
}
