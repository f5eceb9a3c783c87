//! A budget's own clock: the store's clock, without its steps.
//!
//! The store's clock is a wall clock. It may step, as at a fail-over to a host whose clock is behind or ahead.
//! So a budget keeps its times on a clock of its own, which never steps back. It skips a step forward that a
//! POP's clock exposes: between two reports of one POP, no more time has passed than its monotonic clock shows.
//! A read of a budget carries no POP's time; an implausibly long time is then put off until a POP has reported.
//! A step that the weir-sync's clock exposes ([`crate::store_clock`]) is skipped before any of that.

use weir_protocol::time::SECOND_NS;

use crate::source::DELAY_US_MAX;

/// Longest time between two reads of the budget of a key at rest, in nanoseconds (see [`crate::hot`]).
pub const RESTING_NS_MAX: u64 = 32 * SECOND_NS;
/// Longest time between two charges that is taken for granted, in microseconds, unless an empty budget takes
/// longer to fill. No report is delayed for longer, so the store's clock may have stepped forward.
pub const STEP_US: u64 = DELAY_US_MAX;
/// The same for a read of a budget in debt, which is read at least twice in this time.
pub const LOOK_US: u64 = 2 * RESTING_NS_MAX / 1_000;

/// Difference between the budget's clock and the store's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// Offset added to the store's clock, in microseconds.
    ahead_us: i64,
    /// Time of the store's clock that was put off, in microseconds.
    doubt_us: u64,
}

/// Evidence of the passed time in a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeEvidence {
    /// Excess of the time since a source's last report over the time by its POP's clock, in microseconds.
    Late(i64),
    /// The charge has counts, all the first of their sources: no earlier report limits the time that passed.
    New,
    /// The charge has no counts and only reads the budget.
    None,
}

impl ClockOffset {
    /// The budget's time when the store's clock shows `store_us`, if that has not stepped.
    pub(crate) fn own_us(self, store_us: u64) -> u64 {
        store_us.saturating_add_signed(self.ahead_us)
    }

    /// The store's time at a time of the budget's clock.
    pub(crate) fn store_us(self, own_us: u64) -> u64 {
        own_us.saturating_add_signed(self.ahead_us.saturating_neg())
    }

    /// Skips `us` microseconds of the store's clock that did not pass (see [`crate::store_clock`]).
    pub(crate) fn skip(&mut self, us: u64) {
        self.ahead_us = self.ahead_us.saturating_sub_unsigned(us);
    }

    /// Returns the budget's time at a charge for which [`ClockOffset::own_us`] gives `told_us`. The last charge was
    /// at `at_us` and left the budget `deficit_us` from full; an empty one takes `fill_us` to fill.
    pub(crate) fn advance(
        &mut self,
        told_us: u64,
        at_us: u64,
        deficit_us: u64,
        fill_us: u64,
        word: TimeEvidence,
    ) -> u64 {
        let elapsed_us = told_us.saturating_sub(at_us);
        let is_doubtful = elapsed_us > fill_us.max(STEP_US);
        let now_us = match word {
            _ if told_us < at_us => at_us,
            TimeEvidence::Late(late_us) if late_us < 0 => {
                told_us.saturating_add(self.doubt_us.min(late_us.unsigned_abs()))
            }
            TimeEvidence::Late(late_us) if is_doubtful && late_us.unsigned_abs() > fill_us.max(STEP_US) => {
                told_us - elapsed_us.min(late_us.unsigned_abs())
            }
            TimeEvidence::New => told_us.saturating_add(self.doubt_us),
            TimeEvidence::None if elapsed_us > fill_us.max(LOOK_US) && deficit_us > fill_us => {
                at_us + fill_us
            }
            _ => told_us,
        };
        self.doubt_us = match word {
            TimeEvidence::Late(_) | TimeEvidence::New => 0,
            TimeEvidence::None => self.doubt_us.saturating_add(told_us.saturating_sub(now_us)),
        };
        self.ahead_us =
            self.ahead_us.saturating_add(now_us.cast_signed().saturating_sub(told_us.cast_signed()));
        now_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 1 << 50;
    const S: u64 = 1_000_000;
    const FILL: u64 = S;

    /// How much time counts as passed if the last charge was at [`AT`] and the store's clock now shows `told_us`
    /// more; and the budget's clock after that.
    fn told(told_us: i64, deficit_us: u64, word: TimeEvidence) -> (u64, ClockOffset) {
        let mut clock = ClockOffset::default();
        let now_us = clock.advance(AT.saturating_add_signed(told_us), AT, deficit_us, FILL, word);
        (now_us - AT, clock)
    }

    #[test]
    fn a_step_back_is_no_time_and_time_goes_on_from_there() {
        let hour = 3_600 * S.cast_signed();
        for word in [TimeEvidence::Late(0), TimeEvidence::New, TimeEvidence::None] {
            let (passed_us, clock) = told(-hour, 10 * S, word);
            assert_eq!((passed_us, clock.own_us(AT - 3_599 * S)), (0, AT + S));
            assert_eq!(clock.store_us(AT + S), AT - 3_599 * S);
        }
    }

    #[test]
    fn a_step_forward_that_a_pop_does_not_bear_out_is_passed_over() {
        let (hour, quarter) = (3_600 * S.cast_signed(), 250_000);
        let (passed_us, clock) = told(hour + quarter, 10 * S, TimeEvidence::Late(hour));
        assert_eq!((passed_us, clock.own_us(AT + 3_601 * S)), (250_000, AT + S));
        assert_eq!(
            told(hour, 10 * S, TimeEvidence::Late(20_000)).0,
            3_600 * S,
            "an hour of silence, as the POP says too"
        );
        assert_eq!(
            told(9_000_000, 10 * S, TimeEvidence::Late(8_900_000)).0,
            9 * S,
            "a report that was held up"
        );
        assert_eq!(told(hour, 10 * S, TimeEvidence::New).0, 3_600 * S, "no POP's clock says otherwise");
    }

    #[test]
    fn a_look_puts_off_what_a_pop_then_bears_out() {
        let hour = 3_600 * S.cast_signed();
        assert_eq!(told(hour, FILL, TimeEvidence::None).0, 3_600 * S, "a burst at most");
        assert_eq!(
            told(60 * S.cast_signed(), 100 * S, TimeEvidence::None).0,
            60 * S,
            "it is looked at seldom"
        );
        let (passed_us, mut clock) = told(hour, 4_000 * S, TimeEvidence::None);
        assert_eq!(passed_us, FILL);
        let told_us = clock.own_us(AT + 3_601 * S);
        assert_eq!(told_us, AT + 2 * S);
        assert_eq!(
            clock.advance(told_us, AT + S, 99 * S, FILL, TimeEvidence::Late(-59_000_000)),
            AT + 61 * S
        );
        // The rest of the hour, which no POP's clock bears out, was a step.
        assert_eq!(
            clock.advance(AT + 62 * S, AT + 61 * S, 40 * S, FILL, TimeEvidence::Late(-5_000)),
            AT + 62 * S
        );
        assert_eq!(clock.own_us(AT + 3_603 * S), AT + 63 * S);
    }
}
