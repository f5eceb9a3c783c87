//! Changes that take: other rules, all rules off and on, and back.
//!
//! Tests of I1.

use std::time::Instant;

use super::{Fleet, NARROW, WIDE, document};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_limit_is_enforced_at_three_points_of_presence_within_a_second() {
    let (fleet, _) = Fleet::start(&document(WIDE)).await;
    assert_eq!(fleet.take_few(5).await, [15; 3]);
    let load = fleet.load().await;
    let version = fleet.operator(1).put_good(&document(NARROW)).await;
    let changed_at = Instant::now();
    fleet.runs(version).await;
    load.stop().await.assert_turned("a lower limit", false, changed_at);
    assert_eq!(fleet.take_few(1).await, [14; 3], "the bucket of a rule that stays keeps its level");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kill_switch_acts_at_three_points_of_presence_within_a_second() {
    let (fleet, _) = Fleet::start(&document(WIDE)).await;
    let mut operator = fleet.operator(2);
    let narrow = operator.put_good(&document(NARROW)).await;
    fleet.runs(narrow).await;
    assert_eq!(fleet.take_few(5).await, [15; 3]);

    let load = fleet.load().await;
    let off = operator.enforce(false).await;
    let changed_at = Instant::now();
    fleet.runs(off).await;
    load.stop().await.assert_turned("all rules off", true, changed_at);

    let load = fleet.load().await;
    let on = operator.enforce(true).await;
    let changed_at = Instant::now();
    fleet.runs(on).await;
    load.stop().await.assert_turned("all rules on", false, changed_at);
    assert!(narrow < off && off < on, "each change is a version: {narrow}, {off}, {on}");
    assert_eq!(
        fleet.take_few(1).await,
        [14; 3],
        "while rules are off they count nothing, and forget nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_is_enforced_at_three_points_of_presence_within_a_second() {
    let (fleet, narrow) = Fleet::start(&document(NARROW)).await;
    let mut operator = fleet.operator(0);
    let wide = operator.put_good(&document(WIDE)).await;
    fleet.runs(wide).await;
    assert_eq!(fleet.take_few(5).await, [15; 3]);
    let load = fleet.load().await;
    // At another weir-sync than the one that had it.
    let back = fleet.operator(2).roll_back(narrow).await;
    let changed_at = Instant::now();
    fleet.runs(back).await;
    load.stop().await.assert_turned("a rollback", false, changed_at);
    assert!(back > wide, "it is a version of its own: {back} after {wide}");
    let then = format!("/v1/rules?version={narrow}");
    assert_eq!(operator.get(&then).await.json(), operator.get("/v1/rules").await.json());
    assert_eq!(fleet.take_few(1).await, [14; 3], "the bucket of a rule that stays keeps its level");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_limit_is_enforced_at_three_points_of_presence_within_a_second() {
    let (fleet, _) = Fleet::start(&document(NARROW)).await;
    let load = fleet.load().await;
    let version = fleet.operator(1).put_good(&document(WIDE)).await;
    let changed_at = Instant::now();
    fleet.runs(version).await;
    load.stop().await.assert_turned("a higher limit", true, changed_at);
}
