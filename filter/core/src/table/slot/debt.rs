//! One debt, in 24 bits.

use super::tag::Tag;
use weir_protocol::time::Time;

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

/// One debt, in 24 bits.
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
        // A size at which it is 64 to 127 steps after the base. If rounding up exceeds that, the next size.
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

    /// Time at which it is paid: the first one from `base` on that its steps can represent.
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

/// The label of the key `tag`.
pub(super) fn label_of(tag: Tag) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits, on purpose")]
    let key = (tag.bits() as u32 & KEY_MASK).max(1);
    tag.group() << KEY_BITS | key
}
