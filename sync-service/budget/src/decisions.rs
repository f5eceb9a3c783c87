//! Decisions per rule: the requests per second that it allows, limits or refuses, from the reports of POPs.
//!
//! Once a second a POP reports the decisions of its rules since its process started. The difference from its previous
//! report is spread over the time until the next one, so that lumps become a rate ([`Flow`]).
//!
//! A POP's reports may go to several weir-syncs in turn. Each counts only the decisions of one interval per report, so
//! together they count all. Decisions of an interval whose report was lost are counted in part, or not at all.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_protocol::messages::{POPS_MAX, RULES_MAX, Report, RuleCounts};
use weir_protocol::time::{SECOND_NS, Time};

use crate::divide::region_of;
use crate::scaled;

/// Maximum number of rules, over all POPs, whose last counts are remembered.
pub const COUNTS_MAX: usize = 200_000;
/// Number of tables tracked per POP: an Envoy that restarts runs beside its successor for a while.
const TABLES_MAX: usize = 2;
/// Minimum silence after which a POP or a rule is forgotten, in nanoseconds.
const SILENT_NS: u64 = 60 * SECOND_NS;
/// Number of intervals without a report after which a rule is forgotten.
const SILENT_TURNS: u64 = 4;
const SILENT_NS_MAX: u64 = 600 * SECOND_NS;
/// Number of intervals after which a POP that has not reported a rule here counts as not running it. Its reports may go
/// to several weir-syncs in turn.
const TURNS_MAX: u32 = 15;
/// Maximum lead of a POP's clock that is accepted, in milliseconds: its first report may have been delayed.
const LATE_MS: u64 = 5_000;
/// Maximum number of decisions a second accepted from a POP for one rule.
const PER_SECOND_MAX: u64 = 10_000_000;

/// Name under which requests refused by the list `deny` are counted. No rule's name contains a blank.
pub const DENY_LIST: &str = "deny list";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RuleRates {
    pub rule: String,
    /// Thousandths of a request per second, over the last [`WINDOW_S`].
    pub milli: DecisionCounts,
    pub pops: u32,
}

#[derive(Debug, Default)]
pub struct Decisions {
    rules: BTreeMap<String, Rule>,
    pops: BTreeMap<String, Vec<Table>>,
    counts: usize,
    swept_at: Time,
}

#[derive(Debug)]
struct Rule {
    flow: Flow,
    kept_until: Time,
    total: DecisionCounts,
    /// Part of `total` that [`Decisions::news`] has returned.
    returned: DecisionCounts,
}

/// Last report of one of a POP's processes.
#[derive(Debug)]
struct Table {
    name: u32,
    seen_at: Time,
    /// Time of its first report, here and by the POP's clock.
    began: (Time, u64),
    /// Interval at which it reports each rule.
    every_ms: u32,
    rules: BTreeMap<String, RuleReport>,
}

#[derive(Clone, Copy, Debug)]
struct RuleReport {
    seen_at: Time,
    /// By the POP's clock.
    made_ms: u64,
    counts: DecisionCounts,
}

impl Decisions {
    pub fn observe(&mut self, now: Time, report: &Report, is_known: impl Fn(&str) -> bool) {
        self.sweep(now);
        let Some(status) = &report.status else { return };
        let Some(at) = self.table(now, report, status.every_ms) else { return };
        for counts in status.rules.iter().filter(|counts| is_known(&counts.name)) {
            self.count(now, report, at, counts);
        }
        let blocked = RuleCounts { name: DENY_LIST.into(), decided: [0, 0, status.blocked, 0] };
        if status.blocked > 0 || self.rules.contains_key(DENY_LIST) {
            self.count(now, report, at, &blocked);
        }
    }

    /// Decisions per second of each rule, from the POPs that report here.
    pub fn rates(&self, now: Time) -> Vec<RuleRates> {
        let mut pops: BTreeMap<&str, u32> = BTreeMap::new();
        for tables in self.pops.values() {
            // If there are two tables, one belongs to a process that is ending.
            let newest = tables.iter().max_by_key(|table| table.seen_at);
            for rule in newest.into_iter().flat_map(|table| table.runs(now)) {
                *pops.entry(rule).or_default() += 1;
            }
        }
        let of = |(name, rule): (&String, &Rule)| RuleRates {
            rule: name.clone(),
            milli: rule.flow.rates(now),
            pops: pops.get(name.as_str()).copied().unwrap_or_default(),
        };
        self.rules.iter().map(of).collect()
    }

    /// Decisions since the last call, by rule.
    pub fn news(&mut self) -> Vec<(String, DecisionCounts)> {
        let news = |(name, rule): (&String, &mut Rule)| {
            let new = rule.total.minus(core::mem::replace(&mut rule.returned, rule.total));
            (name.clone(), new)
        };
        self.rules.iter_mut().map(news).collect()
    }

