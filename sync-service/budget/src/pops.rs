//! The points of presence that report here, their workers and their status, and the number of POPs in the fleet.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;

use serde::{Deserialize, Serialize};
use weir_protocol::messages::{POPS_MAX, Report, RunningRules, WORKERS_MAX};
use weir_protocol::time::{SECOND_NS, Time};

use crate::records::DELAY_US_MAX;

/// Maximum number of workers remembered, of all POPs together.
pub const REMEMBERED_MAX: usize = 4 * POPS_MAX as usize;
const OF_ONE_POP_MAX: usize = 2 * WORKERS_MAX as usize;
/// Time for which a silent worker is remembered, in nanoseconds: no report is delayed for longer.
const REMEMBERED_NS: u64 = DELAY_US_MAX * 1_000;
/// Time without a report of keys after which a worker has none, in nanoseconds: warm keys are reported every 2 s.
const BUSY_NS: u64 = 5 * SECOND_NS / 2;
/// Time for which a registration of a POP in the store counts, in nanoseconds: not every acquire needs another.
const REGISTERED_NS: u64 = SECOND_NS / 10;
/// Time after which a silent worker no longer counts for the rule set that its POP runs, in nanoseconds.
pub const SILENT_NS: u64 = 2 * SECOND_NS;

/// POPs by name; at most [`POPS_MAX`].
#[derive(Debug)]
pub struct Pops {
    ttl_ns: u64,
    known: BTreeMap<String, Pop>,
    workers_len: usize,
    swept_at: Time,
}

#[derive(Debug)]
struct Pop {
    seen_at: Time,
    /// Time of the POP's last registration in the store from here, and the number of POPs that the store counted.
    registered: Option<(Time, u32)>,
    workers: BTreeMap<u64, Worker>,
}

#[derive(Debug)]
struct Worker {
    seen_at: Time,
    sequence: u64,
    answered: u64,
    keys_at: Option<Time>,
    running: RunningRules,
    /// True if [`Pops::news`] has returned the rules since the worker's last report.
    is_returned: bool,
}

/// Facts about the sender of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// True if this report or a newer one of its worker arrived before. It is answered anyway: counts are cumulative.
    pub is_stale: bool,
    /// Number of workers of its POP that report keys, including this one: from 1 to [`WORKERS_MAX`]. They share
    /// what the POP may report. 0 if the report has no key.
    pub busy: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopRuleSet {
    pub pop: String,
    /// The lowest version that a worker runs; 0 is the plugin configuration's.
    pub version: u64,
    /// The latest version that a worker refused; 0 if none.
    pub refused: u64,
}

impl Pops {
    /// Creates an empty set of POPs that count as alive for `ttl_ns` nanoseconds after their last report.
    pub fn new(ttl_ns: u64) -> Self {
        Self { ttl_ns, known: BTreeMap::new(), workers_len: 0, swept_at: Time::ZERO }
    }

    /// Records the sender of a report at `now`. A POP or a worker without room is not remembered.
    pub fn observe(&mut self, now: Time, report: &Report) -> Sender {
        self.sweep(now);
        let is_busy = !report.keys.is_empty();
        let mut sender = Sender { is_stale: false, busy: u32::from(is_busy) };
        if self.known.len() < POPS_MAX as usize && !self.known.contains_key(&report.pop) {
            let pop = Pop { seen_at: now, registered: None, workers: BTreeMap::new() };
            self.known.insert(report.pop.clone(), pop);
        }
        let Some(pop) = self.known.get_mut(&report.pop) else { return sender };
        pop.seen_at = now;
        if let Some(worker) = pop.workers.get_mut(&report.worker) {
            sender.is_stale = report.sequence <= worker.sequence;
            worker.observe(now, report);
        } else if self.workers_len < REMEMBERED_MAX && pop.workers.len() < OF_ONE_POP_MAX {
            self.workers_len += 1;
            pop.workers.insert(report.worker, Worker::new(now, report));
        }
        if is_busy {
            sender.busy = pop.busy(now);
        }
        sender
    }

