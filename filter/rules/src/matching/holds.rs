//! What a test says of a request, and what several say together.

/// Whether a test holds; of some requests that cannot be told. Three values in order (Kleene's strong logic): all of
/// several tests hold as the least of them does, and one of them as the greatest.
///
/// What cannot be told is for the place to decide: it is refused by `deny`, counted by a rule, never let off by
/// `allow`, and given no better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// It does not.
    No,
    /// Nobody can say: the value is too long for the test, or the upstream may read it in another way.
    Unsure,
    /// It does.
    Yes,
}

impl Holds {
    /// What can be told: whether it `holds`.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    /// Whether it does, or nobody can say.
    pub fn may(self) -> bool {
        self != Self::No
    }

    /// Both; the other is not asked where it makes no difference.
    pub(super) fn and(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::No { self } else { self.min(other()) }
    }

    /// All of them; none at all hold.
    pub(super) fn all<T>(items: &[T], mut holds: impl FnMut(&T) -> Self) -> Self {
        let mut all = Self::Yes;
        for item in items {
            all = all.and(|| holds(item));
        }
        all
    }

    /// One of them; of none at all, none does.
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
