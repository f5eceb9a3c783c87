//! A point of presence: workers that share one table, each with the edge that a proxy's worker has.

use std::collections::BTreeMap;

use fastrand::Rng;
use weir_budget::budget::SourceId;
use weir_limiter::counters::CountedEvent;
use weir_limiter::engine::{
    Effect, Engine, Host as _, LocalHost, LogLevel, OpenRequest, RequestDecision, RequestStep, SyncCall, Unread,
    UpstreamResponse,
};
use weir_limiter::sync::ACQUIRES_MAX;
use weir_limiter::table::slot::Entry;
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

use super::account::Meter;
use super::setup::{Clock, Setup};
use super::traffic::{Arrival, value_of};
use super::world::WARM_UP_NS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Admitted,
    /// Answered in the upstream's place.
    Refused,
    /// Held until a call is answered.
    Waits,
}

pub(super) struct Pop {
    pub(super) name: String,
    pub(super) region: usize,
    pub(super) clock: Clock,
    pub(super) is_up: bool,
    /// The time of its latest report that got a settled answer.
    pub(super) news_at: u64,
    /// The time of its latest report that got any answer, settled or not.
    pub(super) replied_at: u64,
    /// By edge, the weir-sync of its region that its latest call went to: a proxy's workers take turns each by itself.
    turns: Vec<usize>,
    /// Requests for watched keys that its workers could not put on their lists, or displaced others for.
    pub(super) dropped: u64,
    configuration: String,
    /// The bits of the address that the key of each rule keeps.
    bits: Vec<u8>,
    site: LocalHost,
    /// The last of them reports for all, if there is a reporter.
    workers: Vec<Worker>,
    has_reporter: bool,
    /// Calls that its workers want made.
    wanted: Vec<Wanted>,
    /// Requests that were let through, and whose responses are to state their cost.
    pub(super) going_on: Vec<GoingOn>,
    /// Counts the workers that it has had: a request ends in the one that let it through, or in none.
    life: u32,
    /// The times at which requests went on to the upstream, if that is kept.
    pub(super) went_on: Vec<u64>,
    keeps_log: bool,
    /// Requests that were named; only those that are held need a name.
    numbered: u32,
}

/// A request that was let through, and whose response is to state its cost.
pub(super) struct GoingOn {
    worker: usize,
    life: u32,
    open: OpenRequest,
}

struct CostlyResponse(u32);

impl UpstreamResponse for CostlyResponse {
    fn status(&mut self) -> u16 {
        200
    }

    fn header(&mut self, _name: &str) -> Option<Vec<u8>> {
        Some(self.0.to_string().into_bytes())
    }

    fn add(&mut self, _name: &str, _value: &str) {}
}

/// A call that a worker wants made.
pub(super) struct Wanted {
    pub(super) worker: usize,
    call: SyncCall,
    held: Option<(Arrival, OpenRequest)>,
}

struct Worker {
    edge: Engine,
    /// The version of the pushed rule set that it runs; 0 is its configuration's.
    rule_set: u64,
    /// The calls under way by their numbers in the world, each with its number in the edge.
    calls: BTreeMap<u64, UnderWay>,
    /// Time between two of its ticks, in milliseconds.
    timer_ms: u32,
}

struct UnderWay {
    number: u64,
    sent_at: u64,
    /// True if it is a report of counts.
    is_report: bool,
    held: Option<(Arrival, OpenRequest)>,
}

impl Pop {
    /// A POP that has just started.
    pub(super) fn new(index: usize, setup: &Setup, rng: &mut Rng) -> Self {
        let name = format!("pop-{index}");
        let mut pop = Self {
            region: index % setup.regions,
            clock: Clock::random(setup.drift_ppm_max, rng),
            is_up: true,
            news_at: 0,
            replied_at: 0,
            turns: vec![0; setup.workers + setup.reporters],
            dropped: 0,
            configuration: setup.configuration(&name),
            name,
            bits: setup.rules.iter().map(|rule| rule.bits).collect(),
            site: new_process(rng),
            workers: Vec::new(),
            has_reporter: setup.reporters > 0,
            wanted: Vec::new(),
            going_on: Vec::new(),
            life: 0,
            went_on: Vec::new(),
            keeps_log: setup.keeps_log,
            numbered: 0,
        };
        pop.begin(setup.workers + setup.reporters, rng, 0);
        pop
    }

