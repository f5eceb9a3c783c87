//! The leaky bucket as a queue: requests leave at a steady rate, and a limited number wait for their turn.
//!
//! The state is a [`Bucket`] that is full when the queue is empty: the time at which the last turn is over (the virtual
//! scheduling algorithm, ITU-T I.371, annex A). The wait for a turn follows from it, so no queue is stored.

use crate::algorithms::{Admission, Bucket, NEVER_NS};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueTurn {
    pub(super) after: Bucket,
    /// Nanoseconds until the turn comes; 0 if at once.
    pub(super) hold_ns: u64,
}

/// Takes a turn of `n` times the usual length at `now`, if there is a place.
pub(super) fn take(quota: &Quota, bucket: Bucket, n: u32, now: Time) -> Admission<QueueTurn> {
    if n > quota.burst() {
        return Admission::Short { wait_ns: NEVER_NS };
    }
    let begins = bucket.refilled().max(now);
    let ends = begins + quota.token_ns().saturating_mul(u64::from(n));
    match ends.nanos_since(now + quota.fill_ns()) {
        0 => Admission::Taken(QueueTurn { after: Bucket::full_at(ends), hold_ns: begins.nanos_since(now) }),
        wait_ns => Admission::Short { wait_ns },
    }
}

/// Gives back the turn of `n` tokens that left the bucket as `taken`. Does nothing if another was taken since.
#[must_use]
pub(super) fn give_back(quota: &Quota, bucket: Bucket, taken: Bucket, n: u32) -> Bucket {
    if bucket == taken { bucket.give_back(quota, n) } else { bucket }
}

/// A POP's fair share of `quota` among `pops` POPs, with at least one place.
pub(crate) fn shared_by(quota: &Quota, pops: u32) -> Quota {
    let places = quota.burst().checked_div(pops).unwrap_or_default().max(1);
    Quota::from_token_ns(quota.token_ns().saturating_mul(pops.into()), places).unwrap_or(*quota)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::BucketStatus;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const T0: Time = Time::from_nanos(1_000);
    const TURN_NS: u64 = 1_000;

    fn turn(answer: Admission<QueueTurn>) -> QueueTurn {
        let Admission::Taken(turn) = answer else { panic!("{answer:?}") };
        turn
    }

    #[test]
    fn a_turn_is_given_back_only_by_the_last() {
        let quota = Quota::from_token_ns(TURN_NS, 4).unwrap();
        let first = turn(take(&quota, Bucket::FULL, 1, T0)).after;
        let second = turn(take(&quota, first, 2, T0)).after;
        assert_eq!(give_back(&quota, second, first, 1), second);
        assert_eq!(give_back(&quota, second, second, 2), first);
        assert_eq!(turn(take(&quota, give_back(&quota, first, first, 1), 1, T0)).hold_ns, 0);
    }

    proptest! {
        /// The exact model: a queue of the tokens that have not left, each with the time at which it leaves.
        // I3
        #[test]
        fn a_leaky_bucket_agrees_with_a_queue(
            queue in 0u32..8, steps in prop::collection::vec((0u64..3_000, 1u32..10), 1..200),
        ) {
            let quota = Quota::from_token_ns(TURN_NS, queue + 1).unwrap();
            let (mut bucket, mut now) = (Bucket::FULL, T0);
            // The times at which turns end. A token waits or has its turn until then.
            let mut ends = VecDeque::<Time>::new();
            for (step, n) in steps {
                now += step;
                let busy_ns = |now: Time| ends.back().map_or(0, |end| end.nanos_since(now));
                let fits = |now: Time| {
                    busy_ns(now) + u64::from(n) * TURN_NS <= u64::from(queue + 1) * TURN_NS
                };
                match take(&quota, bucket, n, now) {
                    Admission::Taken(turn) => {
                        prop_assert!(fits(now));
                        prop_assert_eq!(turn.hold_ns, busy_ns(now));
                        bucket = turn.after;
                        let begins = now + turn.hold_ns;
                        ends.extend((1..=u64::from(n)).map(|k| begins + k * TURN_NS));
                    }
                    Admission::Short { wait_ns: NEVER_NS } => prop_assert!(n > queue + 1),
                    Admission::Short { wait_ns } => {
                        prop_assert!(fits(now + wait_ns) && !fits(now + (wait_ns - 1)));
                    }
                }
                ends.retain(|end| *end > now);
                // A place is free unless a token whose turn is not over takes it.
                let places = usize::try_from(queue + 1).unwrap();
                let status = BucketStatus::allowed(bucket, &quota, now);
                prop_assert_eq!(usize::try_from(status.remaining).unwrap(), places - ends.len());
                prop_assert_eq!(status.more_ns, ends.front().map_or(0, |end| end.nanos_since(now)));
                prop_assert_eq!(status.full_ns, ends.back().map_or(0, |end| end.nanos_since(now)));
            }
        }
    }
}
