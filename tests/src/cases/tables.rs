//! Decisions about many clients, one request each: what the table finds.

use std::hint::black_box;
use std::mem::ManuallyDrop;

use weir_limiter::check::DecisionKind;
use weir_limiter::limiter::Limiter;
use weir_limiter::table::slot::KEYS_PER_SLOT;
use weir_limiter::table::{HashSecret, TableIdentity};
use weir_protocol::time::Time;
use weir_rules::config::PluginConfig;

use super::decisions::{Alone, BEGIN, GENEROUS, SLOTS, STEP_NS, configuration, per_address};
use super::host::{Forgetful, Post};
use super::{ADDRESSES, Case, Operation, address};

/// Clients that a table knows.
pub(super) const KNOWN: u32 = 10_000;
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
    let mut round = Round::new(KNOWN, at_an_edge(GENEROUS, SLOTS));
    (0..KNOWN).for_each(|_| assert_eq!(round.decide(), DecisionKind::Allow));
    round.operation()
}

/// No key is there, nor any other. No edge has such a table, so its limiter is asked.
fn miss() -> Operation {
    let config = PluginConfig::parse(&configuration(&per_address(1, GENEROUS), SLOTS)).expect("good rules");
    let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id: 1 };
    let (mut limiter, mut slots) = (Limiter::new(config.rules, identity, None), Forgetful::new(SLOTS));
    let decide = move |request: &mut Post<'_>, now| {
        // A host takes a decision apart, which leaves nothing to be dropped.
        black_box(ManuallyDrop::new(limiter.decide(black_box(request), &mut slots, now))).outcome()
    };
    Round::new(ADDRESSES, decide).operation()
}

/// One rule per address at an edge with this number of slots.
fn at_an_edge(quota: &str, slots: u32) -> impl FnMut(&mut Post<'_>, Time) -> DecisionKind + use<> {
    let mut alone = Alone::new(&per_address(1, quota), slots);
    move |request, now| alone.decide(request, now)
}

/// A newcomer takes the place of a key that has refilled: what rotating addresses meet.
fn refilled() -> Operation {
    full(r#""rate": "1000000/s", "burst": 1"#, DecisionKind::Allow)
}

/// A newcomer finds only keys in debt, and no token in what newcomers share.
fn full_of_debt() -> Operation {
    full(r#""rate": "1/d", "burst": 1"#, DecisionKind::Limit)
}

/// A full table, in which a newcomer ends in `outcome`.
fn full(quota: &str, outcome: DecisionKind) -> Operation {
    let mut round = Round::new(ADDRESSES, at_an_edge(quota, FEW_SLOTS));
    let keys = FEW_SLOTS * u32::try_from(KEYS_PER_SLOT).expect("small");
    // A slot distinguishes three times as many debtors as it has places, and by chance some get fewer keys than others:
    // eight times as many fill them all.
    for _ in 0..8 * keys {
        round.decide();
    }
    assert_eq!(round.decide(), outcome, "the table is in the state to be measured");
    round.operation()
}

/// Requests from many addresses in turn.
pub(super) struct Round<D> {
    addresses: Vec<Vec<u8>>,
    next: usize,
    decide: D,
    now: Time,
}

impl<D: FnMut(&mut Post<'_>, Time) -> DecisionKind + 'static> Round<D> {
    pub(super) fn new(addresses: u32, decide: D) -> Self {
        let addresses = (0..addresses).map(address).collect();
        Self { addresses, next: 0, decide, now: BEGIN }
    }

    pub(super) fn decide(&mut self) -> DecisionKind {
        self.now += STEP_NS;
        self.next = if self.next + 1 < self.addresses.len() { self.next + 1 } else { 0 };
        (self.decide)(&mut Post::from(&self.addresses[self.next]), self.now)
    }

    pub(super) fn operation(mut self) -> Operation {
        Box::new(move || {
            self.decide();
        })
    }
}
