//! Request counts by decision, and their conversion from lumps to a rate.

use weir_protocol::messages::RuleCounts;
use weir_protocol::time::{SECOND_NS, Time};

use crate::scaled;

/// Length of the window over which rates are measured, in seconds.
pub const WINDOW_S: u64 = 5;
/// Number of seconds kept: the window, and those to come.
const SECONDS: usize = 48;
/// Maximum time over which a lump is spread, in milliseconds.
const SPREAD_MS_MAX: u64 = 40_000;

/// Counts by second.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    seconds: [DecisionCounts; SECONDS],
    /// The current second.
    at_s: u64,
    /// The first second with any counts.
    began_s: u64,
}

impl Flow {
    pub(super) fn new(now: Time) -> Self {
        let at_s = now.as_nanos() / SECOND_NS;
        Self { seconds: [DecisionCounts::default(); SECONDS], at_s, began_s: at_s + 1 }
    }

    /// Spreads `counts` over the next `span_ms`.
    pub(super) fn add(&mut self, now: Time, counts: DecisionCounts, span_ms: u64) {
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
    pub(super) fn rates(&self, now: Time) -> DecisionCounts {
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
        // A second that becomes the last one to come reuses the slot of the one that leaves the window.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// Let through.
    pub allowed: u64,
    /// Limited.
    pub limited: u64,
    /// Let through by a rule in shadow, which would have limited them.
    pub shadow: u64,
    /// Refused because the POP had no contact with weir-sync.
    pub denied: u64,
}

impl DecisionCounts {
    /// Combines each count with the same count of `other`.
    pub(super) fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            allowed: each(self.allowed, other.allowed),
            limited: each(self.limited, other.limited),
            shadow: each(self.shadow, other.shadow),
            denied: each(self.denied, other.denied),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// Scales all counts by `part / whole`.
    pub(super) fn part(self, part: u64, whole: u64) -> Self {
        self.with(self, |count, _| scaled(count, part, whole))
    }
}

impl From<&RuleCounts> for DecisionCounts {
    fn from(counts: &RuleCounts) -> Self {
        let [allowed, limited, denied, shadow] = counts.decided;
        Self { allowed, limited, shadow, denied }
    }
}
