//! Consuming from the budget: requests, answers, and the keys that consumed recently.

use alloc::vec::Vec;

use super::wish::{AHEAD_MIN, INTERVAL_NS};
use crate::RuleIndex;
use crate::table::slot::Tag;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::key::KeyValue;

/// Number of keys for which recent use is remembered.
const KEYS: usize = 4_096;
/// Time after a lease in which the key gets another one, in nanoseconds.
const LEASED_NS: u64 = SECOND_NS;

/// Tokens that a request consumes from the budget, all or none.
#[derive(Clone, Debug)]
pub struct Consume {
    /// Index of the rule in the rules in force.
    pub rule: RuleIndex,
    /// The key.
    pub value: KeyValue,
    /// The number of tokens.
    pub tokens: u32,
    pub(super) tag: Tag,
}

impl Consume {
    /// `tokens` of the key `value` under `rule`, whose entries have this tag.
    pub(crate) fn of(rule: RuleIndex, value: KeyValue, tokens: u32, tag: Tag) -> Self {
        Self { rule, value, tokens, tag }
    }
}

/// A budget's answer to a [`Consume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumeReply {
    /// True if all tokens were debited.
    pub is_taken: bool,
    /// Tokens left in the budget.
    pub left: u32,
    /// Milliseconds until the missing tokens may be there; 0 if unknown.
    pub wait_ms: u64,
}

/// A worker's state for consuming from budgets.
pub(crate) struct ConsumeState {
    recent: Vec<Recent>,
    /// The answer for the current request.
    pub(super) taken: Option<(Tag, ConsumeReply)>,
}

/// A key that consumed recently. Two keys with the same place displace each other, and then count as rarely
/// used.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    tag: u64,
    /// Start of the current interval, and the number of requests in it.
    since: Time,
    count: u64,
    leased_at: Option<Time>,
    pub(super) is_low: bool,
}

impl Default for ConsumeState {
    fn default() -> Self {
        Self { recent: alloc::vec![Recent::default(); KEYS], taken: None }
    }
}

impl ConsumeState {
    pub(super) fn recent(&mut self, tag: Tag) -> Option<&mut Recent> {
        let place = usize::try_from(tag.bits() % KEYS as u64).unwrap_or_default();
        let recent = self.recent.get_mut(place)?;
        if recent.tag != tag.bits() {
            *recent = Recent { tag: tag.bits(), ..Recent::default() };
        }
        Some(recent)
    }
}

impl Recent {
    /// Counts one more request. Returns true if the key is asked for often enough to be worth a lease.
    pub(super) fn is_often(&mut self, now: Time) -> bool {
        if self.count == 0 || now.nanos_since(self.since) >= INTERVAL_NS {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        let had_lease = self.leased_at.is_some_and(|at| now.nanos_since(at) < LEASED_NS);
        let is_often = !self.is_low && (self.count > AHEAD_MIN || had_lease);
        if is_often {
            self.leased_at = Some(now);
        }
        is_often
    }
}
