//! What requests take, what they got, and which keys took of late.

use alloc::vec::Vec;

use super::wish::{AHEAD_MIN, INTERVAL_NS};
use crate::RuleIndex;
use crate::table::slot::Tag;
use weir_rules::key::KeyValue;
use weir_wire::time::{SECOND_NS, Time};

/// How many keys are remembered that took of late.
const KEYS: usize = 4_096;
/// A key that had a lease this lately gets one again, in nanoseconds.
const LEASED_NS: u64 = SECOND_NS;

/// What a request takes, all of it or nothing.
#[derive(Clone, Debug)]
pub struct Take {
    /// The rule, by its index in the rules in force.
    pub rule: RuleIndex,
    /// The key.
    pub value: KeyValue,
    /// How much.
    pub tokens: u32,
    pub(super) tag: Tag,
}

impl Take {
    /// So many tokens of the key `value`, whose entries have this tag, under `rule`.
    pub(crate) fn of(rule: RuleIndex, value: KeyValue, tokens: u32, tag: Tag) -> Self {
        Self { rule, value, tokens, tag }
    }
}

/// What a budget gave to a [`Take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether it was all there, and is spent.
    pub is_taken: bool,
    /// What the budget has left.
    pub left: u32,
    /// If it was not there: how soon it may be, in milliseconds.
    pub wait_ms: u64,
}

/// What a worker knows of takes.
pub(crate) struct Takes {
    recent: Vec<Recent>,
    /// What was taken for the request at hand.
    pub(super) taken: Option<(Tag, Taken)>,
}

/// A key that took of late. Two keys at the same place displace each other, and are taken for seldom asked.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    tag: u64,
    /// Takes since then, within an interval.
    since: Time,
    count: u64,
    leased_at: Option<Time>,
    pub(super) is_low: bool,
}

impl Default for Takes {
    fn default() -> Self {
        Self { recent: alloc::vec![Recent::default(); KEYS], taken: None }
    }
}

impl Takes {
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
    /// It is asked for again; says whether that is so often that it is worth a lease.
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