    fn begin(&mut self, edges: usize, rng: &mut Rng, now: u64) {
        self.workers = (0..edges).map(|_| self.worker(rng, now)).collect();
        if let Some(last) = self.workers.last_mut().filter(|_| self.has_reporter) {
            last.edge.become_reporter();
        }
    }

    fn worker(&mut self, rng: &mut Rng, now: u64) -> Worker {
        self.site.random = rng.u64(..);
        let (configuration, time) = (self.configuration.as_bytes(), self.clock.at(now));
        let configured = Engine::configure(configuration, &mut self.site, time);
        let (edge, effects) = configured.expect("a good configuration");
        let mut worker = Worker { edge, rule_set: 0, calls: BTreeMap::new(), timer_ms: 0 };
        worker.take_in(effects);
        worker
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len() - usize::from(self.has_reporter)
    }

    /// Workers, and the edge that reports for them if there is one.
    pub(super) fn edges(&self) -> usize {
        self.workers.len()
    }

    /// The weir-sync of its region, one of `replicas`, that the next call of `worker` goes to.
    pub(super) fn next_turn(&mut self, worker: usize, replicas: usize) -> usize {
        let turn = &mut self.turns[worker];
        *turn = (*turn + 1) % replicas;
        *turn
    }

    /// Reports of `worker` go to the edge that reports for all; of every worker, if it is this one's tick.
    fn gather(&mut self, worker: usize, now: u64) {
        let (time, count) = (self.clock.at(now), self.workers());
        let Some((reporter, workers)) = self.workers.split_last_mut().filter(|_| self.has_reporter) else {
            return;
        };
        for (number, known) in workers.iter_mut().enumerate() {
            if worker == number || worker == count {
                reporter.edge.gather(&mut known.edge, time);
            }
        }
    }

    /// Every worker drops the denials that the reporting edge was asked to forget.
    fn forget_at_workers(&mut self) {
        if let Some((reporter, workers)) = self.workers.split_last_mut().filter(|_| self.has_reporter) {
            let forgotten = reporter.edge.take_forgotten();
            for worker in workers {
                worker.edge.forget_denials(&forgotten);
            }
        }
    }

    pub(super) fn decide(&mut self, worker: usize, mut asked: Arrival, now: u64) -> Decision {
        self.numbered = self.numbered.wrapping_add(1);
        let (mut open, time) = (OpenRequest::new(self.numbered), self.clock.at(now));
        let decided = self.workers[worker].edge.request(&mut open, &mut asked, &mut self.site, time);
        if self.keeps_log && matches!(decided.step, RequestStep::Continue) {
            self.went_on.push(now);
        }
        let (decision, call) = decision(decided);
        match call {
            Some(call) => self.wanted.push(Wanted { worker, call, held: Some((asked, open)) }),
            None => self.goes_on(worker, open),
        }
        decision
    }

    fn goes_on(&mut self, worker: usize, open: OpenRequest) {
        if open.awaits_cost() {
            self.going_on.push(GoingOn { worker, life: self.life, open });
        }
    }

    /// A request ends, at this cost. If its worker is gone, nothing happens.
    pub(super) fn end_request(&mut self, ends: GoingOn, cost: u32, now: u64) {
        let GoingOn { worker, life, mut open } = ends;
        if self.is_up && life == self.life {
            let (time, edge) = (self.clock.at(now), &mut self.workers[worker].edge);
            edge.response(&mut open, &mut CostlyResponse(cost), &mut self.site, time);
            edge.end(&mut open, &mut self.site, time);
        }
    }

    pub(super) fn tick(&mut self, worker: usize, now: u64) {
        self.gather(worker, now);
        let edge = &mut self.workers[worker].edge;
        self.dropped += u64::from(edge.counters().take_event(CountedEvent::SyncDropped));
        let effects = edge.tick(&mut self.site, self.clock.at(now));
        if self.keeps_log {
            let resumed = effects.iter().filter(|effect| matches!(effect, Effect::Resume(_)));
            self.went_on.extend(resumed.map(|_| now));
        }
        self.take_in(worker, effects);
        self.forget_at_workers();
    }

