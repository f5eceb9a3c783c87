//! Strict rules, whatever happens to messages and POPs: requests in flight are never more than the limit, if none lasts
//! longer than the rule allows; and where no key has a place in its POP's table, each request acquires for itself, and
//! no more than the quota is spent.

use proptest::prelude::*;
use weir_budget::escrow::Escrow;
use weir_limiter::check::{Decision, EndAction};
use weir_limiter::limiter::Limiter;
use weir_limiter::sync::Reporter;
use weir_limiter::table::slot::Slot;
use weir_limiter::table::{HashSecret, LocalSlots, ReadError, Slots, TableIdentity, Version, WriteError};
use weir_protocol::messages::Report;
use weir_rules::config::PluginConfig;

use crate::{Client, SECOND_US, answer, at};

/// The store's clock when the test begins.
const ESCROW_US: u64 = 1 << 50;
const LIMIT: usize = 4;
/// Time after which a request is over, with or without an end.
const EXPIRES_US: u64 = 2 * SECOND_US;
/// Time that an acquire waits for its answer.
const TIMEOUT_US: u64 = SECOND_US;
const POPS: usize = 3;
const RULES: &[u8] = br#"{"rules": [{"name": "jobs", "key": ["client_address"], "algorithm": "concurrency", "limit": 4,
    "expires_after_s": 2, "strict": true}], "sync": {"cluster": "c"}}"#;

const RATE_RULES: &[u8] = br#"{"rules": [{"name": "login", "key": ["client_address"], "rate": "5/s", "strict": true}],
    "sync": {"cluster": "c"}}"#;

/// A table with no place for anybody.
struct Full;

impl Slots for Full {
    fn read(&mut self, _: u32, _: &mut Slot) -> Result<Version, ReadError> {
        Err(ReadError::Unavailable)
    }

    fn write(&mut self, _: u32, _: &mut Slot, _: Version) -> Result<(), WriteError> {
        Err(WriteError::Unavailable)
    }

    fn count(&self) -> u32 {
        1
    }
}

/// A POP of two workers, which share a table.
struct Pop {
    workers: Vec<Limiter>,
    slots: Box<dyn Slots>,
}

impl Pop {
    fn new(rules: &[u8], name: usize, table_id: u32) -> Self {
        let worker = |worker: u64| {
            let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id };
            let reporter = Reporter { pop: format!("p{name}"), worker: worker * 0x1234_5678_9abc_def1 };
            Limiter::new(PluginConfig::parse(rules).unwrap().rules, identity, Some(reporter))
        };
        let slots: Box<dyn Slots> = if rules == RATE_RULES { Box::new(Full) } else { Box::new(LocalSlots::new(1)) };
        Self { workers: [1, 2].map(worker).into(), slots }
    }
}

/// A report on its way, or its answer.
struct Message {
    pop: usize,
    worker: usize,
    is_acquire: bool,
    /// The network repeats it.
    is_twice: bool,
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
    rules: &'static [u8],
    us: u64,
    pops: Vec<Pop>,
    escrow: Escrow,
    messages: Vec<Message>,
    flights: Vec<Flight>,
    tables: u32,
    /// When each request was let through.
    admitted: Vec<u64>,
}

impl World {
    fn new(rules: &'static [u8]) -> Self {
        let pops = (0..POPS).zip(0..).map(|(name, table)| Pop::new(rules, name, table)).collect();
        let (escrow, messages, flights) = (Escrow::default(), vec![], vec![]);
        Self { rules, us: 0, pops, escrow, messages, flights, tables: 9, admitted: vec![] }
    }

    /// Time passes: messages arrive, and what lasts too long is over.
    fn pass(&mut self, us: u64) {
        self.us += us;
        let now = self.us;
        self.flights.retain(|flight| now - flight.began_us < EXPIRES_US);
        self.messages.sort_by_key(|message| message.arrives_us);
        for message in self.messages.iter_mut().filter(|one| one.answer.is_none() && one.arrives_us <= now) {
            for at_us in [message.arrives_us, now].into_iter().take(1 + usize::from(message.is_twice)) {
                message.answer = Some(answer(&mut self.escrow, &message.report, ESCROW_US | at_us));
            }
        }
        let mut due: Vec<_> = self.messages.extract_if(.., |one| one.is_due(now)).collect();
        due.sort_by_key(|one| one.answered_us);
        for message in due {
            self.observe(message);
        }
    }

    fn observe(&mut self, Message { pop, worker, is_acquire, report, answered_us, answer, .. }: Message) {
        let (number, now) = (report.sequence, at(self.us));
        let Pop { workers, slots } = &mut self.pops[pop];
        let slots = slots.as_mut();
        let limiter = &mut workers[worker];
        let answer = answer.filter(|_| answered_us <= self.us);
        let decision = match (is_acquire, answer) {
            (false, Some(bytes)) => return limiter.apply(number, &bytes, slots, now).unwrap_or(()),
            (false, None) => {
                let _ = limiter.report_failed(number, now);
                return;
            }
            (true, Some(bytes)) => {
                let answered = limiter.acquired(number, &bytes, slots, now).unwrap();
                limiter.decide_again(answered, &mut Client, slots, now)
            }
            (true, None) => {
                limiter.acquire_failed(number, slots, now);
                limiter.decide_again(false, &mut Client, slots, now)
            }
        };
        self.decided(pop, decision);
    }

