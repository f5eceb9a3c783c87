//! A weir-sync: the real `Region`, as `sync-service/src/report.rs` drives it. Nothing else calls it.

use weir_budget::budget::Account;
use weir_budget::divide::Terms;
use weir_budget::escrow::{Draw, Drawn};
use weir_budget::hot::HotKey;
use weir_budget::region::{Entry, Plan, Region};
use weir_limiter::time::SECOND_NS;
use weir_limiter::wire::{Message, Reply, Report};

use super::clocks::Clock;

/// How long a POP that says nothing counts as one of the region, in nanoseconds (weir-sync's default).
const POP_TTL_NS: u64 = 10 * SECOND_NS;

/// What the store made of a report.
#[derive(Debug)]
pub struct Settled {
    /// Of the entries.
    pub accounts: Vec<Account>,
    /// Of the draws.
    pub drawn: Vec<Drawn>,
    /// Live POPs.
    pub pops: u32,
}

/// A weir-sync.
pub struct Sync {
    /// Its region.
    pub region: usize,
    /// The name it charges budgets by.
    pub member: String,
    /// Whether it is there at all.
    pub is_up: bool,
    /// Counts its starts: what was asked in an earlier life is answered to nobody.
    pub life: u32,
    clock: Clock,
    terms: Terms,
    state: Region,
}

/// A report that waits for the store.
#[derive(Debug)]
pub struct Heard {
    report: Report,
    plan: Plan,
}

impl Heard {
    /// What is to be charged.
    pub fn entries(&self) -> &[Entry] {
        &self.plan.entries
    }

    /// What is to be drawn.
    pub fn draws(&self) -> &[Draw] {
        self.plan.draws.list()
    }
}

impl Sync {
    /// The `replica`th of `replicas` weir-syncs of a region.
    pub fn new(region: usize, replica: usize, replicas: usize, clock: Clock, terms: Terms) -> Self {
        let member =
            if replicas == 1 { format!("region-{region}") } else { format!("region-{region}/{replica}") };
        let state = Region::new(&member, terms);
        Self { region, member, is_up: true, life: 0, clock, terms, state }
    }

    /// A report comes in.
    pub fn hear(&mut self, report: &[u8], now: u64) -> Heard {
        let report = Report::decode(report).expect("a good report");
        let plan = self.state.hear(self.clock.at(now), &report);
        Heard { report, plan }
    }

    /// The encoded reply, once the store has answered, or has not.
    pub fn answer(&mut self, heard: &Heard, settled: Option<&Settled>, now: u64) -> Vec<u8> {
        let (time, Heard { report, plan }) = (self.clock.at(now), heard);
        if let Some(settled) = settled {
            self.state.count_pops(time, settled.pops, POP_TTL_NS);
        }
        let share = self.state.share(time, POP_TTL_NS);
        let grants = match settled {
            Some(Settled { accounts, drawn, .. }) => {
                plan.of_keys(&self.state.grant(time, &plan.entries, accounts), drawn)
            }
            None => self.state.grant_alone(time, report, plan, share, &self.member),
        };
        let (rules, pushed) = self.state.pushes(time, report);
        let (sequence, pops, is_guess) = (report.sequence, share.fleet(), share.is_guess());
        let settled = settled.is_some();
        let workers = plan.workers;
        Reply { sequence, pops, is_guess, settled, grants, rules, pushed, workers, ..Reply::default() }
            .encode()
    }

    /// The keys that are hot here, for the list that all regions share.
    pub fn hot(&mut self, now: u64) -> Vec<HotKey> {
        self.state.hot(self.clock.at(now))
    }

    /// What to ask the store about, of the fleet's hot keys, once it has put `mine` on their list.
    pub fn peeks(&mut self, mine: &[HotKey], fleet: &[HotKey], now: u64) -> Vec<Entry> {
        self.state.are_listed(self.clock.at(now), mine);
        self.state.peeks(self.clock.at(now), fleet)
    }

    /// The store has told.
    pub fn peeked(&mut self, entries: &[Entry], accounts: &[Account], now: u64) {
        self.state.grant(self.clock.at(now), entries, accounts);
    }

    /// The process ends, and all it knew is lost.
    pub fn crash(&mut self) {
        self.is_up = false;
        self.life += 1;
        self.state = Region::new(&self.member, self.terms);
    }
}
