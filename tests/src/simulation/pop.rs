//! A point of presence: workers with the real limiter over one table. Nothing else calls the limiter.

use std::collections::BTreeMap;

use fastrand::Rng;
use weir_budget::budget::SourceId;
use weir_limiter::counters::Event;
use weir_limiter::decision::{Decision, Outcome};
use weir_limiter::key::{KeyValue, Secret};
use weir_limiter::ladder::Ladder;
use weir_limiter::limiter::{Draw, Limiter, Reporter, TableIdentity};
use weir_limiter::request::{Attribute, Request};
use weir_limiter::rules::RuleSet;
use weir_limiter::slot::Entry;
use weir_limiter::table::LocalSlots;
use weir_limiter::time::Time;
use weir_limiter::wire::Message;

use super::account::Meter;
use super::clocks::Clock;
use super::setup::{PATHS, Setup};
use super::world::WARM_UP_NS;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let through.
    Admitted,
    /// Answered for the upstream.
    Refused,
    /// Held until this report, encoded, is answered.
    Waits(Vec<u8>),
}

/// A POP.
pub struct Pop {
    /// Its name in reports.
    pub name: String,
    /// Its region.
    pub region: usize,
    /// Its monotonic clock.
    pub clock: Clock,
    /// Whether it is there at all.
    pub is_up: bool,
    /// When the report was sent whose settled answer it acts on.
    pub news_at: u64,
    /// When the report was sent whose answer, settled or not, it heard last.
    pub heard_at: u64,
    /// Which of its region's weir-syncs its latest report went to.
    pub turn: usize,
    /// Requests for watched keys that its workers could not put on their lists, or took others off for.
    pub dropped: u64,
    rules: RuleSet,
    /// How many bits of the address the key of each rule keeps.
    bits: Vec<u8>,
    identity: TableIdentity,
    slots: LocalSlots,
    slot_count: u32,
    workers: Vec<Worker>,
    /// Live POPs and when that was heard, as its workers tell each other.
    heard: Option<(u32, Time)>,
    /// The names of keys that workers left to be reported when they ended.
    parted: Vec<u8>,
    /// Requests that are held, by the call that they wait for.
    held: BTreeMap<u64, (Asked, Draw)>,
    greets_at: u64,
}

struct Worker {
    limiter: Limiter,
    /// The calls under way, with the numbers of their reports and when they were sent.
    waiting: BTreeMap<u64, (u64, u64)>,
}

impl Pop {
    /// A POP that has just been started.
    pub fn new(index: usize, setup: &Setup, rules: &RuleSet, rng: &mut Rng) -> Self {
        let mut pop = Self {
            name: format!("pop-{index}"),
            region: index % setup.regions,
            clock: Clock::random(setup.drift_ppm_max, rng),
            is_up: true,
            news_at: 0,
            heard_at: 0,
            turn: 0,
            dropped: 0,
            rules: rules.clone(),
            bits: setup.rules.iter().map(|rule| rule.bits).collect(),
            identity: new_identity(rng),
            slots: LocalSlots::new(setup.slots),
            slot_count: setup.slots,
            workers: Vec::new(),
            heard: None,
            parted: Vec::new(),
            held: BTreeMap::new(),
            greets_at: 0,
        };
        pop.workers = (0..setup.workers).map(|_| pop.worker(rng)).collect();
        pop
    }

    fn worker(&self, rng: &mut Rng) -> Worker {
        let reporter = Reporter { pop: self.name.clone(), worker: rng.u64(..) };
        let mut limiter = Limiter::new(self.rules.clone(), self.identity, Some(reporter));
        if let Some((pops, at)) = self.heard {
            limiter.note_heard(pops, at);
        }
        Worker { limiter, waiting: BTreeMap::new() }
    }