    fn decided(&mut self, pop: usize, decision: Decision) {
        if let Decision::Allow { afterwards, .. } = decision {
            self.admitted.push(self.us);
            self.flights.push(Flight { pop, began_us: self.us, afterwards });
            let count = self.flights.len();
            assert!(self.rules == RATE_RULES || count <= LIMIT, "{count} in flight at {} us", self.us);
        }
    }

    fn ask(&mut self, pop: usize, worker: usize, trip_us: [u64; 2]) {
        let Pop { workers, slots } = &mut self.pops[pop];
        let slots = slots.as_mut();
        workers[worker].sync.as_mut().unwrap().observe(3, false, at(self.us));
        let decision = workers[worker].decide(&mut Client, slots, at(self.us));
        match decision {
            Decision::Wait(report) => self.send(pop, worker, true, *report, trip_us),
            decision => self.decided(pop, decision),
        }
    }

    fn report(&mut self, pop: usize, worker: usize, trip_us: [u64; 2]) {
        let Pop { workers, slots } = &mut self.pops[pop];
        let slots = slots.as_mut();
        if let Some(report) = workers[worker].report(slots, true, at(self.us)) {
            self.send(pop, worker, false, report, trip_us);
        }
    }

    fn send(&mut self, pop: usize, worker: usize, is_acquire: bool, report: Report, trip_us: [u64; 2]) {
        let [there_us, back_us] = trip_us;
        let (arrives_us, answered_us) = (self.us + there_us, self.us + there_us + back_us);
        let (made_us, answer, is_twice) = (self.us, None, there_us % 8 == 0);
        let message = Message { pop, worker, is_acquire, is_twice, report, made_us, arrives_us, answered_us, answer };
        self.messages.push(message);
    }

    /// One of the requests of a POP ends, if it has any.
    fn end(&mut self, pop: usize, worker: usize, which: usize) {
        let mut here = (0..self.flights.len()).filter(|i| self.flights[*i].pop == pop).collect::<Vec<_>>();
        if here.is_empty() {
            return;
        }
        let flight = self.flights.remove(here.swap_remove(which % here.len()));
        let Pop { workers, slots } = &mut self.pops[pop];
        let slots = slots.as_mut();
        for done in flight.afterwards {
            workers[worker].release(done, slots, at(self.us));
        }
    }

    /// A POP dies, with its requests and its table, and starts anew.
    fn crash(&mut self, pop: usize) {
        self.tables += 1;
        self.pops[pop] = Pop::new(self.rules, pop, self.tables);
        self.flights.retain(|flight| flight.pop != pop);
        // Its messages still arrive; the replies reach nobody.
        for message in self.messages.extract_if(.., |message| message.pop == pop && message.answer.is_none()) {
            answer(&mut self.escrow, &message.report, ESCROW_US | self.us);
        }
        self.messages.retain(|message| message.pop != pop);
    }
}

impl Message {
    /// True if its answer is there, or it has timed out.
    fn is_due(&self, now_us: u64) -> bool {
        self.answer.is_some() && self.answered_us <= now_us || self.made_us + TIMEOUT_US <= now_us
    }
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

/// Time that passes, what a worker of a POP does then, the times of its message, and which request ends.
type Step = (u64, Act, usize, usize, [u64; 2], usize);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((step_us(), act(), 0..POPS, 0..2_usize, trip_us(), 0..50_usize), 1..400)
}

/// A world after these steps, however late messages are, however many are lost or come twice, and whichever POPs die.
fn world_after(rules: &'static [u8], steps: Vec<Step>) -> World {
    let mut world = World::new(rules);
    for (step_us, act, pop, worker, trip_us, which) in steps {
        world.pass(step_us);
        match act {
            Act::Ask => world.ask(pop, worker, trip_us),
            Act::End => world.end(pop, worker, which),
            Act::Report => world.report(pop, worker, trip_us),
            Act::Crash => world.crash(pop),
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    // I6
    #[test]
    fn requests_in_flight_never_exceed_the_limit(steps in steps()) {
        world_after(RULES, steps);
    }

    // I6
    #[test]
    fn spending_never_exceeds_the_quota_in_a_full_table(steps in steps()) {
        let admitted = world_after(RATE_RULES, steps).admitted;
        // 5/s, burst 5: between any two admissions.
        for (i, from) in admitted.iter().enumerate() {
            for (n, to) in (1_u64..).zip(&admitted[i..]) {
                prop_assert!(n <= 5 + (to - from) * 5 / SECOND_US, "{n} in {} us", to - from);
            }
        }
    }
}

const TRIP_US: [u64; 2] = [20_000, 20_000];

/// Asks until nothing more is let through; returns how many were.
fn fill(world: &mut World, pop: usize) -> usize {
    let before = world.admitted.len();
    for n in 0..3 * LIMIT {
        world.ask(pop, n % 2, TRIP_US);
        world.pass(50_000);
    }
    world.admitted.len() - before
}

#[test]
fn places_of_a_dead_pop_return_after_the_longest_request() {
    let mut world = World::new(RULES);
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
fn a_lost_budget_counts_requests_in_flight_again() {
    let mut world = World::new(RULES);
    assert_eq!(fill(&mut world, 0), LIMIT);
    (0..2).for_each(|_| world.end(0, 0, 0));
    world.escrow = Escrow::default();
    // Two asks: the first reply ends its epoch.
    assert!(fill(&mut world, 0) <= 2);
    assert_eq!(fill(&mut world, 1), 0, "the budget knows of all");
}
