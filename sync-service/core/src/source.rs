//! A budget's record of a source, and the timing that the source's reports imply.

use alloc::string::String;

/// Maximum count in a record; larger counts are clamped to it.
pub const COUNT_MAX: u64 = (1 << 53) - 1;
/// Maximum number of tokens in one charge: twelve days at the highest rate there is.
pub const CHARGE_TOKENS_MAX: u64 = 1 << 40;

/// Maximum time of a POP's clock, in milliseconds, over a century; larger times are clamped to it.
pub const MADE_MS_MAX: u64 = 1 << 42;
/// Maximum delay of a report, in microseconds: the time for which a POP waits for an answer. If a report seems
/// later, the store's clock has stepped, and there was no delay.
pub const DELAY_US_MAX: u64 = 10_000_000;
/// Reduction of a delay for each millisecond of the POP's clock, in microseconds: one per cent more than a
/// millisecond, so that a drift or a jump of clocks does not count as a delay for ever.
pub const PACE_US: u64 = 1_010;

// Lua's doubles must hold each of these exactly.
const _: () = assert!(MADE_MS_MAX * PACE_US < 1 << 53);

/// Name of a sequence of counts: one bucket of one POP. Ordered by epoch, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The bucket's epoch.
    pub epoch: u64,
    /// The POP's name.
    pub pop: String,
}

/// Cumulative count of a source, from a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The bucket's epoch.
    pub epoch: u64,
    /// Tokens admitted since the epoch began.
    pub admitted: u64,
    /// Part of `admitted` to charge if the epoch is not on record.
    pub unconfirmed: u64,
    /// Age of the oldest admission that is not on record, in microseconds.
    pub span_us: u64,
    /// Tokens that the POP's own bucket has not refilled since, and so were admitted recently.
    pub missing: u64,
    /// Time of the report, in milliseconds of the POP's own clock.
    pub made_ms: u64,
}

/// Charged count of a source, and the time of its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceRecord {
    admitted: u64,
    /// In microseconds of the store's clock.
    pub(crate) seen_us: u64,
    /// Time of the latest report by the POP's clock.
    made_ms: u64,
    /// Excess of that report's transit time over the quickest, in microseconds.
    delay_us: u64,
}

/// The new part of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Tokens not charged before.
    pub(crate) tokens: u64,
    /// Time between the record's latest report and this one by the POP's clock, in microseconds.
    pub(crate) since_us: u64,
    /// Delay of this report, in microseconds.
    pub(crate) delay_us: u64,
}

impl SourceRecord {
    /// Creates the record of a source at its first count. Returns the new tokens, too.
    pub(crate) fn begin(now_us: u64, count: &Count) -> (Self, News) {
        let admitted = count.admitted.min(COUNT_MAX);
        let made_ms = count.made_ms.min(MADE_MS_MAX);
        let tokens = count.unconfirmed.min(admitted).min(CHARGE_TOKENS_MAX);
        let record = Self { admitted, seen_us: now_us, made_ms, delay_us: 0 };
        (record, News { tokens, since_us: now_us, delay_us: 0 })
    }

    /// Excess of the time that passed until `now_us` over the time by the POP's clock, in microseconds, since
    /// the last report would have arrived without its delay. Negative if less time passed.
    pub(crate) fn late_us(&self, now_us: u64, count: &Count) -> i64 {
        let gap_us = count.made_ms.min(MADE_MS_MAX).saturating_sub(self.made_ms) * 1_000;
        let passed_us = self.delay_us.saturating_add(now_us.saturating_sub(self.seen_us));
        passed_us.cast_signed().saturating_sub(gap_us.cast_signed())
    }

    /// Records a count. Returns the new part of it.
    ///
    /// Delayed reports arrive in a bunch, so the POP's clock gives the time between two of them. If they arrive
    /// farther apart than that, the later one was delayed by the difference. If they arrive closer together,
    /// the delay has shrunk by it. A report that was overtaken changes nothing in the timing.
    pub(crate) fn observe(&mut self, now_us: u64, count: &Count) -> News {
        let admitted = count.admitted.min(COUNT_MAX);
        let made_ms = count.made_ms.min(MADE_MS_MAX);
        let gap_ms = made_ms.saturating_sub(self.made_ms);
        let passed_us = now_us.saturating_sub(self.seen_us);
        let is_step = passed_us.saturating_sub(gap_ms * 1_000) > DELAY_US_MAX;
        let passed_us = if is_step { gap_ms * 1_000 } else { passed_us };
        let delay_us = self.delay_us.saturating_add(passed_us);
        let delay_us = delay_us.saturating_sub(gap_ms * PACE_US).min(DELAY_US_MAX);
        let tokens = admitted.saturating_sub(self.admitted).min(CHARGE_TOKENS_MAX);
        *self = Self {
            admitted: self.admitted.max(admitted),
            seen_us: now_us,
            made_ms: self.made_ms.max(made_ms),
            delay_us,
        };
        News { tokens, since_us: gap_ms * 1_000, delay_us }
    }
}
