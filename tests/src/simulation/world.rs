//! POPs, weir-syncs and a store, and what is due next.

use std::collections::BTreeMap;
use std::rc::Rc;

use fastrand::Rng;
use weir_budget::store_clock::Bounds;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::SECOND_NS;

use super::faults::{Fault, Schedule};
use super::flights::Lasting;
use super::ideal::{Apart, At, Own, Who};
use super::invariants::{self, Confirmed, Fleet, Label};
use super::ledger::Reported;
use super::log::{Logged, Took, Wire};
use super::pop::{Decision, Pop};
use super::reference::Reference;
use super::setup::{Clock, Network, Setup};
use super::store::Store;
use super::stretch::Compared;
use super::sync::{Answer, Sync, UnderWay};
use super::traffic::{Arrival, Traffic};

/// Time for which the fleet is up before the traffic begins, in nanoseconds: every POP has reported by then.
pub const WARM_UP_NS: u64 = 5 * SECOND_NS;
/// Time between two looks at the age of the POPs' news, in nanoseconds.
const LOOK_NS: u64 = SECOND_NS / 20;

/// A report under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) id: u64,
    pub(super) pop: usize,
    pub(super) worker: usize,
}

/// A weir-sync that asks the store: in which of its lives, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) sync: usize,
    pub(super) life: u32,
    pub(super) at: u64,
    /// The time of the call: later, if the store called the first one late.
    pub(super) sent_at: u64,
    /// Its bounds of the store's clock then.
    pub(super) bounds: Bounds,
}

/// What happens at a time. Numbers are places in the lists of [`World`] and its setup.
#[derive(Debug)]
pub(super) enum Event {
    Tick { pop: usize, worker: usize },
    ReportArrives { call: Call, sync: usize, report: Rc<[u8]> },
    AtStore { asker: Asker, question: UnderWay },
    FromStore { asker: Asker, question: UnderWay, answer: Option<Answer> },
    Answered { call: Call, reply: Rc<[u8]>, is_settled: bool },
    TimedOut(Call),
    Listen(usize),
    Probe { sync: usize, life: u32 },
    Look,
    Ends(usize),
    Put(usize),
    OperatorResets,
    Keep { restored_at: u64 },
    Fault(Fault),
}

/// Everything, and what is due next.
pub struct World {
    pub setup: Setup,
    pub(super) label: Label,
    /// Draws what links and restarts do.
    pub(super) rng: Rng,
    traffic_rng: Rng,
    pub(super) network: Network,
    pub(super) pops: Vec<Pop>,
    pub syncs: Vec<Sync>,
    pub(super) store: Store,
    /// Events by the time at which they are due; those due together, in the order they came in.
    queue: BTreeMap<(u64, u64), Event>,
    order: u64,
    pub(super) calls: u64,
    traffic: Traffic,
    next: Option<Arrival>,
    on_sync_loss: Vec<OnSyncLoss>,
    pub(super) rules_of: [Vec<usize>; super::setup::PATHS.len()],
    pub(super) has_penalties: bool,
    fleet: Fleet,
    /// The tokens truly offered and admitted.
    pub reference: Reference,
    /// Comparisons with an ideal limiter.
    pub(super) compared: Vec<Compared>,
    /// The POPs and regions that are alone for a while, and what they may admit.
    pub(super) apart: Vec<Apart>,
    pub(super) wire: Wire,
    pub(super) confirmed: Confirmed,
    /// The outcome of each request, if that is kept.
    pub(super) log: Vec<Logged>,
    /// Requests whose responses state their cost.
    pub(super) lasting: Vec<Lasting>,
    /// The POPs' changes to the rule sets that were put, with their times.
    pub(super) took: Vec<Took>,
}

/// The generator that traffic is drawn from, in a world of this seed.
pub fn traffic_rng(seed: u64) -> Rng {
    Rng::with_seed(seed.rotate_left(32) ^ 0x5745_4952)
}

