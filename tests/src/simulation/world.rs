//! POPs, weir-syncs and a store, and the events between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fastrand::Rng;
use weir_budget::budget::{Account as StoreAccount, Budget, BudgetId};
use weir_budget::divide::Terms;
use weir_budget::hot::{HotKey, HotList};
use weir_budget::region::{Entry, Plan, Region};
use weir_limiter::config::Config;
use weir_limiter::decision::Outcome;
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Limiter, Reporter, TableIdentity};
use weir_limiter::quota::Quota;
use weir_limiter::request::{Attribute, Request};
use weir_limiter::table::LocalSlots;
use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::{Message, Reply, Report};

use super::account::Account;
use super::network::Link;
use super::traffic::Traffic;

/// How long a POP waits for an answer, in nanoseconds.
const TIMEOUT_NS: u64 = SECOND_NS;
/// Where POPs' monotonic clocks begin: anywhere but at zero.
const CLOCK_BEGIN_NS: u64 = 1 << 50;

/// A world's size and nature.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Reproduces the run.
    pub seed: u64,
    /// POPs, dealt out to the regions in turn.
    pub pops: usize,
    /// Regions, each with one weir-sync.
    pub regions: usize,
    /// As it is written in a rule: `100/s`.
    pub rate: String,
    /// In tokens.
    pub burst: u32,
    /// Between two reports of a POP, in nanoseconds.
    pub interval_ns: u64,
    /// Between a POP and its weir-sync.
    pub near: Link,
    /// Between a weir-sync and the store.
    pub far: Link,
    /// What weir-syncs grant by.
    pub terms: Terms,
}

impl Default for Setup {
    /// The setting of the design: 250 ms, a round trip of 100 ms, 1 % loss, 100/s, burst 100.
    fn default() -> Self {
        Self {
            seed: 1,
            pops: 3,
            regions: 3,
            rate: "100/s".into(),
            burst: 100,
            interval_ns: SECOND_NS / 4,
            near: Link { delay_ns: 8_000_000, jitter_ns: 4_000_000, loss: 0.01, duplication: 0.01 },
            far: Link { delay_ns: 38_000_000, jitter_ns: 4_000_000, loss: 0.0, duplication: 0.0 },
            terms: Terms::default(),
        }
    }
}

struct Pop {
    limiter: Limiter,
    slots: LocalSlots,
    region: usize,
}

struct Flight {
    pop: usize,
    region: usize,
    report: Report,
    plan: Plan,
}

enum Event {
    Request(usize),
    Tick(usize),
    Heard {
        pop: usize,
        call: u64,
        report: Report,
    },
    Charged {
        call: u64,
        flight: Box<Flight>,
    },
    Settled {
        call: u64,
        flight: Box<Flight>,
        accounts: Vec<StoreAccount>,
    },
    Answered {
        pop: usize,
        call: u64,
        reply: Vec<u8>,
    },
    TimedOut {
        pop: usize,
        call: u64,
    },
    /// A weir-sync asks the store for the fleet's hot keys.
    Listen(usize),
    Listened {
        region: usize,
        mine: Vec<HotKey>,
    },
    Peeked {
        region: usize,
        entries: Vec<Entry>,
        accounts: Vec<StoreAccount>,
    },
}

/// Everything, and what is due next.
pub struct World {
    setup: Setup,
    rng: Rng,
    pops: Vec<Pop>,
    regions: Vec<Region>,
    store: BTreeMap<BudgetId, Budget>,
    /// The store's list of hot keys.
    hot: HotList,
    /// Calls under way, by POP.
    waiting: BTreeMap<usize, u64>,
    calls: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    order: u64,
    traffic: Traffic,
    /// What was offered and admitted.
    pub account: Account,
}

struct FromKey;

impl Request for FromKey {
    fn attribute(&mut self, attribute: Attribute) -> Option<Vec<u8>> {
        (attribute == Attribute::SourceAddress).then(|| b"192.0.2.1:1".to_vec())
    }
}

