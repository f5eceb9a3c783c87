//! Decisions where the slots are in memory that the program's threads share, as in the dynamic module.

use std::hint::black_box;

use weir_limiter::check::DecisionKind;
use weir_limiter::engine::{Effect, Engine, Host, OpenRequest, RequestDecision, RequestStep, SharedValues};
use weir_limiter::table::{SharedSlots, Slots, SlotsHandle, TableIdentity};
use weir_protocol::messages::{Message as _, Reply};
use weir_protocol::time::Time;

use super::decisions::{BEGIN, GENEROUS, SLOTS, configuration, of_two_keys, per_address};
use super::host::Post;
use super::tables::{KNOWN, Round};
use super::{ADDRESSES, Case, Operation};

pub(super) const CASES: &[Case] = &[
    Case { group: "own memory", name: "hit, 10000 addresses in turn", start: || hit(1, KNOWN) },
    Case { group: "own memory", name: "hit, 10000 addresses, 4 rules", start: || hit(4, KNOWN) },
    Case { group: "own memory", name: "allowed, 1 rule", start: || hit(1, 1) },
    Case { group: "own memory", name: "allowed, 4 rules", start: || hit(4, 1) },
    Case { group: "own memory", name: "allowed, 4 rules of 2 keys", start: hit_of_two_keys },
    Case { group: "own memory", name: "allowed, 1 rule, in a fleet", start: || hit_in_a_fleet(1, 2) },
    Case { group: "own memory", name: "allowed, 1 rule, watched", start: || hit_in_a_fleet(POPS, PAST_SHARE) },
    Case { group: "own memory", name: "miss, a slot full of debt", start: full_of_debt },
];

/// So many POPs that a key is soon past its share at one of them, ...
const POPS: u32 = 1_000;
/// ... and the number of requests after which it certainly is.
const PAST_SHARE: u32 = 2_000;

/// A number of rules, and of addresses, each of which is known.
fn hit(rules: usize, addresses: u32) -> Operation {
    let worker = Worker::new(&configuration(&per_address(rules, GENEROUS), SLOTS));
    known(worker, addresses, 2)
}

/// Four rules, two for each of two keys.
fn hit_of_two_keys() -> Operation {
    known(Worker::new(&configuration(&of_two_keys(), SLOTS)), 1, 2)
}

/// One of a number of POPs, which counts what it takes of its fair share; a key after a number of requests.
fn hit_in_a_fleet(pops: u32, requests: u32) -> Operation {
    let sync = r#"{"cluster": "weir-sync", "pop": "fra1"}"#;
    let alone = String::from_utf8(configuration(&per_address(1, GENEROUS), SLOTS)).expect("JSON");
    let together = alone.replacen('{', &format!(r#"{{"sync": {sync},"#), 1);
    let mut worker = Worker::new(together.as_bytes());
    worker.observe_version(pops);
    known(worker, 1, requests)
}

fn known(mut worker: Worker, addresses: u32, requests: u32) -> Operation {
    let mut round = Round::new(addresses, move |request, now| worker.decide(request, now));
    (0..requests * addresses).for_each(|_| assert_eq!(round.decide(), DecisionKind::Allow));
    round.operation()
}

/// A newcomer finds only keys in debt, and no token in what newcomers share.
fn full_of_debt() -> Operation {
    let mut worker = Worker::new(&configuration(&per_address(1, r#""rate": "1/d", "burst": 1"#), 64));
    let mut round = Round::new(ADDRESSES, move |request, now| worker.decide(request, now));
    for _ in 0..8_192 {
        round.decide();
    }
    assert_eq!(round.decide(), DecisionKind::Limit, "the table is in the state to be measured");
    round.operation()
}

/// A worker of such a host.
struct Worker {
    edge: Engine,
    seat: Seat,
}

impl Worker {
    fn new(configuration: &[u8]) -> Self {
        let mut seat = Seat { slots: SlotsHandle::new(SharedSlots::new(1, 1)), values: SharedValues::default() };
        let (edge, _) = Engine::configure(configuration, &mut seat, BEGIN).expect("a good configuration");
        Self { edge, seat }
    }

    /// Reports, and gets this number of POPs in the reply.
    fn observe_version(&mut self, pops: u32) {
        for effect in self.edge.tick(&mut self.seat, BEGIN) {
            let Effect::Call(call) = effect else { continue };
            let reply = Reply { sequence: call.number, pops, ..Reply::default() };
            self.edge.answer(call.number, Ok(reply.encode()), &mut self.seat, BEGIN);
        }
    }

    fn decide(&mut self, request: &mut Post<'_>, now: Time) -> DecisionKind {
        let mut open = OpenRequest::new(1);
        let RequestDecision { step, .. } = self.edge.request(&mut open, black_box(request), &mut self.seat, now);
        match black_box(step) {
            RequestStep::Continue => DecisionKind::Allow,
            RequestStep::Answer(_) => DecisionKind::Limit,
            RequestStep::Hold | RequestStep::Call(_) | RequestStep::Take(_) => DecisionKind::Wait,
        }
    }
}

/// The slots that it shares with others.
struct Seat {
    slots: SlotsHandle,
    values: SharedValues,
}

impl Host for Seat {
    fn identity(&mut self) -> TableIdentity {
        TableIdentity::of(&[7; 20])
    }

    fn with_values(&mut self, act: &mut dyn FnMut(&mut SharedValues)) {
        act(&mut self.values);
    }

    fn slots(&mut self) -> &mut dyn Slots {
        &mut self.slots
    }

    fn open(&mut self, slots: u32) {
        self.slots = SlotsHandle::new(SharedSlots::new(slots, 1));
    }

    fn random(&mut self) -> u64 {
        1
    }

    fn unix_ns(&mut self) -> u64 {
        0
    }
}
