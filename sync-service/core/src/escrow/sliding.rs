//! Arithmetic of the sliding window: the weight of the previous window, and when it is low enough.
//!
//! Times are in steps of [`STEP_US`], of which any window has a whole number, so that the products in the Redis
//! script, which counts in doubles, are exact.

use weir_protocol::calendar::LENGTH_S_MAX;
use weir_protocol::quota::TOKENS_MAX;

/// Four milliseconds.
pub const STEP_US: u64 = 4_000;

const _: () = assert!(LENGTH_S_MAX as u64 * (1_000_000 / STEP_US) * TOKENS_MAX as u64 <= 1 << 53);

/// Weight of `before` tokens of the previous window, if the current one lasts for another `left_us` of its
/// `length_us`.
pub(super) fn weighed(before: u64, left_us: u64, length_us: u64) -> u64 {
    let left = left_us.min(length_us).div_ceil(STEP_US);
    (before * left).div_ceil(length_us / STEP_US)
}

/// Remaining time of a window of `length_us` at which `before` tokens of the previous one start to weigh `room`
/// or less, in microseconds.
pub(super) fn room_at_us(before: u64, room: u64, length_us: u64) -> u64 {
    match (room * (length_us / STEP_US)).checked_div(before) {
        Some(left) => left.saturating_mul(STEP_US).min(length_us),
        None => length_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn the_window_before_fades_to_nothing() {
        let weigh = |left_us| weighed(10, left_us, SECOND_US);
        assert_eq!([SECOND_US, 500_000, 499_999, 100_000, 1, 0].map(weigh), [10, 5, 5, 1, 1, 0]);
        assert_eq!(weigh(u64::MAX), 10, "a clock that has stepped back");
    }

    proptest! {
        /// It never counts for less than it does by the formula, and for more by what fades in a step, and a token.
        #[test]
        fn it_is_the_formula_rounded_up(
            before in 0..=u64::from(TOKENS_MAX), seconds in 1..=u64::from(LENGTH_S_MAX), part in 0.0..1.0_f64,
        ) {
            let length = seconds * SECOND_US;
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "any time")]
            let left = (length as f64 * part) as u64;
            let exact = |left: u64| u64::try_from((u128::from(before) * u128::from(left)).div_ceil(u128::from(length))).unwrap();
            let found = weighed(before, left, length);
            prop_assert!((exact(left)..=exact((left + STEP_US).min(length))).contains(&found));
        }

        #[test]
        fn there_is_room_from_the_time_on_that_it_says_and_not_before(
            before in 0..=u64::from(TOKENS_MAX), seconds in 1..=u64::from(LENGTH_S_MAX), room in 0..=u64::from(TOKENS_MAX),
        ) {
            let length = seconds * SECOND_US;
            let at = room_at_us(before, room, length);
            prop_assert!(weighed(before, at, length) <= room);
            prop_assert!(at == length || weighed(before, at + 1, length) > room);
        }
    }
}
