//! The result of a test on a request, and of several together.

/// Whether a test holds, which is undecided for some requests. The three values are ordered (Kleene's strong logic):
/// "all of these tests" is the least of their results, "one of these tests" the greatest.
///
/// Each use settles what is undecided: `deny` refuses such a request, a rule counts it, `allow` does not let it off,
/// and it gets no better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// It does not.
    No,
    /// It is undecided: the value is too long for the test, or the upstream may read it in another way.
    Unsure,
    /// It does.
    Yes,
}

impl Holds {
    /// `Yes` if it `holds`, else `No`.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    /// Whether it does, or may.
    pub fn may(self) -> bool {
        self != Self::No
    }

    /// Whether both hold; `other` is not called if it makes no difference.
    pub(crate) fn and(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::No { self } else { self.min(other()) }
    }

    /// Whether all of them hold; `Yes` if there are none.
    pub(super) fn all<T>(items: &[T], mut holds: impl FnMut(&T) -> Self) -> Self {
        let mut all = Self::Yes;
        for item in items {
            all = all.and(|| holds(item));
        }
        all
    }

    /// Whether one of them holds; `No` if there are none.
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
