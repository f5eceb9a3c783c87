//! Requests in flight that the fleet counts: whatever happens to messages and POPs, there are never more than the
//! limit, if none lasts longer than the rule says.

use proptest::prelude::*;
use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, Claim, Escrow};
use weir_limiter::decide::{Decision, EndAction};
use weir_limiter::key::HashSecret;
use weir_limiter::limiter::{Limiter, Reporter, TableIdentity};
use weir_limiter::table::LocalSlots;
use weir_protocol::messages::{Allowance, Message as _, Reply, Report, Settled};
use weir_protocol::time::Time;
use weir_rules::config::PluginConfig;
use weir_rules::request::{Attribute, Request};

const SECOND_US: u64 = 1_000_000;
const LIMIT: usize = 4;
/// After so long a request is over, whether its end is seen or not.
const EXPIRES_US: u64 = 2 * SECOND_US;
/// How long a draw waits for its answer.
const TIMEOUT_US: u64 = SECOND_US;
/// A POP reports as often.
const INTERVAL_US: u64 = SECOND_US / 4;
const POPS: usize = 3;
const RULES: &[u8] =
    br#"{"rules": [{"name": "jobs", "key": ["client_address"], "algorithm": "concurrency", "limit": 4,
    "expires_after_s": 2, "strict": true}], "sync": {"cluster": "c"}}"#;

struct Client;

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| b"192.0.2.1".to_vec())
    }
}

fn at(us: u64) -> Time {
    Time::from_nanos((1_000 * SECOND_US + us) * 1_000)
}

/// A POP of two workers, which share a table.
struct Pop {
    workers: Vec<Limiter>,
    slots: LocalSlots,
}

impl Pop {
    fn new(name: usize, table_id: u32) -> Self {
        let worker = |worker: u64| {
            let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id };
            let reporter = Reporter { pop: format!("p{name}"), worker: worker * 0x1234_5678_9abc_def1 };
            Limiter::new(PluginConfig::parse(RULES).unwrap().rules, identity, Some(reporter))
        };
        Self { workers: [1, 2].map(worker).into(), slots: LocalSlots::new(1) }
    }
}

/// A report on its way, or its answer.
struct Message {
    pop: usize,
    worker: usize,
    is_draw: bool,
    report: Report,
    made_us: u64,
    arrives_us: u64,
    answered_us: u64,
    answer: Option<Vec<u8>>,
}

/// A request in flight.
struct Flight {
    pop: usize,
    began_us: u64,
    afterwards: Vec<EndAction>,
}

struct World {
    us: u64,
    pops: Vec<Pop>,
    escrow: Escrow,
    messages: Vec<Message>,
    flights: Vec<Flight>,
    tables: u32,
    begun: usize,
}

impl World {
    fn new() -> Self {
        let pops = (0..POPS).zip(0..).map(|(name, table)| Pop::new(name, table)).collect();
        let (escrow, messages, flights) = (Escrow::default(), vec![], vec![]);
        Self { us: 0, pops, escrow, messages, flights, tables: 9, begun: 0 }
    }

    /// Time passes: messages arrive, and what lasts too long is over.
    fn pass(&mut self, us: u64) {
        self.us += us;
        let now = self.us;
        self.flights.retain(|flight| now - flight.began_us < EXPIRES_US);
        self.messages.sort_by_key(|message| message.arrives_us);
        for message in self.messages.iter_mut().filter(|one| one.answer.is_none() && one.arrives_us <= now) {
            message.answer = Some(answer(&mut self.escrow, &message.report, message.arrives_us));
        }
        let mut heard: Vec<_> = self.messages.extract_if(.., |one| one.is_due(now)).collect();
        heard.sort_by_key(|one| one.answered_us);
        for message in heard {
            self.observe(message);
        }
    }

    fn observe(&mut self, Message { pop, worker, is_draw, report, answered_us, answer, .. }: Message) {
        let (number, now) = (report.sequence, at(self.us));
        let Pop { workers, slots } = &mut self.pops[pop];
        let limiter = &mut workers[worker];
        let answer = answer.filter(|_| answered_us <= self.us);
        let decision = match (is_draw, answer) {
            (false, Some(bytes)) => return limiter.apply(number, &bytes, slots, now).unwrap_or(()),
            (false, None) => {
                let _ = limiter.report_failed(number, now);
                return;
            }
            (true, Some(bytes)) => {
                let answered = limiter.drawn(number, &bytes, slots, now).unwrap();
                limiter.decide_again(answered, &mut Client, slots, now)
            }
            (true, None) => {
                limiter.draw_failed(number, slots, now);
                limiter.decide_again(false, &mut Client, slots, now)
            }
        };
        self.decided(pop, decision);
    }

