//! What a budget has on record of a source, and what the source's reports say of time.

use alloc::string::String;

/// The largest count a record holds; larger ones are taken as this.
pub const COUNT_MAX: u64 = (1 << 53) - 1;
/// The most tokens one charge takes: twelve days at the highest rate there is.
pub const CHARGE_TOKENS_MAX: u64 = 1 << 40;

/// The latest that a POP's clock is believed to show, in milliseconds: a century and more.
pub const MADE_MS_MAX: u64 = 1 << 42;
/// The longest that a report is believed to have been held up, in microseconds: as long as a POP waits for an answer.
/// If it seems longer, the store's clock has stepped, and there was no delay.
pub const DELAY_US_MAX: u64 = 10_000_000;
/// What a millisecond of a POP's clock takes off a delay, in microseconds: a hundredth more than it is, so that clocks
/// which drift or jump are not taken for a delay for ever.
pub const PACE_US: u64 = 1_010;

// Doubles must hold each of these exactly.
const _: () = assert!(MADE_MS_MAX * PACE_US < 1 << 53);

/// Names a span of counts: one bucket of one POP. Ordered by epoch, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The bucket's epoch.
    pub epoch: u64,
    /// The POP's name.
    pub pop: String,
}

/// What a source has admitted, as a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The bucket's epoch.
    pub epoch: u64,
    /// Tokens admitted since the epoch began.
    pub admitted: u64,
    /// The part of `admitted` to charge where the epoch is not on record.
    pub unconfirmed: u64,
    /// How long ago the first of what is not on record may have been admitted, in microseconds.
    pub span_us: u64,
    /// Tokens that the POP's own bucket has not refilled since: they were admitted of late.
    pub missing: u64,
    /// When the report was made, in milliseconds of the POP's own clock.
    pub made_ms: u64,
}

/// What has been charged for a source, and when it was last heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceRecord {
    admitted: u64,
    /// On the store's clock.
    pub(crate) seen_us: u64,
    /// The POP's clock when its latest report was made.
    made_ms: u64,
    /// How much longer that report was under way than the quickest, in microseconds.
    delay_us: u64,
}

/// What is new in a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Tokens that were not charged yet.
    pub(crate) tokens: u64,
    /// How long after the record's latest report this one was made, in microseconds.
    pub(crate) since_us: u64,
    /// How long this report was held up, in microseconds.
    pub(crate) delay_us: u64,
}

impl SourceRecord {
    /// The record of a source that has none yet, and what is new in its first count.
    pub(crate) fn begin(now_us: u64, count: &Count) -> (Self, News) {
        let admitted = count.admitted.min(COUNT_MAX);
        let made_ms = count.made_ms.min(MADE_MS_MAX);
        let tokens = count.unconfirmed.min(admitted).min(CHARGE_TOKENS_MAX);
        let record = Self { admitted, seen_us: now_us, made_ms, delay_us: 0 };
        (record, News { tokens, since_us: now_us, delay_us: 0 })
    }

    /// How much more time has passed at `now_us` than the POP's clock says, in microseconds, counted from when the last
    /// report would have arrived without its delay; negative where it is less.
    pub(crate) fn late_us(&self, now_us: u64, count: &Count) -> i64 {
        let gap_us = count.made_ms.min(MADE_MS_MAX).saturating_sub(self.made_ms) * 1_000;
        let passed_us = self.delay_us.saturating_add(now_us.saturating_sub(self.seen_us));
        passed_us.cast_signed().saturating_sub(gap_us.cast_signed())
    }

    /// Notes a count, and returns what is new in it.
    ///
    /// Reports that were held up arrive in a bunch, so the POP's clock says how much time lies between two. If they
    /// arrive farther apart than that, the later one was delayed by the difference; if closer together, the delay has
    /// shrunk by it. A report that was overtaken says nothing new of time.
    pub(crate) fn hear(&mut self, now_us: u64, count: &Count) -> News {
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
