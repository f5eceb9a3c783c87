//! Steps of the store's clock: a budget does not take them for time, and they cost little.
//!
//! Tests of I8.

use weir_budget::budget::Budget;
use weir_protocol::quota::Period;

use crate::{SECOND_US, charge, quota, told};

/// If the store's clock steps a little forward, that looks like a delay, which is soon forgotten. A larger step
/// does not.
// I4
#[test]
fn a_step_of_a_clock_is_not_taken_for_a_delay_for_ever() {
    let quota = quota(50, Period::Second, 50);
    let owed_after = |seconds: u64, jump_ms: u64| {
        let mut budget = Budget::default();
        told(&mut budget, 1_000, quota, 1, 0, 1_000);
        for n in 0..4 * seconds {
            told(&mut budget, jump_ms + n * 250, quota, 1, 250, 1_250 + n * 250);
        }
        told(&mut budget, jump_ms + seconds * 1_000, quota, 51, 250, 1_250 + seconds * 1_000)
    };
    let its_span_and_as_much_again = 50 * quota.token_ns() - 500_000_000;
    assert_eq!(owed_after(1, 9_000), 0, "nine seconds are believed");
    assert_eq!(owed_after(1_001, 9_000), its_span_and_as_much_again);
    assert_eq!(owed_after(1, 3_600_000), its_span_and_as_much_again);
}

/// With a POP's first report, a step counts as time. The other POPs' next reports then do not count as held up.
// I4
#[test]
fn a_step_that_a_new_pop_bears_out_holds_up_nobody_else() {
    let (quota, mut budget) = (quota(50, Period::Second, 50), Budget::default());
    told(&mut budget, 1_000, quota, 1, 0, 1_000);
    let step_ms = 3_600_000;
    charge(&mut budget, step_ms * 1_000, quota, "new", &[(1, 1, 1)]);
    for n in 0..20 {
        told(&mut budget, step_ms + n * 250, quota, 1, 250, 1_250 + n * 250);
    }
    let owed = told(&mut budget, step_ms + 5_000, quota, 51, 250, 6_250);
    assert_eq!(owed, 50 * quota.token_ns() - 500_000_000, "its span, and as much again");
}

// I8
#[test]
fn a_clock_that_steps_back_gives_nothing() {
    let (quota, mut budget) = (quota(10, Period::Second, 20), Budget::default());
    charge(&mut budget, 100 * SECOND_US, quota, "a", &[(1, 20, 20)]);
    let before = budget.deficit_ns();
    for now_us in [99 * SECOND_US, 50 * SECOND_US, 0] {
        charge(&mut budget, now_us, quota, "a", &[(1, 20, 0)]);
        assert_eq!(budget.deficit_ns(), before, "at {now_us}");
    }
    charge(&mut budget, SECOND_US, quota, "a", &[(1, 20, 0)]);
    assert_eq!(before - budget.deficit_ns(), 1_000_000_000, "and goes on from where it stepped to");
}

/// What a budget of 100/s with a burst of 100 owes after a POP has reported 90 tokens every second for a minute,
/// and 150 from then on, in tokens; the store's clock steps at `step_at_s`.
fn owed_with_a_step(step_s: i64, step_at_s: u64, looks: bool) -> u64 {
    let (quota, mut budget, mut admitted) = (quota(100, Period::Second, 100), Budget::default(), 0);
    let base_us = 1_u64 << 50;
    for s in 1..=70 {
        admitted += if s < 60 { 90 } else { 150 };
        let stepped_us = if s >= step_at_s { step_s * 1_000_000 } else { 0 };
        let now_us = (base_us + s * SECOND_US).saturating_add_signed(stepped_us);
        if looks {
            charge(&mut budget, now_us - 1_000, quota, "", &[]);
        }
        told(&mut budget, now_us / 1_000, quota, admitted, 1_000, s * 1_000);
    }
    budget.deficit_ns() / quota.token_ns()
}

// I8
#[test]
fn a_step_of_the_stores_clock_costs_a_burst_at_most_either_way() {
    let without = owed_with_a_step(0, 0, false);
    for step_s in [-3_600, -600, -30, 30, 600, 3_600] {
        for (step_at_s, looks) in [(50, false), (50, true), (65, false), (65, true)] {
            let owed = owed_with_a_step(step_s, step_at_s, looks);
            if (step_s, step_at_s, looks) == (30, 65, true) {
                // A look at the debt half a minute ago may have taken the step for time.
                continue;
            }
            assert!(
                owed.abs_diff(without) <= 100,
                "{owed} instead of {without}: {step_s} s at {step_at_s} s"
            );
        }
    }
}

/// The POP's reports say how much time has passed since the ones before.
#[test]
fn what_was_put_off_while_a_budget_was_only_looked_at_is_made_good() {
    let (quota, mut budget) = (quota(100, Period::Second, 100), Budget::default());
    told(&mut budget, 1_000, quota, 6_000, 0, 1_000);
    let owed_ns = 6_000 * quota.token_ns();
    charge(&mut budget, 91_000_000, quota, "", &[]);
    assert_eq!(budget.deficit_ns(), owed_ns - SECOND_US * 1_000, "a burst, of ninety seconds");
    told(&mut budget, 91_250, quota, 6_000, 0, 31_250);
    assert_eq!(budget.deficit_ns(), owed_ns - 30_250_000_000, "what the POP bears out");
}
