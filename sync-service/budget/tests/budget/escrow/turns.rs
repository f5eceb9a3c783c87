//! Acquires from turns give the same as one queue with all requests of all POPs.

use std::collections::VecDeque;

use proptest::prelude::*;
use weir_budget::escrow::{Claim, Escrow, NO_LEASE};
use weir_budget::store_clock::StoreClock;
use weir_protocol::messages::Leased;
use weir_protocol::quota::Period;
use weir_protocol::refill_policy::RefillPolicy;

use super::{DAY, SECOND_US, Store, claim, quota};

/// A turn each 100 ms, and a queue of three.
fn turns() -> Store {
    Store::new(RefillPolicy::Queue, quota(10, Period::Second, 4))
}

#[test]
fn nothing_is_on_record_but_how_long_the_turns_take() {
    let mut store = turns();
    let acquired = store.acquire(0, "a", &[claim(1, 0, 1), claim(1, 0, 1), claim(2, 0, 9)]);
    assert_eq!((acquired.given, acquired.deficit_ns), (2, 200_000_000));
    // Tokens reported as spent, returned or held change nothing.
    let held = Claim { held_us: Some(1), ..claim(3, 7, 0) };
    let acquired = store.acquire(0, "a", &[claim(1, 1, 1), held]);
    assert_eq!((acquired.given, acquired.deficit_ns, acquired.leases), (0, 200_000_000, vec![NO_LEASE; 2]));
    // A claim that wants nothing gets the current state.
    let acquired = store.acquire(50_000, "a", &[claim(1, 0, 0)]);
    assert_eq!((acquired.given, acquired.deficit_ns), (0, 150_000_000));
    assert_eq!(acquired.leases[0], Leased { wait_ms: 150, left: 2, ..Leased::of(0, 2_000) });
    assert_eq!(store.escrow.full_us(), DAY + 200_000);
    store.acquire(SECOND_US, "a", &[]);
    assert_eq!(store.escrow.deficit_ns(), 0);
}

#[test]
fn a_clock_that_steps_leaves_the_queue_as_it_was() {
    let mut store = turns();
    assert_eq!(store.given(0, claim(0, 0, 4)), 4);
    let (hour, request) = (3_600 * SECOND_US, turns().request(&[claim(9, 0, 1)]));
    // It jumps ahead, as the one that acquires has observed.
    let mut clock = StoreClock::new(DAY - hour, 0);
    clock.observe(0, 0, DAY - hour);
    assert_eq!(clock.observe(0, 0, DAY + hour), Some(2 * hour));
    let jumped = clock.bounds(0).at(DAY + hour).expect("a time within its bounds");
    for time in [(DAY - hour).into(), jumped] {
        let answer = store.escrow.acquire(time, "a", &request);
        assert_eq!((answer.given, answer.leases[0].wait_ms), (0, 100));
    }
}

/// A queue that keeps each request that waits in it, with the time at which its turn is over, in nanoseconds.
struct Queue {
    places: u64,
    turn_ns: u64,
    /// When each usual turn in the queue ends.
    ends: VecDeque<u64>,
}

impl Queue {
    /// When the turn of a request for `n` begins, if it gets one at `now_ns`.
    fn take(&mut self, now_ns: u64, n: u64) -> Option<u64> {
        self.ends.retain(|end_ns| *end_ns > now_ns);
        let begins_ns = self.ends.back().copied().unwrap_or(now_ns);
        let room_ns = (self.places * self.turn_ns).checked_sub(begins_ns - now_ns)?;
        (n * self.turn_ns <= room_ns).then(|| {
            self.ends.extend((1..=n).map(|k| begins_ns + k * self.turn_ns));
            begins_ns
        })
    }
}

proptest! {
    /// Turns that are odd parts of a second: waits are those of the queue, rounded up to a millisecond and no more.
    // I6
    #[test]
    fn it_gives_what_a_queue_gives_that_sees_all_requests(
        rate in 1..3_000_u32, places in 1..9_u32,
        steps in prop::collection::vec((0..60_000_u64, 1..10_u32), 1..200),
    ) {
        let quota = quota(rate, Period::Second, places);
        let mut queue = Queue { places: places.into(), turn_ns: quota.token_ns(), ends: VecDeque::new() };
        let (mut store, mut at_us) = (Store::new(RefillPolicy::Queue, quota), 0);
        for (wait_us, n) in steps {
            at_us += wait_us * 1_000 / u64::from(rate);
            // A store may forget what is over.
            if store.escrow.full_us() <= DAY + at_us {
                store.escrow = Escrow::default();
            }
            let acquired = store.acquire(at_us, "a", &[claim(at_us, 0, n)]);
            let Leased { charged, wait_ms, left, .. } = acquired.leases[0];
            if let Some(begins_ns) = queue.take(at_us * 1_000, n.into()) {
                prop_assert_eq!(charged, u64::from(n));
                prop_assert_eq!(wait_ms, (begins_ns - at_us * 1_000).div_ceil(1_000_000));
            } else {
                prop_assert_eq!(charged, 0);
                let fits = |at_ns: u64| {
                    let ends = queue.ends.clone();
                    Queue { ends, ..queue }.take(at_ns, n.into()).is_some()
                };
                let at_ns = at_us * 1_000 + wait_ms * 1_000_000;
                prop_assert!(n > places || fits(at_ns) && !fits(at_ns - 1_000_000));
            }
            let busy = queue.ends.iter().filter(|end_ns| **end_ns > at_us * 1_000).count();
            prop_assert_eq!(u64::from(left) + busy as u64, u64::from(places));
        }
    }
}