    /// The number of a worker's ticks in an interval of this number of milliseconds.
    pub(super) fn ticks_in(&self, worker: usize, interval_ms: u64) -> u64 {
        interval_ms.checked_div(self.workers[worker].timer_ms.into()).unwrap_or(1).max(1)
    }

    fn take_in(&mut self, worker: usize, effects: Vec<Effect>) {
        let calls = self.workers[worker].take_in(effects).into_iter();
        self.wanted.extend(calls.map(|call| Wanted { worker, call, held: None }));
    }

    pub(super) fn take_calls(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// A call is made; its number in the world is `id`.
    pub(super) fn called(&mut self, id: u64, Wanted { worker, call, held }: Wanted, now: u64) -> SyncCall {
        let is_report = held.is_none() && !call.body.is_empty();
        let under_way = UnderWay { number: call.number, sent_at: now, is_report, held };
        self.workers[worker].calls.insert(id, under_way);
        call
    }

    /// The oldest version of the pushed rule set that one of its workers runs; 0 is its configuration's.
    pub(super) fn rule_set(&self) -> u64 {
        self.workers.iter().map(|worker| worker.rule_set).min().unwrap_or(0)
    }

    /// True if a worker banned a key since this was last asked.
    pub(super) fn has_banned(&mut self) -> bool {
        let events = self.workers.iter_mut().map(|worker| worker.edge.counters().take_event(CountedEvent::Banned));
        events.sum::<u32>() > 0
    }

    /// The answer to call `call` has come. If a request still waited for it, returns that request, decided.
    pub(super) fn answered(
        &mut self,
        worker: usize,
        call: u64,
        reply: &[u8],
        is_settled: bool,
        now: u64,
    ) -> Option<(Arrival, Decision)> {
        let under_way = self.workers[worker].calls.remove(&call)?;
        if under_way.is_report {
            self.replied_at = self.replied_at.max(under_way.sent_at);
            if is_settled {
                self.news_at = self.news_at.max(under_way.sent_at);
            }
        }
        self.end(worker, under_way, Ok(reply.to_vec()), now)
    }

    /// Call `call` has failed. If a request still waited for it, returns that request, decided.
    pub(super) fn failed(&mut self, worker: usize, call: u64, now: u64) -> Option<(Arrival, Decision)> {
        let under_way = self.workers[worker].calls.remove(&call)?;
        self.end(worker, under_way, Err(Unread::Failed("no answer".into())), now)
    }

    fn end(
        &mut self,
        worker: usize,
        UnderWay { number, held, .. }: UnderWay,
        answer: Result<Vec<u8>, Unread>,
        now: u64,
    ) -> Option<(Arrival, Decision)> {
        let (time, edge) = (self.clock.at(now), &mut self.workers[worker].edge);
        let Some((mut asked, mut open)) = held else {
            let effects = edge.answer(number, answer, &mut self.site, time);
            self.take_in(worker, effects);
            self.forget_at_workers();
            return None;
        };
        let decided = edge.answer_request(&mut open, (number, answer), &mut asked, &mut self.site, time)?;
        if self.keeps_log && matches!(decided.step, RequestStep::Continue) {
            self.went_on.push(now);
        }
        match decision(decided) {
            (_, Some(call)) => {
                self.wanted.push(Wanted { worker, call, held: Some((asked, open)) });
                None
            }
            (decision, None) => {
                self.goes_on(worker, open);
                Some((asked, decision))
            }
        }
    }

    /// The process ends: its table and its workers are lost.
    pub(super) fn crash(&mut self) {
        self.is_up = false;
        self.site = self.site.restarted();
        self.workers.iter_mut().for_each(|worker| worker.calls.clear());
        self.wanted.clear();
    }

    /// The process starts again, with a new table.
    pub(super) fn start(&mut self, rng: &mut Rng, now: u64) {
        self.is_up = true;
        (self.news_at, self.replied_at) = (now, now);
        self.site = new_process(rng);
        self.replace_workers(rng, now);
    }

    /// New VMs take over the same table.
    pub(super) fn reload(&mut self, rng: &mut Rng, now: u64) {
        self.gather(self.workers(), now);
        for worker in &mut self.workers {
            worker.edge.leave(&mut self.site);
        }
        self.replace_workers(rng, now);
    }

    /// New workers; a request that the old ones held is never let through.
    fn replace_workers(&mut self, rng: &mut Rng, now: u64) {
        self.life += 1;
        self.begin(self.workers.len(), rng, now);
    }

    /// The table's entry of `key` under a rule.
    fn entry(&mut self, rule: usize, key: u32) -> Option<Entry> {
        let limiter = self.workers.first()?.edge.limiter();
        limiter.entry(rule, &value_of(key, self.bits[rule]), self.site.slots())
    }

    /// The time of the table at `since` nanoseconds from the begin of the traffic.
    fn table_time(&self, since: u64) -> Time {
        self.workers[0].edge.time(self.clock.at(WARM_UP_NS + since))
    }

    /// The deficit of the bucket of `key`, at `since` nanoseconds from the begin of the traffic.
    pub(super) fn missing(&mut self, rule: usize, key: u32, since: u64) -> Meter {
        let mut meter = Meter::default();
        if let Some(entry) = self.entry(rule, key) {
            meter.set(entry.bucket().fill_ns(self.table_time(since)), since);
        }
        meter
    }

    /// Tokens that `key` has used of its part of `quota`, one of `parts`, if it is cold at `since` nanoseconds from the
    /// begin of the traffic.
    pub(super) fn cold(&mut self, rule: usize, key: u32, (quota, parts): (Quota, u64), since: u64) -> u64 {
        let Some(Entry::Cold(cold)) = self.entry(rule, key) else { return 0 };
        let parts = u32::try_from(parts).expect("few POPs");
        cold.share.tokens_used(&quota, parts, self.table_time(since)).into()
    }

    /// The source that counts what `key` is admitted under a rule, how many tokens that is, and how many of them a
    /// reply has confirmed. `None` while the key is not reported.
    pub(super) fn counted(&mut self, rule: usize, key: u32) -> Option<(SourceId, u64, u64)> {
        let Entry::Watched(watched) = self.entry(rule, key)? else { return None };
        let epoch = u64::from(self.site.identity().table_id) << 32 | u64::from(watched.epoch);
        let source = SourceId { epoch, pop: self.name.clone() };
        Some((source, watched.admitted.into(), watched.charged.into()))
    }

    pub(super) fn waiting(&self, key: u32) -> impl Iterator<Item = &Arrival> {
        let calls = self.workers.iter().flat_map(|worker| worker.calls.values());
        calls.filter_map(|call| call.held.as_ref()).map(|(asked, _)| asked).filter(move |asked| asked.key == key)
    }

    /// True if the maximum number of requests waits at `worker`.
    pub(super) fn is_crowded(&self, worker: usize) -> bool {
        let waiting = self.workers[worker].calls.values().filter(|call| call.held.is_some());
        waiting.count() >= ACQUIRES_MAX
    }

    /// True if admissions of `key` will now be charged to its budget.
    pub(super) fn counts(&mut self, rule: usize, key: u32) -> bool {
        matches!(self.entry(rule, key), Some(Entry::Watched(_)))
    }
}

impl Worker {
    /// Takes in the effects that its edge wants; returns the calls to make.
    fn take_in(&mut self, effects: Vec<Effect>) -> Vec<SyncCall> {
        let mut calls = Vec::new();
        for effect in effects {
            match effect {
                Effect::Call(call) => calls.push(call),
                Effect::Running(running) => self.rule_set = running.version,
                Effect::SetTimer(ms) => self.timer_ms = ms,
                Effect::Log(LogLevel::Warn | LogLevel::Error, text) => {
                    let is_wrong = text.contains("unreadable") || text.contains("refused");
                    assert!(!is_wrong, "{text}");
                }
                _ => {}
            }
        }
        calls
    }
}

fn new_process(rng: &mut Rng) -> LocalHost {
    let secret = rng.u128(..).to_le_bytes();
    LocalHost::new(secret, rng.u32(..))
}

fn decision(decided: RequestDecision<'_>) -> (Decision, Option<SyncCall>) {
    match decided.step {
        RequestStep::Continue | RequestStep::Hold => (Decision::Admitted, None),
        RequestStep::Answer(_) => (Decision::Refused, None),
        RequestStep::Call(call) => (Decision::Waits, Some(call)),
        RequestStep::Take(_) => unreachable!("only a gateway's requests take"),
    }
}