    /// Records that `report` is answered now. Returns true if it, or a newer one of its worker, was answered before.
    pub fn answer(&mut self, report: &Report) -> bool {
        let pop = self.known.get_mut(&report.pop);
        let Some(worker) = pop.and_then(|pop| pop.workers.get_mut(&report.worker)) else { return false };
        let is_repeated = report.sequence <= worker.answered;
        worker.answered = worker.answered.max(report.sequence);
        is_repeated
    }

    /// Number of POPs that the store counted when `pop` was registered a moment ago, if it need not register again.
    pub fn registered(&self, now: Time, pop: &str) -> Option<u32> {
        let (at, pops) = self.known.get(pop)?.registered?;
        (now.nanos_since(at) < REGISTERED_NS).then_some(pops)
    }

    pub fn register(&mut self, now: Time, pop: &str, pops: u32) {
        if let Some(known) = self.known.get_mut(pop) {
            known.registered = Some((now, pops));
        }
    }

    /// Number of POPs that are alive. A silent POP counts for up to a second longer.
    pub fn live(&mut self, now: Time) -> u32 {
        self.sweep(now);
        u32::try_from(self.known.len()).unwrap_or(POPS_MAX)
    }

    /// Rule sets of the POPs that reported since the last call.
    pub fn news(&mut self, now: Time) -> Vec<PopRuleSet> {
        self.known.iter_mut().filter_map(|(name, pop)| pop.news(now, name)).collect()
    }

    pub fn all(&mut self, now: Time) -> Vec<(PopRuleSet, u64)> {
        self.sweep(now);
        let rule_set = |(name, pop): (&String, &Pop)| {
            let silent_ns = now.nanos_since(pop.seen_at);
            // For a silent POP, the state at its last report.
            Some((pop.rule_set(now.min(pop.seen_at), name)?, silent_ns))
        };
        self.known.iter().filter_map(rule_set).collect()
    }

    /// Forgets silent POPs and workers, at most once a second.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        self.known.retain(|_, pop| now.nanos_since(pop.seen_at) <= self.ttl_ns);
        for pop in self.known.values_mut() {
            pop.workers.retain(|_, worker| now.nanos_since(worker.seen_at) <= REMEMBERED_NS);
        }
        self.workers_len = self.known.values().map(|pop| pop.workers.len()).sum();
    }
}

impl Pop {
    fn busy(&self, now: Time) -> u32 {
        let is_busy = |worker: &&Worker| worker.keys_at.is_some_and(|at| now.nanos_since(at) < BUSY_NS);
        let busy = self.workers.values().filter(is_busy).count();
        u32::try_from(busy).unwrap_or(WORKERS_MAX).clamp(1, WORKERS_MAX)
    }

    fn news(&mut self, now: Time, name: &str) -> Option<PopRuleSet> {
        let rule_set = self.rule_set(now, name);
        let mut is_news = false;
        for worker in self.workers.values_mut().filter(|worker| worker.is_live(now)) {
            is_news |= !mem::replace(&mut worker.is_returned, true);
        }
        rule_set.filter(|_| is_news)
    }

    /// Rule set of the workers that are not silent, or `None` if all are.
    fn rule_set(&self, now: Time, name: &str) -> Option<PopRuleSet> {
        let mut rule_set: Option<PopRuleSet> = None;
        for worker in self.workers.values().filter(|worker| worker.is_live(now)) {
            let RunningRules { version, refused } = worker.running;
            let known = rule_set.get_or_insert_with(|| PopRuleSet { pop: name.into(), version, refused });
            (known.version, known.refused) = (known.version.min(version), known.refused.max(refused));
        }
        rule_set
    }
}

impl Worker {
    fn new(now: Time, report: &Report) -> Self {
        let keys_at = (!report.keys.is_empty()).then_some(now);
        let Report { sequence, running, .. } = *report;
        Self { seen_at: now, sequence, answered: 0, keys_at, running, is_returned: false }
    }

    fn is_live(&self, now: Time) -> bool {
        now.nanos_since(self.seen_at) <= SILENT_NS
    }

