//! Buckets in debt, from costs that are known only after the request.

use crate::buckets::{Bucket, BucketStatus};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

/// The quota status at `now`. In debt, the first token comes once the debt is paid.
pub(super) fn standing(bucket: Bucket, quota: &Quota, now: Time) -> BucketStatus {
    let full_ns = bucket.fill_ns(now);
    let debt_ns = full_ns.saturating_sub(quota.fill_ns());
    let more_ns = match full_ns.saturating_sub(debt_ns) % quota.token_ns() {
        0 => full_ns.min(debt_ns.saturating_add(quota.token_ns())),
        part => part,
    };
    BucketStatus { remaining: bucket.tokens(quota, now), more_ns, full_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::TakeResult;
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
        /// A charge that fits leaves the same bucket as a take, and the next token comes when a take says that it does.
        #[test]
        fn agrees_with_takes(
            token_ns in 1_000u64..5_000, burst in 1u32..9,
            steps in prop::collection::vec((0u64..8_000, 0u32..20), 1..60),
        ) {
            let quota = Quota::from_token_ns(token_ns, burst).unwrap();
            let (mut bucket, mut now) = (Bucket::FULL, T0);
            for (step, n) in steps {
                now += step;
                let after = bucket.charged(&quota, n, now);
                if let TakeResult::Taken(taken) = bucket.take(&quota, n, now) {
                    prop_assert_eq!(after, taken);
                }
                bucket = after;
                let BucketStatus { remaining, more_ns, full_ns } = standing(bucket, &quota, now);
                let wait_ns = |n| match bucket.take(&quota, n, now) {
                    TakeResult::Taken(_) => 0,
                    TakeResult::Short { wait_ns } => wait_ns,
                };
                prop_assert_eq!(wait_ns(remaining), if remaining == 0 { wait_ns(0) } else { 0 });
                prop_assert_eq!(more_ns, if remaining < burst { wait_ns(remaining + 1) } else { full_ns });
                prop_assert_eq!(full_ns, wait_ns(burst));
            }
        }
    }
}