impl World {
    /// A world at the begin of its traffic. Fails if a rule cannot be read.
    pub fn new(setup: Setup, traffic: Traffic, schedule: Schedule) -> Result<Self, String> {
        let rules = setup.rule_set()?;
        let known_rules = setup.known_rules()?;
        let mut rng = Rng::with_seed(setup.seed);
        let traffic_rng = traffic_rng(setup.seed);
        let pops = (0..setup.pops).map(|i| Pop::new(i, &setup, &mut rng)).collect();
        let replicas = setup.syncs_per_region;
        let syncs = (0..setup.regions * replicas).map(|i| {
            let clock = Clock::random(setup.drift_ppm_max, &mut rng);
            Sync::new(i / replicas, i % replicas, clock, &setup, known_rules.clone())
        });
        let syncs = syncs.collect();
        let mut world = Self {
            label: Label::of(&setup),
            network: Network::new(setup.near, setup.far, setup.pops, setup.regions),
            reference: Reference::new(&setup, &rules),
            compared: Vec::new(),
            apart: Vec::new(),
            wire: Wire::new(setup.pops),
            confirmed: Confirmed::default(),
            on_sync_loss: rules.rules().iter().map(|rule| rule.on_sync_loss).collect(),
            has_penalties: rules.rules().iter().any(|rule| rule.penalty.is_some()),
            rules_of: [0, 1, 2].map(|path| setup.rules_of(path)),
            fleet: Fleet { pops: setup.pops, reach_ns: setup.reach_ns() },
            store: Store::new(setup.is_accounted, setup.begins_us),
            log: Vec::new(),
            took: Vec::new(),
            lasting: Vec::new(),
            queue: BTreeMap::new(),
            order: 0,
            calls: 0,
            next: None,
            rng,
            traffic_rng,
            pops,
            syncs,
            traffic,
            setup,
        };
        world.begin(schedule);
        Ok(world)
    }

    fn begin(&mut self, schedule: Schedule) {
        for pop in 0..self.pops.len() {
            let mut phase = self.rng.u64(0..self.setup.interval_ns);
            // The reporter is first, so that it greets.
            for worker in (0..self.pops[pop].edges()).rev() {
                self.due(phase, Event::Tick { pop, worker });
                // Workers of a proxy have a timer each; those of a program that share a reporter have one.
                if self.setup.reporters == 0 {
                    phase = self.rng.u64(0..self.setup.interval_ns);
                }
            }
        }
        for sync in 0..self.syncs.len() {
            let phase = self.rng.u64(0..self.setup.interval_ns);
            self.due(phase, Event::Listen(sync));
        }
        for which in 0..self.setup.puts.len() {
            self.due(WARM_UP_NS + self.setup.puts[which].0, Event::Put(which));
        }
        if let Some(at) = self.setup.reset_at {
            self.due(WARM_UP_NS + at, Event::OperatorResets);
        }
        for (at, fault) in schedule {
            let at = WARM_UP_NS + at;
            if let Fault::StoreLoses(age_ns) = fault {
                self.due(at.saturating_sub(age_ns), Event::Keep { restored_at: at });
            }
            self.due(at, Event::Fault(fault));
        }
        self.run_to(WARM_UP_NS);
        self.due(WARM_UP_NS, Event::Look);
        self.wire.reset();
        self.next = (self.traffic)(&mut self.traffic_rng);
    }

    /// Runs until `end`, in nanoseconds from the begin of the traffic.
    pub fn run_until(&mut self, end: u64) {
        self.run_to(WARM_UP_NS + end);
        self.wire.until = end;
        self.reference.sample_until(end);
    }

    /// No further requests arrive.
    pub fn end_traffic(&mut self) {
        (self.traffic, self.next) = (super::traffic::silence(), None);
    }

