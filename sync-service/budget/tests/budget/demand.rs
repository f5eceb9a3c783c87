//! Demand follows what buckets are asked for, through lost, repeated and overtaken reports.

use proptest::prelude::*;
use weir_budget::budget::{BudgetId, Demand, SourceId};
use weir_budget::demand::{BUCKETS_MAX, BucketReport, DemandReport, DemandWindow, Demands};
use weir_protocol::time::Time;

const MS: u64 = 1_000_000;
const ALONE: BucketReport = BucketReport { is_warm: false, is_shared: false };
const WARM: BucketReport = BucketReport { is_warm: true, is_shared: false };
const SHARED: BucketReport = BucketReport { is_warm: false, is_shared: true };

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn id(value: u8) -> BudgetId {
    BudgetId::new("r".into(), vec![value])
}

fn source(pop: &str, epoch: u64) -> SourceId {
    SourceId { epoch, pop: pop.into() }
}

fn reported(asked: u64, recently: u64) -> DemandReport {
    DemandReport { asked, recently, admitted: 0, span_ns: 0, most_milli: u64::MAX }
}

// I5
#[test]
fn only_a_pops_single_replica_counts_demand_of_missed_reports() {
    let (mut alone, mut shared) = (DemandWindow::default(), DemandWindow::default());
    for i in [1, 2, 4, 5, 6, 7, 8] {
        alone.observe(at(i * 250), &reported(i * 25, 25), ALONE);
        shared.observe(at(i * 250), &reported(i * 25, 25), SHARED);
    }
    assert_eq!((alone.counted, shared.counted), (200, 175));
    assert_eq!(alone.milli(at(2_000)), 100_000);
}

#[test]
fn a_budget_sums_its_buckets_and_counts_its_pops() {
    let mut demands = Demands::default();
    demands.observe(at(1_000), &id(1), &source("a", 1), &reported(50, 50));
    demands.observe(at(1_000), &id(2), &source("a", 9), &reported(500, 500));
    demands.observe(at(1_000), &id(1), &source("a", 2), &reported(50, 50));
    let demand = demands.observe(at(1_000), &id(1), &source("b", 1), &reported(50, 50)).demand;
    assert_eq!(demand, Demand { milli: 300_000, askers: 2 });
    let idle = demands.observe(at(1_000), &id(1), &source("c", 1), &reported(70, 0)).demand;
    assert_eq!(idle, Demand { milli: 300_000, askers: 2 }, "a POP that is not asked is no asker");
}

// I2
#[test]
fn budgets_beyond_the_maximum_are_estimated_from_the_report_alone() {
    let mut demands = Demands::default();
    for n in 0..100_000_u32 {
        let id = BudgetId::new("r".into(), n.to_be_bytes().to_vec());
        demands.observe(at(1_000), &id, &source("a", 1), &reported(50, 50));
    }
    let beyond = demands.observe(at(1_000), &id(2), &source("a", 2), &reported(900, 50)).demand;
    assert_eq!(beyond, Demand { milli: 100_000, askers: 1 });
    assert_eq!(demands.debts(at(1_000)), (100_000, 0));
    assert_eq!(demands.debts(at(9_000)), (0, 0), "the silent are forgotten, and there is room again");
}

// I2
#[test]
fn buckets_of_a_budget_are_bounded() {
    let mut demands = Demands::default();
    let mut last = Demand::default();
    for epoch in 0..BUCKETS_MAX as u64 + 100 {
        last = demands.observe(at(1_000), &id(1), &source("a", epoch), &reported(1, 1)).demand;
    }
    assert_eq!(last.milli, BUCKETS_MAX as u64 * 2_000);
}

#[test]
fn a_warm_keys_demand_is_spread_over_its_report_interval() {
    let (mut warm, mut hot) = (DemandWindow::default(), DemandWindow::default());
    for i in 1..=5 {
        warm.observe(at(i * 2_000), &reported(i * 40, 40), WARM);
        hot.observe(at(i * 2_000), &reported(i * 40, 40), ALONE);
    }
    assert_eq!(warm.milli(at(10_000)), 20_000, "two seconds' worth");
    assert_eq!(warm.milli(at(12_000)), 20_000, "until the next is due");
    assert_eq!(warm.milli(at(13_000)), 0);
    assert_eq!(hot.milli(at(10_000)), 80_000, "a hot key would have been reported sooner");
    warm.observe(at(11_200), &reported(240, 40), WARM);
    assert_eq!(warm.milli(at(11_200)), 80_000, "and so would a warm one that has not grown");
}

/// A POP sends each report to one of the weir-syncs of its region.
fn dealt(receivers: &mut [DemandWindow], reports: &[(u64, usize, bool)]) {
    let (mut now_ms, mut asked, mut unanswered) = (10_000, 0, 0);
    let kind = if receivers.len() > 1 { SHARED } else { ALONE };
    for &(more, to, answered) in reports {
        now_ms += 250;
        asked += more;
        unanswered += more;
        let to = to % receivers.len();
        receivers[to].observe(at(now_ms), &reported(asked, unanswered), kind);
        if answered {
            unanswered = 0;
        }
    }
}

proptest! {
    /// If each report is answered, several weir-syncs together count each token once. If answers are lost, a token that
    /// is reported again is counted again only by a weir-sync that had not received it.
    // I5
    #[test]
    fn receivers_together_count_what_was_asked_once(
        mut reports in prop::collection::vec((0..100_u64, 0..4_usize, any::<bool>()), 4..60),
        receivers in 1..4_usize, is_lossy in any::<bool>(),
    ) {
        for (.., answered) in &mut reports {
            *answered |= !is_lossy;
        }
        let mut windows = vec![DemandWindow::default(); receivers];
        dealt(&mut windows, &reports);
        let truth = reports.iter().map(|(more, ..)| more).sum::<u64>();
        for window in &windows {
            prop_assert!(window.counted <= truth);
        }
        let counted: u64 = windows.iter().map(|window| window.counted).sum();
        prop_assert!(counted >= truth);
        if receivers == 1 || !is_lossy { prop_assert_eq!(counted, truth); }
    }

    /// Whatever arrives, in any order: the demand is at most what was asked for within the window, and is bounded.
    // I5
    #[test]
    fn never_more_than_was_asked(reports in prop::collection::vec((0..200_u64, 0..1_000_u64), 1..100)) {
        let (mut window, mut now_ms, mut most) = (DemandWindow::default(), 10_000, 0);
        for (span_ms, asked) in reports {
            now_ms += span_ms;
            window.observe(at(now_ms), &reported(asked, asked), ALONE);
            most = most.max(asked);
            prop_assert!(window.milli(at(now_ms)) <= most * 2_000);
        }
    }

    /// Repeating every report changes nothing.
    // I5
    #[test]
    fn repeats_change_nothing(reports in prop::collection::vec((1..400_u64, 0..100_u64), 1..60)) {
        let (mut once, mut twice, mut now_ms, mut asked) = (DemandWindow::default(), DemandWindow::default(), 10_000, 0);
        for (span_ms, more) in reports {
            now_ms += span_ms;
            asked += more;
            once.observe(at(now_ms), &reported(asked, more), ALONE);
            twice.observe(at(now_ms), &reported(asked, more), ALONE);
            twice.observe(at(now_ms), &reported(asked, more), ALONE);
            prop_assert_eq!(once.milli(at(now_ms)), twice.milli(at(now_ms)));
        }
    }
}