    /// Workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Decides a request in a worker. If it has to wait, it waits for call `call`.
    pub fn decide(&mut self, worker: usize, mut asked: Asked, call: u64, now: u64) -> Verdict {
        let (time, limiter) = (self.clock.at(now), &mut self.workers[worker].limiter);
        let decision = limiter.decide(&mut asked, &mut self.slots, time);
        if decision.outcome != Outcome::Wait {
            return verdict(decision);
        }
        let Some((report, draw)) = limiter.draw(&mut self.slots, time) else {
            return verdict(limiter.decide_again(false, &mut asked, &mut self.slots, time));
        };
        self.held.insert(call, (asked, draw));
        Verdict::Waits(report.encode())
    }

    /// The encoded report that a worker sends now as call `call`.
    pub fn report(&mut self, worker: usize, call: u64, interval_ns: u64, now: u64) -> Option<Vec<u8>> {
        let time = self.clock.at(now);
        let greets = now >= self.greets_at;
        let Worker { limiter, waiting } = &mut self.workers[worker];
        if let Some((pops, at)) = self.heard {
            limiter.note_heard(pops, at);
        }
        limiter.inherit(&std::mem::take(&mut self.parted), &self.slots, time);
        self.dropped += u64::from(limiter.counters().take_event(Event::SyncDropped));
        let report = limiter.report(&mut self.slots, greets, time)?;
        if greets {
            // A tick that comes a little early is its turn all the same.
            self.greets_at = now + interval_ns * 3 / 4;
        }
        waiting.insert(call, (report.sequence, now));
        Some(report.encode())
    }

    /// The answer to call `call` is here, if anyone still waits for it; a request that did, decided.
    pub fn answered(
        &mut self,
        worker: usize,
        call: u64,
        reply: &[u8],
        is_settled: bool,
        now: u64,
    ) -> Option<(Asked, Verdict)> {
        let time = self.clock.at(now);
        let Worker { limiter, waiting } = &mut self.workers[worker];
        let held = self.held.remove(&call);
        let decided = held.map(|(mut asked, draw)| {
            let answered = limiter.drawn(draw, reply, &mut self.slots, time).expect("a good reply");
            let decision = limiter.decide_again(answered, &mut asked, &mut self.slots, time);
            (asked, verdict(decision))
        });
        if let Some((sequence, sent_at)) = waiting.remove(&call) {
            limiter
                .apply(sequence, reply, &mut self.slots, time)
                .expect("a good reply to the report under way");
            self.heard_at = self.heard_at.max(sent_at);
            if is_settled {
                self.news_at = self.news_at.max(sent_at);
            }
        } else if decided.is_none() {
            return None;
        }
        self.heard = limiter.pops().zip(limiter.ladder().and_then(Ladder::heard_at));
        decided
    }

    /// Call `call` came to nothing, if anyone still waits for it; a request that did, decided.
    pub fn failed(&mut self, worker: usize, call: u64, now: u64) -> Option<(Asked, Verdict)> {
        let time = self.clock.at(now);
        let Worker { limiter, waiting } = &mut self.workers[worker];
        if let Some((sequence, _)) = waiting.remove(&call) {
            limiter.report_failed(sequence);
        }
        let (mut asked, draw) = self.held.remove(&call)?;
        limiter.draw_failed(draw);
        let decision = limiter.decide_again(false, &mut asked, &mut self.slots, time);
        Some((asked, verdict(decision)))
    }

    /// The process ends: its table and its workers are lost.
    pub fn crash(&mut self) {
        self.is_up = false;
        self.slots = LocalSlots::new(self.slot_count);
        (self.heard, self.held) = (None, BTreeMap::new());
        self.parted.clear();
        self.workers.iter_mut().for_each(|worker| worker.waiting.clear());
    }

    /// The process starts again, with a new table.
    pub fn start(&mut self, rng: &mut Rng, now: u64) {
        self.is_up = true;
        (self.news_at, self.heard_at) = (now, now);
        self.identity = new_identity(rng);
        self.replace_workers(rng);
    }

    /// New VMs over the table that is there.
    pub fn reload(&mut self, rng: &mut Rng) {
        for worker in &mut self.workers {
            self.parted =
                worker.limiter.leave(&self.parted).unwrap_or_else(|| std::mem::take(&mut self.parted));
        }
        self.replace_workers(rng);
    }

