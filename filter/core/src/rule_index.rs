//! A rule's place among the rules in force.

use weir_rules::NO_RULE;

/// A rule's index in the limiter's rules, as long as they are not replaced. Messages number the rules that they
/// refer to for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleIndex(u16);

impl RuleIndex {
    /// The index of no rule.
    pub(crate) const NONE: Self = Self(NO_RULE);

    /// The rule at this place of [`weir_rules::RuleSet::rules`].
    pub const fn new(place: u16) -> Self {
        Self(place)
    }

    /// The same, if there may be as many rules.
    pub(crate) fn of(place: usize) -> Option<Self> {
        u16::try_from(place).ok().map(Self)
    }
}

impl From<RuleIndex> for usize {
    fn from(index: RuleIndex) -> Self {
        Self::from(index.0)
    }
}
