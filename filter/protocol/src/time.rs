//! Monotonic time, passed as an argument.

use core::ops::{Add, AddAssign};
use core::time::Duration;

pub const SECOND_NS: u64 = 1_000_000_000;

/// Initial reading of a program's own clock, in nanoseconds: 13 days.
const BEGIN_NS: u64 = 1 << 50;

/// A point on the host's monotonic clock, in nanoseconds since an epoch that the host chooses.
///
/// Arithmetic saturates: a clock that steps back yields an empty span, never a wrapped one (invariant I8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The earliest point in time; a bucket "full at zero" has always been full.
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Reading of a program's own clock, `after` or `before` its start. It begins far above zero, so that a step back
    /// to before the start can be represented.
    pub fn of_own_clock(after: Duration, before: Duration) -> Self {
        let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2);
        Self(BEGIN_NS.saturating_add(ns(after)).saturating_sub(ns(before)))
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Self;

    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl AddAssign<u64> for Time {
    fn add_assign(&mut self, ns: u64) {
        *self = *self + ns;
    }
}
