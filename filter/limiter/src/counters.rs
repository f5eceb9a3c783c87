//! Counts of decisions and events for the host's metrics.

use alloc::vec::Vec;
use core::ops::Range;

use crate::RuleIndex;
use weir_protocol::messages::{COUNTED_MAX, RULES_MAX};

/// An event that is counted, besides decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedEvent {
    /// A spent entry was dropped from a slot to make room.
    Evicted,
    /// A new key started with other keys' debts, or shared an overflow cell, because its slot was full.
    Overflowed,
    /// A write conflicted with another worker's and was retried.
    CasRetried,
    /// All retries of a write conflicted; the decision is based on the last read.
    CasGaveUp,
    /// A slot's bytes were invalid; it counted as empty.
    Corrupt,
    /// A slot was missing, because the host dropped it; it counted as empty.
    Missing,
    /// The host's shared data failed. The slot counted as empty, or was not written.
    Unavailable,
    LocalCacheHits,
    /// The client's address was unreadable; rules that count by it applied their `missing`.
    AddressUnreadable,
    Reported,
    /// A report was answered, and all of its counts are charged.
    Answered,
    /// A report was answered, but not all of its counts are charged: weir-sync cannot reach its store or a part of it,
    /// or the report exceeded its report limits.
    Partial,
    /// A report got no reply, or an unreadable one.
    SyncFailed,
    /// A watched key found no room in its slot or on the worker's watch list, so this worker does not report it.
    SyncDropped,
    /// A request waited for a strict rule's tokens.
    Paused,
    /// A key was banned here, by a rule's penalty.
    Banned,
    /// A request in flight could not be released; its place expires.
    Unreleased,
    /// A request's cost could not be charged, or unused tokens could not be given back.
    Uncharged,
    /// A request was on the `allow` list, so no rule counted it.
    ListAllowed,
    ListBlocked,
}

impl CountedEvent {
    /// Each event with the name of its metric, in the order of the variants.
    pub const METRICS: [(Self, &'static str); 20] = [
        (Self::Evicted, "weir.table.evicted"),
        (Self::Overflowed, "weir.table.overflowed"),
        (Self::CasRetried, "weir.table.cas_retried"),
        (Self::CasGaveUp, "weir.table.cas_gave_up"),
        (Self::Corrupt, "weir.table.corrupt"),
        (Self::Missing, "weir.table.missing"),
        (Self::Unavailable, "weir.table.unavailable"),
        (Self::LocalCacheHits, "weir.local_cache.hits"),
        (Self::AddressUnreadable, "weir.address.unreadable"),
        (Self::Reported, "weir.sync.reported"),
        (Self::Answered, "weir.sync.answered"),
        (Self::Partial, "weir.sync.partial"),
        (Self::SyncFailed, "weir.sync.failed"),
        (Self::SyncDropped, "weir.sync.dropped"),
        (Self::Paused, "weir.strict.paused"),
        (Self::Banned, "weir.penalty.banned"),
        (Self::Unreleased, "weir.concurrency.unreleased"),
        (Self::Uncharged, "weir.cost.uncharged"),
        (Self::ListAllowed, "weir.list.allowed"),
        (Self::ListBlocked, "weir.list.blocked"),
    ];
}

#[derive(Clone, Debug)]
pub struct Counters {
    events: [u32; CountedEvent::METRICS.len()],
    rules: Vec<RuleCounters>,
}

/// Maximum number of rules with metrics in a process, including replaced ones. Further rules have none.
pub const RULES_COUNTED_MAX: usize = 4 * RULES_MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Requests counted by the rule and admitted.
    pub allowed: u32,
    pub limited: u32,
    /// Requests that the rule denied, because the POP was offline.
    pub denied: u32,
    /// Requests that the rule would have limited if it were enforced for their keys.
    pub shadow_limited: u32,
}

impl RuleCounters {
    pub const NAMES: [&str; 4] = ["allowed", "limited", "denied", "shadow_limited"];

    /// The counts in the order of [`Self::NAMES`].
    pub const fn counts(&self) -> [u32; 4] {
        [self.allowed, self.limited, self.denied, self.shadow_limited]
    }
}

impl Counters {
    pub(crate) fn new(rules: usize) -> Self {
        Self { events: [0; CountedEvent::METRICS.len()], rules: alloc::vec![RuleCounters::default(); rules] }
    }

    /// Resizes to `rules` new rules. The counts of the rule at `i` move to `to(i)`, or are lost.
    pub(crate) fn rearrange(&mut self, rules: usize, to: impl Fn(usize) -> Option<usize>) {
        let before = core::mem::replace(&mut self.rules, alloc::vec![RuleCounters::default(); rules]);
        for (i, counts) in before.into_iter().enumerate() {
            if let Some(place) = to(i).and_then(|to| self.rules.get_mut(to)) {
                *place = counts;
            }
        }
    }

    pub(crate) fn add(&mut self, event: CountedEvent, n: u32) {
        if let Some(count) = self.events.get_mut(event as usize) {
            *count = count.saturating_add(n);
        }
    }

    pub(crate) fn count(&mut self, rule: RuleIndex, which: impl FnOnce(&mut RuleCounters) -> &mut u32) {
        if let Some(counts) = self.rules.get_mut(usize::from(rule)) {
            let count = which(counts);
            *count = count.saturating_add(1);
        }
    }

    /// Counts a request that the first `rules` rules let through.
    pub(crate) fn count_allowed(&mut self, rules: usize) {
        for counts in self.rules.iter_mut().take(rules) {
            counts.allowed = counts.allowed.saturating_add(1);
        }
    }

    /// Takes the count of `event` since the last call.
    pub fn take_event(&mut self, event: CountedEvent) -> u32 {
        self.events.get_mut(event as usize).map_or(0, core::mem::take)
    }

    /// Takes a rule's decisions since the last call.
    pub fn take_rule(&mut self, rule: usize) -> RuleCounters {
        self.rules.get_mut(rule).map_or(RuleCounters::default(), core::mem::take)
    }
}

/// Indices of the rules, out of `rules`, that are reported in `turn`: at most [`COUNTED_MAX`].
pub fn reported_in_turn(turn: u64, rules: usize) -> Range<usize> {
    let turns = turns_of(rules);
    let (at, size) = (usize::try_from(turn % turns as u64).unwrap_or(0), rules.div_ceil(turns));
    (at * size).min(rules)..((at + 1) * size).min(rules)
}

pub(crate) fn turns_of(rules: usize) -> usize {
    rules.div_ceil(COUNTED_MAX).max(1)
}

#[derive(Clone, Copy, Debug)]
pub enum Gauge {
    /// Estimated number of keys in the table.
    EntriesUsed,
    /// Connectivity: 0 fresh, 1 stale, 2 fallback.
    SyncState,
    /// Version of the rule set in force; 0 for the configuration's own.
    Running,
    /// Version of the latest refused rule set.
    Refused,
}

/// Names of the gauges, in order. Without weir-sync only the first is defined.
pub const GAUGES: [&str; 4] =
    ["weir.table.entries_used", "weir.sync.state", "weir.rule_set.running", "weir.rule_set.refused"];
