//! Tags, which identify entries in their slots; and times and debts in few bits, as slots store them.

use crate::FIBONACCI;
use weir_protocol::time::Time;

/// Set in the tag of an overflow cell, not in a key's.
const OVERFLOW_BIT: u64 = 1 << 63;
/// Set in the tag of another algorithm's cell, not in a bucket's: no debt can replace a cell.
const CELL_BIT: u64 = 1 << 62;
/// Position of a rule's group in a tag.
const GROUP_SHIFT: u32 = 58;
/// Bits of a tag that depend only on its rule's salt.
const RULE_BITS: u64 = u64::MAX << GROUP_SHIFT;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub(super) u64);

impl Tag {
    pub(super) const GROUP_BITS: u32 = 4;

    /// A rule's salt from a hash. `is_cell` is true if its keys are counted in cells instead of buckets.
    pub(crate) const fn salt(hash: u64, is_cell: bool) -> u64 {
        if is_cell { hash | CELL_BIT } else { hash & !CELL_BIT }
    }

    /// The tag of a key under the rule with this salt.
    pub(crate) const fn of_key(key_tag: u64, rule_salt: u64) -> Self {
        Self((key_tag & !RULE_BITS ^ rule_salt) & !OVERFLOW_BIT)
    }

    /// The tag under the rule with `other_salt` of the key that has this tag under the rule with `salt`.
    #[must_use]
    pub(crate) const fn under(self, salt: u64, other_salt: u64) -> Self {
        Self(self.0 ^ (salt ^ other_salt) & !OVERFLOW_BIT)
    }

    pub(crate) const fn of_overflow(rule_salt: u64) -> Self {
        Self(rule_salt | OVERFLOW_BIT | CELL_BIT)
    }

    pub(crate) const fn is_overflow(self) -> bool {
        self.0 & OVERFLOW_BIT != 0
    }

    pub(crate) const fn is_cell(self) -> bool {
        self.0 & CELL_BIT != 0
    }

    /// The group of the tag's rule; only for a bucket's tag.
    pub(super) const fn group(self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "a few bits")]
        let group = (self.0 >> GROUP_SHIFT) as u32 & ((1 << Self::GROUP_BITS) - 1);
        group
    }

    /// The `i`-th tag of this key: this tag for 0, a cell's tag for other numbers.
    #[must_use]
    pub(crate) const fn beside(self, i: u8) -> Self {
        if i == 0 {
            return self;
        }
        // The factor is odd, so all 256 differ; the overflow bit is unchanged.
        Self((self.0 ^ (i as u64).wrapping_mul(FIBONACCI) & !OVERFLOW_BIT) | CELL_BIT)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

/// A time in steps of 2^22 ns (4 ms), modulo 2^24 steps. It measures ages up to half of that, ten hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(u32);

/// Binary logarithm of a step in nanoseconds.
pub(super) const STEP_BITS: u32 = 22;
/// Likewise for a strict rule's times: a microsecond, because a refusal in a window's last step may be wrong.
pub(super) const FINE_BITS: u32 = 10;
pub(super) const MOMENT_BITS: u32 = 24;
const MOMENT_MASK: u32 = (1 << MOMENT_BITS) - 1;

impl Moment {
    pub(crate) fn of(time: Time) -> Self {
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

    /// Nanoseconds from this to `now`, which is later: at most the true time, and less by at most two steps.
    pub(super) fn nanos_until(self, now: Time) -> u64 {
        match self.steps_until(Self::of(now)) {
            // The clock stepped back.
            steps if steps > MOMENT_MASK / 2 => 0,
            steps => u64::from(steps.saturating_sub(1)) << STEP_BITS,
        }
    }

    /// This moment, or a quarter of the range before `now` if older, since an older one would soon read as future.
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

/// The epoch that starts at `now`, in steps of 2^20 ns. It wraps after 52 days, when nothing holds the old value.
pub(super) fn epoch_of(now: Time) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "wraps on purpose")]
    let epoch = (now.as_nanos() >> 20) as u32;
    epoch
}

/// Bits of a debt, from the highest: its label, the size of its steps, and its time in steps.
pub(super) const LABEL_SHIFT: u32 = 12;
const SIZE_SHIFT: u32 = 7;
const SIZE_MASK: u32 = (1 << (LABEL_SHIFT - SIZE_SHIFT)) - 1;
const STEPS_MASK: u32 = (1 << SIZE_SHIFT) - 1;
/// Bits of a label that come from the key; the others are its group.
pub(super) const KEY_BITS: u32 = 8;
pub(super) const KEY_MASK: u32 = (1 << KEY_BITS) - 1;
/// The shortest step is 2^18 ns, a quarter of a millisecond; the longest, 2^49.
pub(super) const STEP_BITS_MIN: u32 = 18;
/// Longest debt that can be stored, in nanoseconds: more than a year.
pub(super) const DEBT_NS_MAX: u64 = 64 << (STEP_BITS_MIN + SIZE_MASK);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Debt(u32);

impl Debt {
    pub(super) fn from_bytes([low, middle, high]: [u8; 3]) -> Self {
        Self(u32::from_le_bytes([low, middle, high, 0]))
    }

    pub(super) fn bytes(self) -> [u8; 3] {
        let [low, middle, high, _] = self.0.to_le_bytes();
        [low, middle, high]
    }

    /// The debt that is paid at `until`, rounded up; `base` is at most [`DEBT_NS_MAX`] before that.
    pub(super) fn new(label: u32, until: Time, base: Time) -> Self {
        let owes = until.nanos_since(base);
        // A size at which the time is 64 to 127 steps after the base. If rounding up exceeds that, the next size.
        let size = (u64::BITS - owes.leading_zeros()).saturating_sub(SIZE_SHIFT).max(STEP_BITS_MIN);
        let steps = |size: u32| until.as_nanos().div_ceil(1 << size);
        let ahead = steps(size).saturating_sub(base.as_nanos() >> size);
        let size = if ahead > u64::from(STEPS_MASK) { size + 1 } else { size };
        #[allow(clippy::cast_possible_truncation, reason = "the low bits, on purpose")]
        let low = steps(size) as u32 & STEPS_MASK;
        let size = (size - STEP_BITS_MIN).min(SIZE_MASK);
        Self(label << LABEL_SHIFT | size << SIZE_SHIFT | low)
    }

    pub(super) fn label(self) -> u32 {
        self.0 >> LABEL_SHIFT
    }

    /// Time at which the debt is paid off: the earliest one at or after `base` that its steps can represent.
    pub(super) fn until(self, base: Time) -> Time {
        let size = STEP_BITS_MIN + (self.0 >> SIZE_SHIFT & SIZE_MASK);
        let begin = base.as_nanos() >> size;
        let ahead = u64::from(self.0).wrapping_sub(begin) & u64::from(STEPS_MASK);
        Time::from_nanos((begin + ahead) << size)
    }

    pub(super) fn group(self) -> usize {
        (self.label() >> KEY_BITS) as usize
    }

    pub(super) fn is_shared(self) -> bool {
        self.label() & KEY_MASK == 0
    }

    /// The same debt, shared by all keys of its group.
    pub(super) fn shared(self) -> Self {
        Self(self.0 & !(KEY_MASK << LABEL_SHIFT))
    }
}

pub(super) fn label_of(tag: Tag) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits, on purpose")]
    let key = (tag.bits() as u32 & KEY_MASK).max(1);
    tag.group() << KEY_BITS | key
}