    fn observe(&mut self, now: Time, report: &Report) {
        let new = Self::new(now, report);
        let (sequence, keys_at) = (self.sequence.max(new.sequence), new.keys_at.or(self.keys_at));
        *self = Self { sequence, keys_at, answered: self.answered, ..new };
    }
}

/// Number of POPs in the fleet, as far as a weir-sync knows.
///
/// The store counts them. Before its first count, the largest number that a POP last received or that the operator
/// expects is used, since too large a share is the worse mistake. A lower count is accepted only after the store has
/// counted no more for as long as a silent POP counts as alive: a store that lost its data starts at one.
#[derive(Clone, Copy, Debug, Default)]
pub struct FleetSize {
    counted: Option<Counted>,
    reported: u32,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    pops: u32,
    /// Time since which the store counts fewer, and its largest count since.
    fewer: Option<(Time, u32)>,
}

impl FleetSize {
    /// Records the fleet's size from a POP or from the settings; 0 is ignored.
    pub fn observe(&mut self, pops: u32) {
        self.reported = self.reported.max(pops.min(POPS_MAX));
    }

    /// Records the store's count at `now`; a POP is alive for `ttl_ns` nanoseconds after its last report.
    pub fn count(&mut self, now: Time, pops: u32, ttl_ns: u64) {
        let pops = pops.clamp(1, POPS_MAX);
        let known = self.counted.get_or_insert(Counted { pops: self.reported, fewer: None });
        let (since, most) = known.fewer.map_or((now, pops), |(since, most)| (since, most.max(pops)));
        *known = if pops >= known.pops {
            Counted { pops, fewer: None }
        } else if now.nanos_since(since) > ttl_ns {
            Counted { pops: most, fewer: None }
        } else {
            Counted { fewer: Some((since, most)), ..*known }
        };
    }

    pub fn known(&self) -> Option<u32> {
        self.counted.map(|counted| counted.pops).or(Some(self.reported).filter(|pops| *pops > 0))
    }
}

const STATUS_NS: u64 = 60 * SECOND_NS;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PopStatus {
    pub pop: String,
    pub step: u8,
    /// Lead of its wall clock over ours when its report arrived, in milliseconds, or `None` if it has no clock.
    pub clock_ms: Option<i64>,
    pub module: String,
    pub refusal: String,
    pub age_ms: u64,
}

#[derive(Debug, Default)]
pub struct Statuses {
    pops: BTreeMap<String, (Time, PopStatus)>,
    swept_at: Time,
}

impl Statuses {
    pub fn observe(&mut self, now: Time, unix_us: u64, report: &Report) {
        self.sweep(now);
        let Some(status) = &report.status else { return };
        if self.pops.len() >= POPS_MAX as usize && !self.pops.contains_key(&report.pop) {
            return;
        }
        let ours = i64::try_from(unix_us / 1_000).unwrap_or(i64::MAX);
        let theirs = Some(status.unix_ms).filter(|ms| *ms > 0).and_then(|ms| i64::try_from(ms).ok());
        let pop_status = PopStatus {
            pop: report.pop.clone(),
            step: status.step,
            clock_ms: theirs.map(|theirs| theirs.saturating_sub(ours)),
            module: status.module.clone(),
            refusal: status.refusal.clone(),
            age_ms: 0,
        };
        self.pops.insert(report.pop.clone(), (now, pop_status));
    }

    /// Status of at most `most` POPs; if there are more, by the worst connectivity, then by the largest clock error.
    pub fn list(&self, now: Time, most: usize) -> Vec<PopStatus> {
        let aged = |(at, status): &(Time, PopStatus)| {
            let age_ms = now.nanos_since(*at) / 1_000_000;
            PopStatus { age_ms, ..status.clone() }
        };
        let mut all: Vec<PopStatus> = self.pops.values().map(aged).collect();
        if all.len() > most {
            all.sort_by_key(|pop| Reverse((pop.step, pop.clock_ms.map(i64::unsigned_abs))));
            all.truncate(most);
        }
        all
    }

    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) >= SECOND_NS {
            self.swept_at = now;
            self.pops.retain(|_, (at, _)| now.nanos_since(*at) < STATUS_NS);
        }
    }
}

