//! Request counts by decision.

use weir_protocol::messages::RuleCounts;

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
        let of = |count: u64, _| {
            let part = u128::from(count) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        self.with(self, of)
    }
}

impl From<&RuleCounts> for DecisionCounts {
    fn from(counts: &RuleCounts) -> Self {
        let [allowed, limited, denied, shadow] = counts.decided;
        Self { allowed, limited, shadow, denied }
    }
}
