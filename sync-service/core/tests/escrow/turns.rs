//! What acquires from turns do, and that it is what a queue does which sees all requests of all POPs at once.

use std::collections::VecDeque;

use proptest::prelude::*;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ENDED_KEPT_US, Escrow, NO_LEASE};
use weir_budget::store_clock::StoreClock;
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use crate::{SECOND_US, acquire, quota};

const NOW: u64 = 1 << 50;

fn turns(quota: Quota, claims: &[Claim]) -> AcquireRequest {
    AcquireRequest { refill_policy: RefillPolicy::Queue, ..acquire(quota, claims) }
}

/// Acquires from a turn each 100 ms, and a queue of three.
fn ask(store: &mut Escrow, at_us: u64, claims: &[Claim]) -> AcquireResult {
    store.acquire(NOW + at_us, "a", &turns(quota(10, Period::Second, 4), claims))
}

/// Turns for a request that wants `n`: none, and how long to wait for places, or all, how long until they come, and
/// places left.
fn wants(store: &mut Escrow, at_us: u64, n: u32) -> (u64, u64, u32) {
    let acquired = ask(store, at_us, &[Claim::of(at_us, 0, n)]);
    let lease = acquired.leases[0];
    assert_eq!((acquired.given, acquired.outstanding, lease.lease_ms), (lease.charged, 0, 2_000));
    (lease.charged, lease.wait_ms, lease.left)
}

#[test]
fn the_first_turn_comes_at_once_and_the_others_one_by_one() {
    let mut store = Escrow::default();
    let first = [0; 5].map(|_| wants(&mut store, 0, 1));
    assert_eq!(first, [(1, 0, 3), (1, 100, 2), (1, 200, 1), (1, 300, 0), (0, 100, 0)]);
    assert_eq!(wants(&mut store, 99_999, 1), (0, 1, 0), "a microsecond is a whole millisecond to wait");
    assert_eq!(wants(&mut store, 100_000, 1), (1, 300, 0));
    assert_eq!(wants(&mut store, 10 * SECOND_US, 1), (1, 0, 3), "and nothing is saved up");
}

#[test]
fn a_request_gets_a_turn_as_long_as_it_wants_or_none() {
    let mut store = Escrow::default();
    assert_eq!(wants(&mut store, 0, 3), (3, 0, 1));
    assert_eq!(wants(&mut store, 1, 2), (0, 100, 1));
    assert_eq!(wants(&mut store, 2, 1), (1, 300, 0));
    assert_eq!(wants(&mut store, 100_002, 5).0, 0, "more than the queue has places for");
}

#[test]
fn nothing_is_on_record_but_how_long_the_turns_take() {
    let mut store = Escrow::default();
    let acquired = ask(&mut store, 0, &[Claim::of(1, 0, 1), Claim::of(1, 0, 1), Claim::of(2, 0, 9)]);
    assert_eq!((acquired.given, acquired.deficit_ns, store.holders_len()), (2, 200_000_000, 0));
    // What is said to be spent, given back or held changes nothing.
    let held = Claim { held_us: Some(1), ..Claim::of(3, 7, 0) };
    let acquired = ask(&mut store, 0, &[Claim::of(1, 1, 1), held]);
    assert_eq!((acquired.given, acquired.deficit_ns, acquired.leases), (0, 200_000_000, vec![NO_LEASE; 2]));
    // What wants nothing is told how things stand.
    let acquired = ask(&mut store, 50_000, &[Claim::of(1, 0, 0)]);
    assert_eq!((acquired.given, acquired.deficit_ns), (0, 150_000_000));
    assert_eq!(acquired.leases[0], Leased { wait_ms: 150, left: 2, ..Leased::of(0, 2_000) });
    assert_eq!((store.full_us(), store.expires_us()), (NOW + 200_000, NOW + 200_000 + ENDED_KEPT_US));
    ask(&mut store, SECOND_US, &[]);
    assert_eq!(store.deficit_ns(), 0);
}

#[test]
fn a_clock_that_steps_leaves_the_queue_as_it_was() {
    let mut store = Escrow::default();
    assert_eq!(wants(&mut store, 0, 4), (4, 0, 0));
    let hour = 3_600 * SECOND_US;
    let (quota, claims) = (quota(10, Period::Second, 4), [Claim::of(9, 0, 1)]);
    let back = store.acquire(NOW - hour, "a", &turns(quota, &claims));
    assert_eq!((back.given, back.leases[0].wait_ms), (0, 100));
    // It jumps ahead, as the one that acquires has seen.
    let mut clock = StoreClock::new(NOW - hour, 0);
    clock.observe(0, 0, NOW - hour);
    assert_eq!(clock.observe(0, 0, NOW + hour), Some(2 * hour));
    let jumped = clock.bounds(0).at(NOW + hour).expect("the clock was heard");
    let ahead = store.acquire(jumped, "a", &turns(quota, &claims));
    assert_eq!((ahead.given, ahead.leases[0].wait_ms), (0, 100));
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
        let (mut store, mut at_us) = (Escrow::default(), 0);
        for (wait_us, n) in steps {
            at_us += wait_us * 1_000 / u64::from(rate);
            // A store may forget what is over.
            if store.full_us() <= NOW + at_us {
                store = Escrow::default();
            }
            let acquired = store.acquire(NOW + at_us, "a", &turns(quota, &[Claim::of(at_us, 0, n)]));
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
