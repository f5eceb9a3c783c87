//! Demand follows what buckets are asked for, through lost, repeated and overtaken reports.

use proptest::prelude::*;
use weir_budget::budget::{BudgetId, Demand, SourceId};
use weir_budget::demand::{Demands, SAMPLES_MAX, SOURCES_MAX, WINDOW_NS, Window};
use weir_limiter::time::Time;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn id(value: u8) -> BudgetId {
    BudgetId { rule: "r".into(), value: vec![value] }
}

fn source(pop: &str, epoch: u64) -> SourceId {
    SourceId { epoch, pop: pop.into() }
}

#[test]
fn a_steady_stream_is_measured_exactly() {
    let mut window = Window::default();
    for i in 1..=20 {
        window.observe(at(1_000 + i * 250), i * 25, 25);
        if i >= 2 {
            assert_eq!(window.milli(at(1_000 + i * 250)), 100_000, "report {i}");
        }
    }
}

#[test]
fn the_first_report_counts_its_recent_part_only() {
    let mut window = Window::default();
    window.observe(at(5_000), 1_000_000, 50);
    assert_eq!(window.milli(at(5_000)), 100_000, "50 within the window of half a second");
}

#[test]
fn silence_fades_out_within_a_window_and_a_half() {
    let mut window = Window::default();
    for i in 1..=8 {
        window.observe(at(i * 250), i * 25, 25);
    }
    assert!(window.milli(at(2_000 + 400)) > 0);
    assert_eq!(window.milli(at(2_000) + WINDOW_NS), 0);
}

#[test]
fn a_lost_report_is_made_up_for_by_the_next() {
    let mut window = Window::default();
    for i in [1, 2, 3, 4, 6, 7, 8] {
        window.observe(at(i * 250), i * 25, 25);
    }
    assert_eq!(window.milli(at(2_000)), 100_000);
}

#[test]
fn what_comes_after_a_silence_counts_as_new() {
    let mut window = Window::default();
    window.observe(at(1_000), 100, 100);
    window.observe(at(60_000), 150, 50);
    assert_eq!(window.milli(at(60_000)), 100_000, "not spread over a minute");
}

#[test]
fn a_budget_sums_its_buckets_and_counts_its_pops() {
    let mut demands = Demands::default();
    demands.observe(at(1_000), &id(1), source("a", 1), 50, 50);
    demands.observe(at(1_000), &id(2), source("a", 9), 500, 500);
    demands.observe(at(1_000), &id(1), source("a", 2), 50, 50);
    let demand = demands.observe(at(1_000), &id(1), source("b", 1), 50, 50);
    assert_eq!(demand, Demand { milli: 300_000, askers: 2 });
    let idle = demands.observe(at(1_000), &id(1), source("c", 1), 70, 0);
    assert_eq!(idle, Demand { milli: 300_000, askers: 2 }, "who is not asked is no asker");
}

#[test]
fn budgets_beyond_the_maximum_are_estimated_from_the_report_alone() {
    let mut demands = Demands::with_budgets_max(1);
    demands.observe(at(1_000), &id(1), source("a", 1), 50, 50);
    let beyond = demands.observe(at(1_000), &id(2), source("a", 2), 900, 50);
    assert_eq!(beyond, Demand { milli: 100_000, askers: 1 });
    demands.note_debt(&id(1), 7);
    assert_eq!(demands.debts(at(1_000)), (1, 1, 7));
    assert_eq!(demands.debts(at(9_000)), (0, 0, 0), "the silent are forgotten, and there is room again");
}

#[test]
fn buckets_of_a_budget_are_bounded() {
    let mut demands = Demands::default();
    let mut last = Demand::default();
    for epoch in 0..SOURCES_MAX as u64 + 100 {
        last = demands.observe(at(1_000), &id(1), source("a", epoch), 1, 1);
    }
    assert_eq!(last.milli, SOURCES_MAX as u64 * 2_000);
}

proptest! {
    /// Whatever arrives in whichever order: no demand above what was asked for within the window,
    /// and no more memory than a few samples.
    #[test]
    fn never_more_than_was_asked(reports in prop::collection::vec((0..200_u64, 0..1_000_u64), 1..100)) {
        let (mut window, mut now_ms, mut most) = (Window::default(), 10_000, 0);
        let first = reports[0].1;
        for (span_ms, asked) in reports {
            now_ms += span_ms;
            window.observe(at(now_ms), asked, 0);
            most = most.max(asked);
            prop_assert!(window.milli(at(now_ms)) <= (most - first.min(most)) * 2_000);
        }
        prop_assert!(window.samples_len() <= SAMPLES_MAX);
    }

    /// Repeating every report changes nothing.
    #[test]
    fn repeats_change_nothing(reports in prop::collection::vec((1..400_u64, 0..100_u64), 1..60)) {
        let (mut once, mut twice, mut now_ms, mut asked) = (Window::default(), Window::default(), 10_000, 0);
        for (span_ms, more) in reports {
            now_ms += span_ms;
            asked += more;
            once.observe(at(now_ms), asked, more);
            twice.observe(at(now_ms), asked, more);
            twice.observe(at(now_ms), asked, more);
            prop_assert_eq!(once.milli(at(now_ms)), twice.milli(at(now_ms)));
        }
    }
}
