//! A weir-sync's estimate of its store's clock.
//!
//! It is a wall clock. It may jump ahead, as at a fail-over to a host whose clock is wrong, and would then refill every
//! budget. A weir-sync's own clock never steps. So a weir-sync computes the latest time that the store's clock can
//! show, detects time that was skipped, and sends both with each charge and acquire.
//!
//! **A call that arrives when the clock shows more than the latest time is refused**, and nothing is written: the clock
//! has jumped, or the store hung. The answer has the clock's time, so a weir-sync that still waits can tell the two,
//! and sends the call again. Time for which a store hung counts as time.
//!
//! **A jump that a caller has seen** is subtracted once from the time that passed for the budget.
//!
//! **Effect of a jump.** A budget that is used by a weir-sync that was in contact with the store before the jump
//! refills by no more than the time that passed, whoever else uses it, and in whichever order. A jump of less than
//! [`MARGIN_US`] (and a thousandth of the time since the last answer) counts as time. A weir-sync that starts later
//! goes by its machine's wall clock at first, and fills no budgets either unless that is ahead as well.

/// Tolerance for the expected time, in microseconds: longer than weir-sync usually waits for an answer, so that a slow
/// call, or one to a server whose clock differs by less, is not sent twice.
pub const MARGIN_US: u64 = 1_000_000;
/// Clocks may differ in pace by one part in this many.
const PACE_PART: u64 = 1_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jump {
    /// Clock time up to which records may be from before the jumps, in microseconds.
    pub seen_us: u64,
    pub length_us: u64,
}

/// A weir-sync's bounds on the store's clock, sent with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Latest time that the clock can show, in microseconds. If it shows more, it has jumped, or the call is late.
    pub latest_us: u64,
    pub jump: Jump,
}

impl Bounds {
    /// Time of a call that is executed when the clock shows `now_us`, or `None` if it is refused.
    pub fn at(self, now_us: u64) -> Option<StoreTime> {
        (now_us <= self.latest_us).then_some(StoreTime { now_us, jump: self.jump })
    }
}

/// Time of the store's clock at a call, with the jumps that the caller observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTime {
    pub now_us: u64,
    jump: Jump,
}

/// Time of a clock that never steps.
impl From<u64> for StoreTime {
    fn from(now_us: u64) -> Self {
        Self { now_us, jump: Jump::default() }
    }
}

impl StoreTime {
    /// Part of the time since the store's clock showed `since_us` that did not pass, in microseconds. If it showed that
    /// after a jump that the caller had not observed yet, too much is subtracted: that refills less, never more.
    pub(crate) fn skipped_us(&self, since_us: u64) -> u64 {
        let known_us = if since_us <= self.jump.seen_us { self.jump.length_us } else { 0 };
        known_us.min(self.now_us.saturating_sub(since_us))
    }
}

/// Clock of one server, as its answers show it. The weir-sync's own times are microseconds of a clock that never steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreClock {
    shown_us: u64,
    /// Own time at which the call that returned `shown_us` was sent.
    sent_us: u64,
    answered_us: u64,
    /// False until the first answer: the time is then a guess.
    has_answered: bool,
    jump: Jump,
}

impl StoreClock {
    /// Creates a clock without an answer yet, guessed to show `unix_us` at `own_us`.
    pub fn new(unix_us: u64, own_us: u64) -> Self {
        let (shown_us, sent_us, answered_us) = (unix_us, own_us, own_us);
        Self { shown_us, sent_us, answered_us, has_answered: false, jump: Jump::default() }
    }

    pub fn bounds(&self, own_us: u64) -> Bounds {
        Bounds { latest_us: self.latest_us(own_us), jump: self.jump }
    }

    /// Records an answer: a call sent at `sent_us` and answered by `own_us` shows that the clock was at
    /// `shown_us`. Returns the length of the jump, if that time is later than possible.
    pub fn observe(&mut self, sent_us: u64, own_us: u64, shown_us: u64) -> Option<u64> {
        if sent_us < self.sent_us {
            // A later call was answered first.
            return None;
        }
        let expected_us = self.expected_us(sent_us);
        let (back_us, jumped_us) = (expected_us.saturating_sub(shown_us), shown_us.saturating_sub(expected_us));
        let has_jumped = shown_us > self.latest_us(own_us);
        if has_jumped {
            // If the previous time was a guess, the jump may be long ago; records since then must not lose time.
            let seen_us = if self.has_answered { shown_us } else { self.latest_us(sent_us) };
            self.jump = Jump { seen_us, length_us: self.jump.length_us.saturating_add(jumped_us) };
        } else if self.is_back(sent_us, shown_us) {
            // The clock is right again, or nearly so, and will show these times once more.
            self.jump = Jump { seen_us: shown_us, length_us: self.jump.length_us.saturating_sub(back_us) };
        }
        (self.shown_us, self.sent_us, self.answered_us) = (shown_us, sent_us, own_us);
        self.has_answered = true;
        has_jumped.then_some(jumped_us)
    }

    /// True if a call sent at `sent_us` proves that the clock stepped back, even if the previous call was
    /// executed just before its answer and this one as soon as it was sent.
    fn is_back(&self, sent_us: u64, shown_us: u64) -> bool {
        let least_us = self.shown_us.saturating_add(sent_us).saturating_sub(self.answered_us);
        least_us.saturating_sub(shown_us) > MARGIN_US
    }

    fn expected_us(&self, own_us: u64) -> u64 {
        self.shown_us.saturating_add(own_us.saturating_sub(self.sent_us))
    }

    fn latest_us(&self, own_us: u64) -> u64 {
        let passed_us = own_us.saturating_sub(self.sent_us);
        self.expected_us(own_us).saturating_add(passed_us / PACE_PART + MARGIN_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;
    const HOUR: u64 = 3_600 * S;
    const BEGIN: u64 = 1 << 50;

    /// A clock that was right at 10 s of ours, and an hour ahead at 20 s.
    fn jumped() -> StoreClock {
        let mut clock = StoreClock::new(BEGIN, 0);
        assert_eq!(clock.observe(10 * S, 10 * S, BEGIN + 10 * S), None);
        assert_eq!(clock.observe(20 * S, 20 * S, BEGIN + HOUR + 20 * S), Some(HOUR));
        clock
    }

    #[test]
    fn an_answer_that_was_overtaken_or_late_is_no_jump() {
        let mut clock = jumped();
        assert_eq!(clock.observe(15 * S, 21 * S, BEGIN + 15 * S), None);
        assert_eq!(clock, jumped());
        assert_eq!(clock.observe(30 * S, 60 * S, BEGIN + HOUR + 59 * S), None, "it was on its way for half a minute");
    }
}