    /// Index of the report's table among those of its POP, or `None` if there is no room.
    fn table(&mut self, now: Time, report: &Report, every_ms: u32) -> Option<usize> {
        if !self.pops.contains_key(&report.pop) && self.pops.len() >= POPS_MAX as usize {
            return None;
        }
        let tables = self.pops.entry(report.pop.clone()).or_default();
        if let Some(at) = tables.iter().position(|table| table.name == report.table) {
            let table = tables.get_mut(at)?;
            (table.seen_at, table.every_ms) = (now, every_ms);
            return Some(at);
        }
        if tables.len() >= TABLES_MAX {
            let oldest = tables.iter().enumerate().min_by_key(|(_, table)| table.seen_at)?.0;
            self.counts -= tables.swap_remove(oldest).rules.len();
        }
        let (name, began) = (report.table, (now, report.made_ms));
        tables.push(Table { name, seen_at: now, began, every_ms, rules: BTreeMap::new() });
        Some(tables.len() - 1)
    }

    fn count(&mut self, now: Time, report: &Report, at: usize, counts: &RuleCounts) {
        let Some(table) = self.pops.get_mut(&report.pop).and_then(|tables| tables.get_mut(at)) else {
            return;
        };
        if !self.rules.contains_key(&counts.name) {
            if self.rules.len() >= RULES_MAX {
                return;
            }
            self.rules.insert(counts.name.clone(), Rule::new(now, table.every_ms));
        }
        let Some(rule) = self.rules.get_mut(&counts.name) else { return };
        rule.kept_until = rule.kept_until.max(now + silent_ns(table.every_ms));
        let (began, began_ms) = table.began;
        let latest_ms = began_ms.saturating_add(now.nanos_since(began) / 1_000_000 + LATE_MS);
        let made_ms = report.made_ms.min(latest_ms);
        let reported = RuleReport { seen_at: now, made_ms, counts: counts.into() };
        let Some(before) = table.rules.get_mut(&counts.name) else {
            if self.counts < COUNTS_MAX && table.rules.len() < RULES_MAX {
                self.counts += 1;
                table.rules.insert(counts.name.clone(), reported);
            }
            return;
        };
        if reported.made_ms <= before.made_ms {
            return;
        }
        let passed_ms = reported.made_ms - before.made_ms;
        let most = PER_SECOND_MAX.saturating_mul(passed_ms) / 1_000;
        let new = reported.counts.minus(before.counts).with(DecisionCounts::default(), |count, _| count.min(most));
        *before = reported;
        rule.add(now, new, passed_ms, table.every_ms);
    }

    /// Forgets silent POPs, tables and rules, at most once a second.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        self.rules.retain(|_, rule| now < rule.kept_until);
        for tables in self.pops.values_mut() {
            tables.retain(|table| now.nanos_since(table.seen_at) < SILENT_NS);
            for table in tables.iter_mut() {
                let kept_ns = silent_ns(table.every_ms);
                table.rules.retain(|_, report| now.nanos_since(report.seen_at) < kept_ns);
            }
        }
        self.pops.retain(|_, tables| !tables.is_empty());
        self.counts = self.pops.values().flatten().map(|table| table.rules.len()).sum();
    }
}

impl Rule {
    fn new(now: Time, every_ms: u32) -> Self {
        let kept_until = now + silent_ns(every_ms);
        Self { flow: Flow::new(now), kept_until, total: DecisionCounts::default(), returned: DecisionCounts::default() }
    }

    /// Counts a POP's decisions of the last `passed_ms`; the POP reports every `every_ms`.
    fn add(&mut self, now: Time, new: DecisionCounts, passed_ms: u64, every_ms: u32) {
        let every_ms = u64::from(every_ms.max(1));
        let is_ours = passed_ms <= every_ms + every_ms / 2;
        let new = if is_ours { new } else { new.part(every_ms, passed_ms) };
        self.total = self.total.plus(new);
        self.flow.add(now, new, passed_ms.min(every_ms));
    }
}

impl Table {
    fn runs(&self, now: Time) -> impl Iterator<Item = &str> {
        let turns_ns = u64::from(self.every_ms.max(1)) * u64::from(TURNS_MAX) * 1_000_000;
        let lately =
            move |report: &RuleReport| now.nanos_since(report.seen_at) <= turns_ns.min(silent_ns(self.every_ms));
        self.rules.iter().filter(move |(_, report)| lately(report)).map(|(rule, _)| rule.as_str())
    }
}

/// Silence after which a rule that is reported every `every_ms` is forgotten, in nanoseconds.
fn silent_ns(every_ms: u32) -> u64 {
    (SILENT_TURNS * u64::from(every_ms) * 1_000_000).clamp(SILENT_NS, SILENT_NS_MAX)
}