    fn decided(&mut self, pop: usize, decision: Decision) {
        if let Decision::Allow { afterwards, .. } = decision {
            self.begun += 1;
            self.flights.push(Flight { pop, began_us: self.us, afterwards });
            let count = self.flights.len();
            assert!(count <= LIMIT, "{count} in flight at {} us", self.us);
        }
    }

    fn ask(&mut self, pop: usize, worker: usize, trip_us: [u64; 2]) {
        let Pop { workers, slots } = &mut self.pops[pop];
        workers[worker].record_reply(3, false, at(self.us));
        let decision = workers[worker].decide(&mut Client, slots, at(self.us));
        match decision {
            Decision::Wait(report) => self.send(pop, worker, true, *report, trip_us),
            decision => self.decided(pop, decision),
        }
    }

    fn report(&mut self, pop: usize, worker: usize, trip_us: [u64; 2]) {
        let Pop { workers, slots } = &mut self.pops[pop];
        if let Some(report) = workers[worker].report(slots, true, at(self.us)) {
            self.send(pop, worker, false, report, trip_us);
        }
    }

    fn send(&mut self, pop: usize, worker: usize, is_draw: bool, report: Report, trip_us: [u64; 2]) {
        let [there_us, back_us] = trip_us;
        let (arrives_us, answered_us) = (self.us + there_us, self.us + there_us + back_us);
        let made_us = self.us;
        self.messages.push(Message {
            pop,
            worker,
            is_draw,
            report,
            made_us,
            arrives_us,
            answered_us,
            answer: None,
        });
    }

    /// One of the requests of a POP ends, if it has any.
    fn end(&mut self, pop: usize, worker: usize, which: usize) {
        let mut here = (0..self.flights.len()).filter(|i| self.flights[*i].pop == pop).collect::<Vec<_>>();
        if here.is_empty() {
            return;
        }
        let flight = self.flights.remove(here.swap_remove(which % here.len()));
        let Pop { workers, slots } = &mut self.pops[pop];
        for done in flight.afterwards {
            workers[worker].release(done, slots, at(self.us));
        }
    }

    /// A POP dies, with its requests and its table, and starts anew.
    fn crash(&mut self, pop: usize) {
        self.tables += 1;
        self.pops[pop] = Pop::new(pop, self.tables);
        self.flights.retain(|flight| flight.pop != pop);
        // What it sent still arrives; nobody hears the answers.
        for message in self.messages.extract_if(.., |message| message.pop == pop && message.answer.is_none())
        {
            answer(&mut self.escrow, &message.report, self.us);
        }
        self.messages.retain(|message| message.pop != pop);
    }
}

impl Message {
    /// Whether its answer is there, or nobody waits for it any more.
    fn is_due(&self, now_us: u64) -> bool {
        self.answer.is_some() && self.answered_us <= now_us || self.made_us + TIMEOUT_US <= now_us
    }
}

/// What the budget answers to `report` when it arrives.
fn answer(escrow: &mut Escrow, report: &Report, us: u64) -> Vec<u8> {
    let claims: Vec<_> =
        report.keys.iter().map(|key| Claim::of(report.epoch(key), key.admitted, key.ahead)).collect();
    let mut grants = vec![];
    if let Some(rule) = report.rules.first() {
        let id = BudgetId::new(rule.name.clone(), vec![1]);
        let (lease_us, refill_policy) = (2 * SECOND_US, rule.sharing.refill_policy);
        let draw = AcquireRequest { id, quota: rule.quota, lease_us, refill_policy, window: None, claims };
        let drawn = escrow.acquire(1 << 50 | us, &report.pop, &draw);
        grants.extend(drawn.leases.into_iter().map(Allowance::Leased));
    }
    Reply { sequence: report.sequence, pops: 3, settled: Settled::All, grants, ..Reply::default() }.encode()
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Ask,
    End,
    Report,
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![30 => Just(Act::Ask), 12 => Just(Act::End), 20 => Just(Act::Report), 1 => Just(Act::Crash)]
}

