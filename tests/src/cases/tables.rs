//! Decisions about many clients, one request each: what the table finds.

use std::hint::black_box;
use std::mem::ManuallyDrop;

use weir_limiter::decision::Outcome;
use weir_limiter::limiter::Limiter;
use weir_limiter::slot::KEYS_PER_SLOT;
use weir_limiter::table::{LocalSlots, Slots};

use super::decisions::{BEGIN, GENEROUS, SLOTS, STEP_NS, limiter, per_address};
use super::host::{Forgetful, Post};
use super::{ADDRESSES, Case, Operation, address};

/// Clients that a table knows.
const KNOWN: u32 = 10_000;
/// Slots of a table that is to be full.
const FEW_SLOTS: u32 = 64;

pub(super) const CASES: &[Case] = &[
    Case { group: "table", name: "hit, 10000 addresses in turn", start: hit },
    Case { group: "table", name: "miss, an empty slot", start: miss },
    Case { group: "table", name: "miss, a slot full of refilled keys", start: refilled },
    Case { group: "table", name: "miss, a slot full of debt", start: full_of_debt },
];

/// Every key is there, and none shares much with the one before.
fn hit() -> Operation {
    let mut round = Round::new(KNOWN, GENEROUS, LocalSlots::new(SLOTS));
    (0..KNOWN).for_each(|_| assert_eq!(round.decide(), Outcome::Allow));
    round.operation()
}

/// No key is there, nor any other.
fn miss() -> Operation {
    Round::new(ADDRESSES, GENEROUS, Forgetful::new(SLOTS)).operation()
}

/// A newcomer takes the place of a key that has refilled: what rotating addresses meet.
fn refilled() -> Operation {
    full(r#""rate": "1000000/s", "burst": 1"#, Outcome::Allow)
}

/// A newcomer finds only keys in debt, and no token in what newcomers share.
fn full_of_debt() -> Operation {
    full(r#""rate": "1/d", "burst": 1"#, Outcome::Limit)
}

/// A full table, in which a newcomer ends in `outcome`.
fn full(quota: &str, outcome: Outcome) -> Operation {
    let mut round = Round::new(ADDRESSES, quota, LocalSlots::new(FEW_SLOTS));
    let keys = FEW_SLOTS * u32::try_from(KEYS_PER_SLOT).expect("small");
    // A slot tells three times as many debtors apart as it has places, and by chance some get fewer keys than others:
    // eight times as many fill them all.
    for _ in 0..8 * keys {
        round.decide();
    }
    assert_eq!(round.decide(), outcome, "the table is in the state to be measured");
    round.operation()
}

/// Requests from many addresses in turn.
struct Round<S> {
    addresses: Vec<Vec<u8>>,
    next: usize,
    limiter: Limiter,
    slots: S,
    now: weir_wire::time::Time,
}

impl<S: Slots + 'static> Round<S> {
    fn new(addresses: u32, quota: &str, slots: S) -> Self {
        let addresses = (0..addresses).map(address).collect();
        Self { addresses, next: 0, limiter: limiter(&per_address(1, quota)), slots, now: BEGIN }
    }

    fn decide(&mut self) -> Outcome {
        self.now += STEP_NS;
        self.next = if self.next + 1 < self.addresses.len() { self.next + 1 } else { 0 };
        let mut request = Post::from(&self.addresses[self.next]);
        let decision = self.limiter.decide(black_box(&mut request), &mut self.slots, self.now);
        // A host takes a decision apart, which leaves nothing to be dropped.
        black_box(ManuallyDrop::new(decision)).outcome()
    }

    fn operation(mut self) -> Operation {
        Box::new(move || {
            self.decide();
        })
    }
}
