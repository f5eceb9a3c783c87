//! Times in few bits, as stored in a slot.

use weir_protocol::time::Time;

/// A time in steps of 2^22 ns (about 4 ms), modulo 2^24 steps. It measures ages up to half of that range,
/// about ten hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u32);

/// Binary logarithm of a step in nanoseconds.
pub(super) const STEP_BITS: u32 = 22;
/// Binary logarithm of a step of a strict rule's times: a microsecond, because a refusal in the last step of
/// a window may be wrong.
pub(super) const FINE_BITS: u32 = 10;
/// Bits of a [`Moment`].
pub(super) const MOMENT_BITS: u32 = 24;
const MOMENT_MASK: u32 = (1 << MOMENT_BITS) - 1;

impl Moment {
    /// The step that `time` is in.
    pub fn of(time: Time) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "wraps on purpose")]
        Self::from_bits((time.as_nanos() >> STEP_BITS) as u32)
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits & MOMENT_MASK)
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    fn steps_until(self, later: Self) -> u32 {
        later.0.wrapping_sub(self.0) & MOMENT_MASK
    }

    pub(super) fn is_before(self, other: Self) -> bool {
        (1..=MOMENT_MASK / 2).contains(&self.steps_until(other))
    }

    /// Nanoseconds from this to `now`, which is later: never more than have passed, and less by at most two
    /// steps.
    pub(super) fn nanos_until(self, now: Time) -> u64 {
        match self.steps_until(Self::of(now)) {
            // The clock stepped back.
            steps if steps > MOMENT_MASK / 2 => 0,
            steps => u64::from(steps.saturating_sub(1)) << STEP_BITS,
        }
    }

    /// This moment, or a quarter of the range before `now` if it is older. An older one would soon read as
    /// being in the future.
    pub(super) fn within_reach(self, now: Time) -> Self {
        let now = Self::of(now);
        let is_far = self.steps_until(now) > MOMENT_MASK / 4 && self.is_before(now);
        if is_far { Self::from_bits(now.0.wrapping_sub(MOMENT_MASK / 4)) } else { self }
    }
}

/// `time`, rounded down to the steps that a slot stores.
pub(super) fn stepped(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() >> STEP_BITS << STEP_BITS)
}

/// `time`, rounded down to the steps that a slot stores for a strict rule's key.
pub(super) fn fine(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() >> FINE_BITS << FINE_BITS)
}

/// The epoch that starts at `now`, in steps of 2^20 ns (about a millisecond). It wraps after 52 days, when
/// nothing holds the old value any more.
pub(super) fn epoch_of(now: Time) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "wraps on purpose")]
    let epoch = (now.as_nanos() >> 20) as u32;
    epoch
}
