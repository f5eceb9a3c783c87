//! A client's quota status under a rule.

use crate::buckets::Bucket;
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

/// A client's quota status under a rule, after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStatus {
    /// Whole tokens left.
    pub remaining: u32,
    /// Nanoseconds until there is one more token than now; zero when the bucket is full.
    pub more_ns: u64,
    /// Nanoseconds until the bucket is full; after a refusal, the same as `more_ns`.
    pub full_ns: u64,
}

impl BucketStatus {
    /// The status after an allowed request.
    pub(crate) fn allowed(bucket: Bucket, quota: &Quota, now: Time) -> Self {
        let full_ns = bucket.fill_ns(now);
        let more_ns = match full_ns % quota.token_ns() {
            0 => full_ns.min(quota.token_ns()),
            part => part,
        };
        Self { remaining: bucket.tokens(quota, now), more_ns, full_ns }
    }

    /// The status after a refused request: the client has nothing before `wait_ns` have passed.
    pub(crate) fn refused(wait_ns: u64) -> Self {
        Self { remaining: 0, more_ns: wait_ns, full_ns: wait_ns }
    }

    /// Nanoseconds until the quota's reset. If nothing is left, that is when the next request may pass;
    /// otherwise, when the quota is whole again.
    pub fn reset_ns(&self) -> u64 {
        if self.remaining == 0 { self.more_ns } else { self.full_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::TakeResult;
    use weir_protocol::quota::{Period, Rate};

    #[test]
    fn the_next_token_is_told_to_the_nanosecond() {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 3).unwrap();
        let t0 = Time::from_nanos(1_000);
        let TakeResult::Taken(bucket) = Bucket::FULL.take(&quota, 1, t0) else { panic!("full") };
        let standing = BucketStatus::allowed(bucket, &quota, t0);
        assert_eq!(standing, BucketStatus { remaining: 2, more_ns: 100_000_000, full_ns: 100_000_000 });
        let standing = BucketStatus::allowed(bucket, &quota, t0 + 30_000_000);
        assert_eq!(standing, BucketStatus { remaining: 2, more_ns: 70_000_000, full_ns: 70_000_000 });
        let full = BucketStatus::allowed(bucket, &quota, t0 + 100_000_000);
        assert_eq!(full, BucketStatus { remaining: 3, more_ns: 0, full_ns: 0 });
    }
}