pub fn together<'a>(replicas: impl IntoIterator<Item = (&'a str, Vec<RuleRates>)>) -> Vec<RuleRates> {
    let mut rules: BTreeMap<String, (DecisionCounts, BTreeMap<&str, u32>)> = BTreeMap::new();
    for (replica, rates) in replicas {
        for RuleRates { rule, milli, pops } in rates {
            let (sum, regions) = rules.entry(rule).or_default();
            *sum = sum.plus(milli);
            // The POPs of a region may report to all its weir-syncs.
            let there = regions.entry(region_of(replica)).or_default();
            *there = (*there).max(pops);
        }
    }
    let whole = |(rule, (milli, regions)): (String, (DecisionCounts, BTreeMap<&str, u32>))| RuleRates {
        rule,
        milli,
        pops: regions.into_values().fold(0, u32::saturating_add),
    };
    rules.into_iter().map(whole).collect()
}

/// Length of the window over which rates are measured, in seconds.
pub const WINDOW_S: u64 = 5;
/// Number of seconds kept: the window, and those to come.
const SECONDS: usize = 48;
/// Maximum time over which a lump is spread, in milliseconds.
const SPREAD_MS_MAX: u64 = 40_000;

#[derive(Clone, Debug)]
struct Flow {
    seconds: [DecisionCounts; SECONDS],
    at_s: u64,
    /// The first second with any counts.
    began_s: u64,
}

impl Flow {
    fn new(now: Time) -> Self {
        let at_s = now.as_nanos() / SECOND_NS;
        Self { seconds: [DecisionCounts::default(); SECONDS], at_s, began_s: at_s + 1 }
    }

    fn add(&mut self, now: Time, counts: DecisionCounts, span_ms: u64) {
        self.turn(now);
        let (mut at_ms, span_ms) = (now.as_nanos() / 1_000_000, span_ms.clamp(1, SPREAD_MS_MAX));
        let from_ms = at_ms;
        let mut given = DecisionCounts::default();
        while at_ms < from_ms + span_ms {
            let second = at_ms / 1_000;
            at_ms = (second * 1_000 + 1_000).min(from_ms + span_ms);
            let upto = counts.part(at_ms - from_ms, span_ms);
            if let Some(slot) = self.slot(second) {
                *slot = slot.plus(upto.minus(given));
            }
            given = upto;
        }
    }

    /// Thousandths per second, over the last whole seconds.
    fn rates(&self, now: Time) -> DecisionCounts {
        let now_s = now.as_nanos() / SECOND_NS;
        let from_s = now_s.saturating_sub(WINDOW_S).max(self.began_s);
        let is_kept = |second: &u64| *second < self.at_s + SECONDS as u64 - WINDOW_S;
        let of = |second: u64| self.seconds.get(index(second)).copied().unwrap_or_default();
        let sum = (from_s..now_s).filter(is_kept).map(of).fold(DecisionCounts::default(), DecisionCounts::plus);
        sum.part(1_000, now_s.saturating_sub(from_s))
    }

    fn slot(&mut self, second: u64) -> Option<&mut DecisionCounts> {
        self.seconds.get_mut(index(second))
    }

    /// Advances the current second; seconds before the window are reused.
    fn turn(&mut self, now: Time) {
        let now_s = now.as_nanos() / SECOND_NS;
        let passed = now_s.saturating_sub(self.at_s).min(SECONDS as u64);
        // Each new last second reuses the slot of the second that leaves the window.
        for ahead in 0..passed {
            let last = now_s - ahead + SECONDS as u64 - WINDOW_S - 1;
            if let Some(slot) = self.slot(last) {
                *slot = DecisionCounts::default();
            }
        }
        self.at_s = self.at_s.max(now_s);
    }
}

#[allow(clippy::cast_possible_truncation, reason = "below the number of seconds that are kept")]
fn index(second: u64) -> usize {
    (second % SECONDS as u64) as usize
}

/// Request counts by decision; or rates, in thousandths of a request per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DecisionCounts {
    pub allowed: u64,
    pub limited: u64,
    /// Requests that a rule in shadow mode let through and would have limited.
    pub shadow: u64,
    /// Requests refused because the POP had no contact with weir-sync.
    pub denied: u64,
}

impl DecisionCounts {
    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            allowed: each(self.allowed, other.allowed),
            limited: each(self.limited, other.limited),
            shadow: each(self.shadow, other.shadow),
            denied: each(self.denied, other.denied),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    fn part(self, part: u64, whole: u64) -> Self {
        self.with(self, |count, _| scaled(count, part, whole))
    }
}

impl From<&RuleCounts> for DecisionCounts {
    fn from(counts: &RuleCounts) -> Self {
        let [allowed, limited, denied, shadow] = counts.decided;
        Self { allowed, limited, shadow, denied }
    }
}

#[cfg(test)]
mod tests;
