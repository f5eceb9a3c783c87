//! Three-valued result of a test on a request, and its logic.

/// Result of a test, which is unsure for some requests. The three values are ordered (Kleene's strong logic): a
/// conjunction is the minimum of its results, a disjunction the maximum.
///
/// An unsure result counts in the strict direction: `deny` refuses the request, a rule counts it, `allow` does not
/// exempt it, and it gets no better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    No,
    /// The value is too long for the test, or the upstream may interpret it differently.
    Unsure,
    Yes,
}

impl Holds {
    pub fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    pub fn may(self) -> bool {
        self != Self::No
    }

    /// Conjunction of both; `other` is not called if `self` decides the result.
    pub(crate) fn and(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::No { self } else { self.min(other()) }
    }

    /// Conjunction of the results for `items`; `Yes` if there are none.
    pub(super) fn all<T>(items: &[T], mut holds: impl FnMut(&T) -> Self) -> Self {
        let mut all = Self::Yes;
        for item in items {
            all = all.and(|| holds(item));
        }
        all
    }

    /// Disjunction of the results for `items`; `No` if there are none.
    pub(super) fn any<T>(items: &[T], mut holds: impl FnMut(&T) -> Self) -> Self {
        let mut any = Self::No;
        for item in items {
            if any == Self::Yes {
                break;
            }
            any = any.max(holds(item));
        }
        any
    }
}

impl core::ops::Not for Holds {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Unsure => Self::Unsure,
            Self::Yes => Self::No,
        }
    }
}