impl World {
    /// A world at its beginning. Windows of the account count once they begin after `settle_ns`.
    pub fn new(setup: Setup, traffic: Traffic, settle_ns: u64) -> Self {
        let mut rng = Rng::with_seed(setup.seed);
        let config = format!(
            r#"{{"rules": [{{"name": "r", "key": ["client_address"], "rate": "{}", "burst": {}}}]}}"#,
            setup.rate, setup.burst
        );
        let rules = Config::parse(config.as_bytes()).expect("a good rule").rules;
        let quota: Quota = rules.rules()[0].quota;
        let pops = (0..setup.pops).map(|i| {
            let identity =
                TableIdentity { secret: Secret::new(rng.u128(..).to_le_bytes()), table_id: rng.u32(..) };
            let reporter = Reporter { pop: format!("pop-{i}"), worker: rng.u64(..) };
            Pop {
                limiter: Limiter::new(rules.clone(), identity, Some(reporter)),
                slots: LocalSlots::new(1),
                region: i % setup.regions,
            }
        });
        let pops: Vec<_> = pops.collect();
        let regions = (0..setup.regions).map(|i| Region::new(&format!("region-{i}"), setup.terms)).collect();
        let mut world = Self {
            rng,
            pops,
            regions,
            store: BTreeMap::new(),
            hot: HotList::default(),
            waiting: BTreeMap::new(),
            calls: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            order: 0,
            traffic,
            account: Account::new(quota, settle_ns),
            setup,
        };
        for pop in 0..world.pops.len() {
            let phase = world.rng.u64(0..world.setup.interval_ns);
            world.at(phase, Event::Tick(pop));
        }
        for region in 0..world.regions.len() {
            let phase = world.rng.u64(0..world.setup.interval_ns);
            world.at(phase, Event::Listen(region));
        }
        // The fleet has been up for a while: every POP has greeted before the traffic begins.
        world.run_until(5 * SECOND_NS);
        world.next_request(5 * SECOND_NS);
        world
    }