    fn replace_workers(&mut self, rng: &mut Rng) {
        // A request that is held is not let through.
        self.held.clear();
        self.workers = (0..self.workers.len()).map(|_| self.worker(rng)).collect();
    }

    /// What the bucket of `key` misses, at `since` nanoseconds from the begin of the traffic.
    pub fn missing(&mut self, rule: usize, key: u32, since: u64) -> Meter {
        let mut meter = Meter::default();
        let value = value_of(key, self.bits[rule]);
        if let Some(entry) =
            self.workers.first().and_then(|worker| worker.limiter.entry(rule, &value, &mut self.slots))
        {
            meter.set(entry.bucket().fill_ns(self.clock.at(WARM_UP_NS + since)), since);
        }
        meter
    }

    /// The source that counts what `key` is admitted under a rule; how many tokens that is, and how many of them a
    /// reply has confirmed. None while nobody is to hear of the key.
    pub fn counted(&mut self, rule: usize, key: u32) -> Option<(SourceId, u64, u64)> {
        let worker = self.workers.first()?;
        let entry = worker.limiter.entry(rule, &value_of(key, self.bits[rule]), &mut self.slots)?;
        let Entry::Watched(watched) = entry else { return None };
        let epoch = u64::from(self.identity.table_id) << 32 | u64::from(watched.epoch);
        let source = SourceId { epoch, pop: self.name.clone() };
        Some((source, watched.admitted.into(), watched.charged.into()))
    }

    /// Requests of `key` for `path` that wait to be decided, in tokens as they say.
    pub fn waiting(&self, key: u32) -> impl Iterator<Item = &Asked> {
        self.held.values().map(|(asked, _)| asked).filter(move |asked| asked.key == key)
    }

    /// Whether what `key` is admitted now is counted for its budget.
    pub fn counts(&mut self, rule: usize, key: u32) -> bool {
        let Some(worker) = self.workers.first() else { return false };
        let entry = worker.limiter.entry(rule, &value_of(key, self.bits[rule]), &mut self.slots);
        matches!(entry, Some(Entry::Watched(_)))
    }
}

fn new_identity(rng: &mut Rng) -> TableIdentity {
    TableIdentity { secret: Secret::new(rng.u128(..).to_le_bytes()), table_id: rng.u32(..) }
}

/// The first of the clients whose addresses are like that of client `key` in so many bits.
pub fn first_of(key: u32, bits: u8) -> u32 {
    key & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

/// The canonical bytes of client `key`: of 10.x.y.z so many bits.
pub fn value_of(key: u32, bits: u8) -> Vec<u8> {
    let [_, x, y, z] = first_of(key, bits).to_be_bytes();
    match bits {
        0 => KeyValue::ALL.as_bytes().to_vec(),
        _ => [&[4, bits], &[10, x, y, z][..usize::from(bits).div_ceil(8)]].concat(),
    }
}

/// The first of the clients whose canonical bytes these are.
pub fn key_of(value: &[u8]) -> Option<u32> {
    match value {
        [4, _, 10, octets @ ..] => {
            let at = |i: usize| octets.get(i).copied().unwrap_or(0);
            Some(u32::from_be_bytes([0, at(0), at(1), at(2)]))
        }
        _ => (value == KeyValue::ALL.as_bytes()).then_some(0),
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The client.
    pub key: u32,
    /// What it asks for; see [`PATHS`].
    pub path: u8,
    /// What it says that it costs; see [`super::setup::BY_COST`].
    pub cost: u32,
}

fn verdict(decision: Decision) -> Verdict {
    if decision.outcome == Outcome::Allow { Verdict::Admitted } else { Verdict::Refused }
}

impl Request for Asked {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => {
                let [_, x, y, z] = self.key.to_be_bytes();
                Some(format!("10.{x}.{y}.{z}:1").into_bytes())
            }
            Attribute::Path => Some(PATHS[usize::from(self.path)].as_bytes().to_vec()),
            // The only header that rules here ask for.
            Attribute::Header(_) => Some(self.cost.to_string().into_bytes()),
            _ => None,
        }
    }
}