/// Merges the statuses from all weir-syncs, by POP; the newest one wins.
pub fn newest_statuses(statuses: impl IntoIterator<Item = PopStatus>) -> BTreeMap<String, PopStatus> {
    let mut pops: BTreeMap<String, PopStatus> = BTreeMap::new();
    for status in statuses {
        match pops.get_mut(&status.pop) {
            Some(known) if known.age_ms <= status.age_ms => {}
            Some(known) => *known = status,
            None => drop(pops.insert(status.pop.clone(), status)),
        }
    }
    pops
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};
    use weir_protocol::messages::{Key, StatusReport};

    fn key() -> Key {
        Key { value: vec![1], epoch: 1, ..Key::default() }
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * SECOND_NS)
    }

    fn greeting(pop: &str, worker: u64, sequence: u64) -> Report {
        Report { pop: pop.into(), worker, sequence, ..Report::default() }
    }

    fn running(pop: &str, worker: u64, version: u64, refused: u64) -> Report {
        Report { running: RunningRules { version, refused }, ..greeting(pop, worker, 1) }
    }

    fn rule_set(pop: &str, version: u64, refused: u64) -> PopRuleSet {
        PopRuleSet { pop: pop.into(), version, refused }
    }

    #[test]
    fn a_pop_that_falls_silent_stops_counting() {
        let mut pops = Pops::new(10 * SECOND_NS);
        for (second, pop) in [(0, "a"), (0, "b"), (5, "a"), (6, "a"), (6, "c")] {
            pops.observe(at(second), &greeting(pop, 1, 1));
        }
        assert_eq!(pops.live(at(10)), 3);
        assert_eq!(pops.live(at(11)), 2, "b is silent");
        assert_eq!(pops.live(at(17)), 0);
        pops.observe(at(20), &greeting("b", 1, 1));
        assert_eq!(pops.live(at(20)), 1);
    }

    #[test]
    fn counts_the_workers_of_a_pop_that_report_keys() {
        let mut pops = Pops::new(10 * SECOND_NS);
        let keys = vec![key()];
        let reports = [(0, "a", 1), (1, "a", 2), (2, "b", 3), (250, "a", 1), (2_400, "a", 1), (2_600, "a", 1)];
        let counted = reports.map(|(ms, pop, worker)| {
            let report = Report { keys: keys.clone(), ..greeting(pop, worker, ms + 1) };
            let now = Time::from_nanos(SECOND_NS + ms * 1_000_000);
            pops.observe(now, &greeting(pop, 9, ms));
            pops.observe(now, &report).busy
        });
        assert_eq!(counted, [1, 2, 1, 2, 2, 1]);
    }

    #[test]
    fn a_pop_runs_what_its_last_worker_runs() {
        let mut pops = Pops::new(10 * SECOND_NS);
        for (worker, version) in [(1, 8), (2, 7), (3, 9)] {
            pops.observe(at(0), &running("fra1", worker, version, worker));
        }
        assert_eq!(pops.news(at(0)), [rule_set("fra1", 7, 3)]);
        assert_eq!(pops.news(at(0)), [], "it was returned before");
        pops.observe(at(1), &running("fra1", 1, 9, 0));
        assert_eq!(pops.news(at(1)), [rule_set("fra1", 7, 3)]);
        pops.observe(at(3), &running("fra1", 1, 9, 0));
        assert_eq!(pops.news(at(3)), [rule_set("fra1", 9, 0)], "the others are gone");
    }

    // I5
    #[test]
    fn the_pops_count_of_the_fleet_holds_until_the_store_counts() {
        let mut fleet = FleetSize::default();
        assert_eq!(fleet.known(), None);
        for pops in [0, 3, 0, 2] {
            fleet.observe(pops);
        }
        assert_eq!(fleet.known(), Some(3), "the highest number counts");
        fleet.observe(30);
        assert_eq!(fleet.known(), Some(30));
        fleet.observe(u32::MAX);
        assert_eq!(fleet.known(), Some(POPS_MAX));
        fleet.count(at(0), 2, 10 * SECOND_NS);
        assert_eq!(fleet.known(), Some(POPS_MAX), "the store may have lost its data");
        fleet.count(at(11), 2, 10 * SECOND_NS);
        fleet.observe(30);
        assert_eq!(fleet.known(), Some(2), "the store knows");
    }

    // I5
    #[test]
    fn a_smaller_store_count_waits_for_every_pop() {
        let mut fleet = FleetSize::default();
        let mut known = |at_s: u64, pops: u32| {
            fleet.count(at(at_s), pops, 10 * SECOND_NS);
            fleet.known().unwrap()
        };
        assert_eq!(known(0, 30), 30);
        // It was out of reach for a while, and lost its data.
        for (at_s, pops) in [(20, 1), (21, 12), (22, 30), (23, 1), (24, 29), (33, 28)] {
            assert_eq!(known(at_s, pops), 30, "{at_s} s");
        }
        assert_eq!(known(34, 28), 29, "one POP is gone, and then another");
        assert_eq!(known(35, 28), 29);
        assert_eq!(known(46, 28), 28);
        assert_eq!(known(47, 31), 31, "a larger count holds at once");
    }

    // I2
    #[test]
    fn made_up_names_take_bounded_memory_and_the_silent_make_room() {
        let mut pops = Pops::new(10 * SECOND_NS);
        for n in 0..u64::from(POPS_MAX) + 10 {
            pops.observe(at(1), &greeting(&format!("pop-{n}"), 1, 1));
        }
        assert_eq!(pops.live(at(11)), POPS_MAX);
        for n in 0..2 {
            assert!(!pops.observe(at(11), &greeting("fra1", 1, 1)).is_stale, "not remembered {n}");
        }
        for n in 0..2 * REMEMBERED_MAX as u64 {
            let report = Report { keys: vec![key()], ..greeting(&format!("fra{}", n % 400), n, 1) };
            assert!(pops.observe(at(12), &report).busy <= WORKERS_MAX);
            assert!(pops.workers_len <= REMEMBERED_MAX);
        }
        assert_eq!((pops.known.len(), pops.workers_len), (400, REMEMBERED_MAX), "the silent made room");
        pops.observe(at(23), &greeting("fra2", 1, 1));
        assert!(pops.observe(at(23), &greeting("fra2", 1, 1)).is_stale);
        assert_eq!(pops.workers_len, 1);
        for worker in 0..2 * OF_ONE_POP_MAX as u64 {
            pops.observe(at(23), &greeting("fra1", worker, 1));
        }
        assert_eq!(pops.known["fra1"].workers.len(), OF_ONE_POP_MAX);
    }

    fn status_report(pop: &str, step: u8, unix_ms: u64) -> Report {
        let status = Some(StatusReport { step, unix_ms, module: "0.1.0".into(), ..StatusReport::default() });
        Report { pop: pop.into(), status, ..Report::default() }
    }

    #[test]
    fn the_last_status_counts_until_a_minute_of_silence() {
        let mut statuses = Statuses::default();
        statuses.observe(at(1), 10_000_000, &status_report("fra1", 2, 9_500));
        statuses.observe(at(2), 11_000_000, &status_report("fra1", 0, 14_000));
        statuses.observe(at(2), 11_000_000, &status_report("fra2", 1, 0));
        statuses.observe(at(3), 12_000_000, &Report { pop: "fra1".into(), ..Report::default() });
        let listed = statuses.list(at(4), 9);
        let of = |pop: &PopStatus| (pop.pop.clone(), pop.step, pop.clock_ms, pop.age_ms);
        assert_eq!(
            listed.iter().map(of).collect::<Vec<_>>(),
            [("fra1".into(), 0, Some(3_000), 2_000), ("fra2".into(), 1, None, 2_000)]
        );
        assert_eq!(statuses.list(at(4), 1)[0].pop, "fra2", "the one that is worst off");
        let older = PopStatus { age_ms: 2_001, step: 2, ..listed[0].clone() };
        assert_eq!(newest_statuses([older.clone(), listed[0].clone(), older])["fra1"].step, 0);
        statuses.observe(at(63), 0, &Report::default());
        assert_eq!(statuses.list(at(63), 9), vec![]);
    }
}