    /// When the traffic begins, in nanoseconds.
    pub const TRAFFIC_BEGINS_NS: u64 = 5 * SECOND_NS;

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((time, self.order)));
        self.events.insert(self.order, event);
    }

    fn next_request(&mut self, offset: u64) {
        if let Some((time, pop)) = (self.traffic)(&mut self.rng) {
            self.at(offset + time, Event::Request(pop));
        }
    }

    /// Runs all that is due up to `end`, in nanoseconds.
    pub fn run_until(&mut self, end: u64) {
        while let Some(&Reverse((now, order))) = self.queue.peek() {
            if now > end {
                break;
            }
            self.queue.pop();
            let event = self.events.remove(&order).expect("every queued event is there");
            self.handle(now, event);
        }
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Request(pop) => self.request(now, pop),
            Event::Tick(pop) => self.tick(now, pop),
            Event::Heard { pop, call, report } => self.heard(now, pop, call, report),
            Event::Charged { call, flight } => self.charged(now, call, flight),
            Event::Settled { call, flight, accounts } => self.settled(now, call, &flight, &accounts),
            Event::Answered { pop, call, reply } => {
                if self.waiting.get(&pop) == Some(&call) {
                    self.waiting.remove(&pop);
                    let Pop { limiter, slots, .. } = &mut self.pops[pop];
                    limiter.apply(&reply, slots, clock(now)).expect("a good reply");
                }
            }
            Event::Listen(region) => self.listen(now, region),
            Event::Listened { region, mine } => self.listened(now, region, &mine),
            Event::Peeked { region, entries, accounts } => {
                self.regions[region].grant(clock(now), &entries, &accounts);
            }
            Event::TimedOut { pop, call } => {
                if self.waiting.get(&pop) == Some(&call) {
                    self.waiting.remove(&pop);
                    self.pops[pop].limiter.report_failed();
                }
            }
        }
    }

    fn request(&mut self, now: u64, pop: usize) {
        let Pop { limiter, slots, .. } = &mut self.pops[pop];
        let admitted = limiter.decide(&mut FromKey, slots, clock(now)).outcome == Outcome::Allow;
        self.account.request(now - Self::TRAFFIC_BEGINS_NS, admitted);
        self.next_request(Self::TRAFFIC_BEGINS_NS);
    }

    fn tick(&mut self, now: u64, pop: usize) {
        self.at(now + self.setup.interval_ns, Event::Tick(pop));
        let Pop { limiter, slots, .. } = &mut self.pops[pop];
        let Some(report) = limiter.report(slots, true, clock(now)) else { return };
        self.calls += 1;
        let call = self.calls;
        self.waiting.insert(pop, call);
        self.at(now + TIMEOUT_NS, Event::TimedOut { pop, call });
        for delay in self.setup.near.arrivals(&mut self.rng) {
            self.at(now + delay, Event::Heard { pop, call, report: report.clone() });
        }
    }

    fn heard(&mut self, now: u64, pop: usize, call: u64, report: Report) {
        let region = self.pops[pop].region;
        let plan = self.regions[region].hear(clock(now), &report);
        let flight = Box::new(Flight { pop, region, report, plan });
        for delay in self.setup.far.arrivals(&mut self.rng) {
            let Flight { pop, region, report, plan } = &*flight;
            let copy = Flight { pop: *pop, region: *region, report: report.clone(), plan: plan.clone() };
            self.at(now + delay, Event::Charged { call, flight: Box::new(copy) });
        }
    }

    fn charged(&mut self, now: u64, call: u64, flight: Box<Flight>) {
        let member = format!("region-{}", flight.region);
        let charge = |entry: &Entry| {
            let budget = self.store.entry(entry.id.clone()).or_default();
            budget.charge(now / 1_000, &entry.charge(&member, &flight.report.pop))
        };
        let accounts: Vec<_> = flight.plan.entries.iter().map(charge).collect();
        if let Some(delay) = self.setup.far.arrivals(&mut self.rng).first() {
            self.at(now + delay, Event::Settled { call, flight, accounts });
        }
    }

    fn listen(&mut self, now: u64, region: usize) {
        self.at(now + self.setup.interval_ns, Event::Listen(region));
        let mine = self.regions[region].hot(clock(now));
        if let Some(delay) = self.setup.far.arrivals(&mut self.rng).first() {
            self.at(now + delay, Event::Listened { region, mine });
        }
    }

    fn listened(&mut self, now: u64, region: usize, mine: &[HotKey]) {
        let fleet = self.hot.exchange(mine, now / 1_000);
        let entries = self.regions[region].peeks(clock(now), &fleet);
        let member = format!("region-{region}");
        let peek = |entry: &Entry| {
            let budget = self.store.entry(entry.id.clone()).or_default();
            budget.charge(now / 1_000, &entry.charge(&member, ""))
        };
        let accounts: Vec<_> = entries.iter().map(peek).collect();
        if let Some(delay) = self.setup.far.arrivals(&mut self.rng).first() {
            self.at(now + delay, Event::Peeked { region, entries, accounts });
        }
    }

    fn settled(&mut self, now: u64, call: u64, flight: &Flight, accounts: &[StoreAccount]) {
        let region = &mut self.regions[flight.region];
        let grants = region.grant(clock(now), &flight.plan.entries, accounts);
        let (rules, pushed) = region.pushes(clock(now), &flight.report);
        let reply = Reply {
            sequence: flight.report.sequence,
            pops: u32::try_from(self.setup.pops).expect("few POPs"),
            settled: true,
            grants: flight.plan.of_keys(&grants, &[]),
            rules,
            pushed,
        };
        for delay in self.setup.near.arrivals(&mut self.rng) {
            let reply = reply.encode();
            self.at(now + delay, Event::Answered { pop: flight.pop, call, reply });
        }
    }
}

/// POPs' clocks do not begin at zero.
fn clock(now: u64) -> Time {
    Time::from_nanos(CLOCK_BEGIN_NS + now)
}