    /// I7 at quiescence, of every key.
    pub fn check_nothing_is_forgotten(&self, end: u64) {
        for (rule, key, account) in self.reference.accounts() {
            // What strict rules admit was paid for in advance.
            if account.sharing.strict {
                continue;
            }
            let id = self.reference.id(rule, key);
            let reported = self.store.reported(&id).map_or(0, Reported::total);
            let uncharged = self.store.uncharged(&id);
            invariants::nothing_is_forgotten(&self.label, account, &id, reported, uncharged, end);
        }
    }

    /// `event` is due at `at`, in simulated nanoseconds.
    pub(super) fn due(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.queue.insert((at, self.order), event);
    }

    fn run_to(&mut self, end: u64) {
        loop {
            let event_at = self.queue.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            match self.next {
                Some(arrival) if WARM_UP_NS + arrival.at <= event_at.min(end) => {
                    self.request(arrival);
                    self.next = (self.traffic)(&mut self.traffic_rng);
                }
                _ if event_at <= end => {
                    let Some(((now, _), event)) = self.queue.pop_first() else { return };
                    self.handle(now, event);
                }
                _ => return,
            }
        }
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Tick { pop, worker } => self.tick(now, pop, worker),
            Event::ReportArrives { call, sync, report } => self.report_arrives(now, call, sync, &report),
            Event::AtStore { asker, question } => self.at_store(now, asker, question),
            Event::FromStore { asker, question, answer } => self.store_answers(now, asker, &question, answer),
            Event::Answered { call, reply, is_settled } => {
                self.confirmed.replied(call.id, &reply);
                let decided = self.pops[call.pop].answered(call.worker, call.id, &reply, is_settled, now);
                self.decided(now, decided);
                self.make_calls(now, call.pop);
            }
            Event::TimedOut(call) => {
                let decided = self.pops[call.pop].failed(call.worker, call.id, now);
                self.decided(now, decided);
                self.make_calls(now, call.pop);
            }
            Event::Put(which) => self.put(which),
            Event::OperatorResets => self.operator_resets(now),
            Event::Listen(sync) => self.listen(now, sync),
            Event::Probe { sync, life } => self.probe(now, sync, life),
            Event::Look => self.look(now),
            Event::Ends(which) => self.end_lasting(now, which),
            Event::Keep { restored_at } => self.store.keep(restored_at),
            Event::Fault(fault) => {
                if let Fault::PopCrash(pop) = fault {
                    self.end_all_at(now - WARM_UP_NS, pop);
                }
                self.suffer(now, &fault);
            }
        }
    }

    /// Lends what POPs may admit beyond the bound because their news is older than the bound assumes. The loan is
    /// paid back once all are in touch.
    fn look(&mut self, now: u64) {
        let ages: Vec<_> = self.pops.iter().map(|pop| pop.is_up.then(|| self.setup.age(pop, now))).collect();
        let is_late = ages.iter().flatten().any(|age| age.late_ns > 0);
        for (rule, _, account) in self.reference.accounts_mut() {
            // What was leased twice may be spent at any time.
            if account.sharing.strict {
                continue;
            }
            if is_late {
                for (pop, age) in ages.iter().enumerate().filter_map(|(pop, age)| Some((pop, age.as_ref()?))) {
                    account.lend_to(pop, age.lent_ns(self.on_sync_loss[rule], self.setup.pops));
                }
            } else {
                account.pay_back(LOOK_NS as f64);
            }
        }
        self.due(now + LOOK_NS, Event::Look);
    }

    fn request(&mut self, arrival: Arrival) {
        let Arrival { at, pop, key, path, cost } = arrival;
        if !self.pops[pop].is_up {
            return;
        }
        let now = WARM_UP_NS + at;
        let workers = self.pops[pop].workers();
        let worker = if workers > 1 { self.traffic_rng.usize(0..workers) } else { 0 };
        let decision = self.pops[pop].decide(worker, arrival, now);
        if self.setup.accounts_for(key) {
            self.reference.sample_until(at);
            let rules = self.rules_of[usize::from(path)].iter();
            let costs: Vec<_> = rules.map(|&rule| (rule, self.reference.cost(rule, cost))).collect();
            let reported_at = self.pops[pop].news_at.saturating_sub(WARM_UP_NS);
            let has_strict = costs.iter().any(|(rule, _)| self.reference.account(*rule, key).sharing.strict);
            let is_crowded = decision == Decision::Refused && has_strict && self.pops[pop].is_crowded(worker);
            self.reference.offer(key, &costs, At { pop, now: at, reported_at, is_crowded });
            self.offer_apart(arrival);
        }
        match decision {
            Decision::Waits => self.make_calls(now, pop),
            decision => self.account(arrival, &decision),
        }
    }

    /// Offers the request to the POP or region that is alone, too.
    fn offer_apart(&mut self, Arrival { at, pop, key, cost, .. }: Arrival) {
        let (cost, regions) = (self.reference.cost(0, cost), self.setup.regions);
        let mut apart = std::mem::take(&mut self.apart);
        for apart in apart.iter_mut().filter(|apart| apart.counts(pop, regions, at)) {
            if apart.own.is_empty() {
                apart.own = (0..self.setup.keys).map(|key| self.own(apart.who, key, at)).collect();
            }
            apart.own[key as usize].offer(cost, at);
        }
        self.apart = apart;
    }

    /// A client's own bucket at a POP or region that is alone from `now` on.
    fn own(&mut self, who: Who, key: u32, now: u64) -> Own {
        let quota = self.reference.account(0, key).quota;
        let Setup { pops, regions, .. } = self.setup;
        match who {
            Who::Pop(pop) => {
                let (missing, withheld_ns) = (self.pops[pop].missing(0, key, now), self.reference.withheld()[0]);
                Own::of_pop(quota, missing, withheld_ns.unwrap_or(0), self.on_sync_loss[0], pops)
            }
            Who::Region(region) => {
                let here = (0..pops).filter(|pop| pop % regions == region).count();
                let number = |count: usize| u32::try_from(count).expect("few POPs");
                Own::of_region(quota, number(here), number(pops))
            }
        }
    }

    /// A request that has waited at a POP is decided.
    fn decided(&mut self, now: u64, decided: Option<(Arrival, Decision)>) {
        if let Some((arrival, decision)) = decided {
            self.account(Arrival { at: now - WARM_UP_NS, ..arrival }, &decision);
        }
    }

    fn account(&mut self, arrival: Arrival, decision: &Decision) {
        let Arrival { at, pop, key, path, cost } = arrival;
        self.go_on(at, pop, decision);
        if self.setup.keeps_log {
            let (passed, bans) = (*decision == Decision::Admitted, self.pops[pop].has_banned());
            self.log.push(Logged { at, pop, key, path, cost, passed, bans });
        }
        if !self.setup.accounts_for(key) {
            return;
        }
        self.reference.sample_until(at);
        let regions = self.setup.regions;
        for apart in self.apart.iter_mut().filter(|apart| apart.counts(pop, regions, at)) {
            if let Some(own) = apart.own.get_mut(key as usize).filter(|_| *decision == Decision::Admitted) {
                own.tally.admitted += u64::from(self.reference.cost(0, cost));
            }
        }
        for &rule in &self.rules_of[usize::from(path)] {
            let cost = self.reference.cost(rule, cost);
            let account = self.reference.account_mut(rule, key);
            if *decision == Decision::Admitted {
                account.admit(pop, cost, at);
                let local = self.pops[pop].clock.undisturbed(WARM_UP_NS + at).as_nanos();
                invariants::one_pop_keeps_the_quota(&self.label, account, pop, cost, local, at);
                invariants::the_fleet_keeps_the_bound(&self.label, account, self.setup.bound_max, self.fleet, at);
                account.pops[pop].cold += if self.pops[pop].counts(rule, key) { 0 } else { u64::from(cost) };
            }
            if (rule, key) == (0, 0) {
                self.reference.sample(pop, cost, *decision == Decision::Admitted);
            }
        }
    }
}