fn trip_us() -> impl Strategy<Value = [u64; 2]> {
    let way = || prop_oneof![8 => 0..60_000_u64, 1 => 0..3_000_000_u64, 1 => Just(1 << 40)];
    [way(), way()]
}

fn step_us() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..60_000_u64, 2 => 0..1_000_000_u64, 1 => 0..5_000_000_u64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// However late messages are, however many are lost, and whichever POPs die.
    // I6
    #[test]
    fn there_are_never_more_in_flight_than_the_limit(
        steps in prop::collection::vec((step_us(), act(), 0..POPS, 0..2_usize, trip_us(), 0..50_usize), 1..400),
    ) {
        let mut world = World::new();
        for (step_us, act, pop, worker, trip_us, which) in steps {
            world.pass(step_us);
            match act {
                Act::Ask => world.ask(pop, worker, trip_us),
                Act::End => world.end(pop, worker, which),
                Act::Report => world.report(pop, worker, trip_us),
                Act::Crash => world.crash(pop),
            }
        }
    }
}

const TRIP_US: [u64; 2] = [20_000, 20_000];

/// Asks until nothing more is let through; returns how many were.
fn fill(world: &mut World, pop: usize) -> usize {
    let before = world.begun;
    for n in 0..3 * LIMIT {
        world.ask(pop, n % 2, TRIP_US);
        world.pass(50_000);
    }
    world.begun - before
}

/// Every POP reports for so long, in which nothing is asked.
fn rest(world: &mut World, us: u64, pops: std::ops::Range<usize>) {
    for n in 0..us / INTERVAL_US {
        for pop in pops.clone() {
            world.report(pop, usize::from(n % 2 == 1), TRIP_US);
        }
        world.pass(INTERVAL_US);
    }
}

#[test]
fn places_go_where_they_are_asked_for_as_requests_end() {
    let mut world = World::new();
    for pop in [0, 1, 2, 0] {
        assert_eq!(fill(&mut world, pop), LIMIT, "POP {pop}");
        assert_eq!(fill(&mut world, (pop + 1) % POPS), 0, "and none elsewhere");
        (0..LIMIT).for_each(|which| world.end(pop, which % 2, 0));
        rest(&mut world, 4 * INTERVAL_US, 0..POPS);
    }
}

#[test]
fn a_place_that_is_free_is_taken_again_at_once_where_it_is() {
    let mut world = World::new();
    assert_eq!(fill(&mut world, 0), LIMIT);
    for _ in 0..100 {
        world.end(0, 0, 0);
        let before = world.begun;
        world.ask(0, 0, TRIP_US);
        assert_eq!(world.begun, before + 1, "without waiting");
        world.pass(10_000);
    }
}

#[test]
fn the_places_of_a_pop_that_died_come_back_when_its_requests_must_be_over() {
    let mut world = World::new();
    assert_eq!(fill(&mut world, 0), LIMIT);
    let died_us = world.us;
    world.crash(0);
    while world.us < died_us + EXPIRES_US {
        world.ask(1, 0, TRIP_US);
        world.pass(50_000);
        assert!(world.flights.is_empty(), "{} us after it died", world.us - died_us);
    }
    // A lease, and what a clock may be off.
    world.pass(5 * SECOND_US / 2);
    assert_eq!(fill(&mut world, 1), LIMIT);
}

#[test]
fn a_request_whose_end_nobody_sees_is_forgotten() {
    let mut world = World::new();
    assert_eq!(fill(&mut world, 0), LIMIT);
    world.flights.clear();
    // It is asked for all the time.
    let mut begun = 0;
    for _ in 0..6 {
        begun = fill(&mut world, 0);
        rest(&mut world, INTERVAL_US, 0..1);
        if begun > 0 {
            break;
        }
    }
    assert!(begun > 0 && world.us < 3 * EXPIRES_US + SECOND_US, "{begun} after {} us", world.us);
}

#[test]
fn a_budget_that_is_lost_is_told_anew_of_what_is_in_flight() {
    let mut world = World::new();
    assert_eq!(fill(&mut world, 0), LIMIT);
    (0..2).for_each(|_| world.end(0, 0, 0));
    world.escrow = Escrow::default();
    // Two asks: the first is told that its epoch is over.
    assert!(fill(&mut world, 0) <= 2);
    assert_eq!(fill(&mut world, 1), 0, "the budget knows of all");
}
