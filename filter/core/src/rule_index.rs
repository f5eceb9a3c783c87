//! The index of a rule among the rules in force.

use weir_rules::NO_RULE;

/// Index of a rule in the limiter's rules, valid until these are replaced. Messages number the rules that
/// they refer to separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleIndex(u16);

impl RuleIndex {
    /// The index of no rule.
    pub(crate) const NONE: Self = Self(NO_RULE);

    /// The rule at `place` in [`weir_rules::RuleSet::rules`].
    pub const fn new(place: u16) -> Self {
        Self(place)
    }

    /// [`RuleIndex::new`] for any number; none if it is too large.
    pub(crate) fn of(place: usize) -> Option<Self> {
        u16::try_from(place).ok().map(Self)
    }
}

impl From<RuleIndex> for usize {
    fn from(index: RuleIndex) -> Self {
        Self::from(index.0)
    }
}
