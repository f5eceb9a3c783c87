//! Changes that take: other rules, all rules off and on, and back.
//!
//! Tests of I1.

use std::time::Instant;

use weir_tests::region;

use super::{Fleet, NARROW, WIDE, document};

/// Has `change` made at the weir-sync of one region under load; panics unless all three act by it within a second, so
/// that the client of `/changed` is let through again (`opens`) or not any more. The version that it made.
async fn acts(fleet: &Fleet, what: &str, opens: bool, change: impl Future<Output = u64>) -> u64 {
    let load = fleet.load().await;
    let version = change.await;
    let changed_at = Instant::now();
    region::run(&fleet.regions, version).await;
    load.stop().await.assert_turned(what, opens, changed_at);
    version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_reaches_three_pops_within_a_second() {
    let (fleet, _) = Fleet::start(&document(WIDE)).await;
    let [mut first, mut second, mut third] = [0, 1, 2].map(|region| fleet.operator(region));
    assert_eq!(fleet.take_few(5).await, [15; 3]);
    let narrow = acts(&fleet, "a lower limit", false, second.put_good(&document(NARROW))).await;
    assert_eq!(fleet.take_few(1).await, [14; 3], "the bucket of a rule that stays keeps its level");
    let off = acts(&fleet, "all rules off", true, third.enforce(false)).await;
    let on = acts(&fleet, "all rules on", false, third.enforce(true)).await;
    assert_eq!(fleet.take_few(1).await, [13; 3], "while rules are off they count nothing, and forget nothing");
    let wide = acts(&fleet, "a higher limit", true, first.put_good(&document(WIDE))).await;
    // At another weir-sync than the one that had it.
    let back = acts(&fleet, "a rollback", false, third.roll_back(narrow)).await;
    assert_eq!(fleet.take_few(1).await, [12; 3]);
    assert!([narrow, off, on, wide, back].is_sorted(), "each change is a version of its own");
    let then = format!("/v1/rules?version={narrow}");
    assert_eq!(first.get(&then).await.json(), first.get("/v1/rules").await.json());
}
