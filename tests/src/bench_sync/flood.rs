//! A closed loop: POPs that report again as soon as they are answered.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use weir_protocol::quota::Quota;

use super::pop::{Pop, quota};
use crate::weir_sync::WeirSync;

/// The POPs of the closed loop, and so the reports under way at a time.
pub(super) const POPS: u64 = 8;
/// How many keys each report carries.
pub(super) const KEYS: u64 = 100;
/// At how many POPs a key is asked for.
const SHARED_BY: u64 = 4;
/// How long a POP waits after a report that was not charged.
const PAUSE: Duration = Duration::from_millis(50);

/// What a flood reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Reports that were answered and charged.
    pub(super) reports: u64,
    /// Reports that were answered and not charged: the store was too slow for weir-sync's time-out.
    pub(super) unsettled: u64,
    /// How long it took.
    pub(super) wall: Duration,
}

/// The POPs, of `weir_sync`.
pub(super) fn pops(weir_sync: &WeirSync) -> Vec<Pop> {
    pops_of(weir_sync, SHARED_BY)
}

/// The same, where a key is asked for at `shared_by` of them.
pub(super) fn pops_of(weir_sync: &WeirSync, shared_by: u64) -> Vec<Pop> {
    let of = |n| {
        let first = n / shared_by * KEYS;
        Pop::with_quota(weir_sync, &format!("pop-{n}"), first..first + KEYS, flooded())
    };
    (0..POPS).map(of).collect()
}

/// What each key may be asked for: so much that reports have something to charge, however soon they follow on each
/// other, and less than it is asked for.
pub(super) fn flooded() -> Quota {
    quota(60_000, 1_000)
}

/// Lets all POPs report for so long. Panics where most reports were not charged: what was measured then is no figure.
pub(super) async fn flood(pops: &mut Vec<Pop>, lasts: Duration) -> Reached {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for mut pop in std::mem::take(pops) {
        tasks.spawn(async move {
            let (mut reports, mut unsettled) = (0, 0);
            while began.elapsed() < lasts {
                if pop.exchange().await.is_settled {
                    reports += 1;
                } else {
                    unsettled += 1;
                    // weir-sync answers at once while it waits for its store.
                    sleep(PAUSE).await;
                }
            }
            (pop, reports, unsettled)
        });
    }
    let mut reached = Reached { reports: 0, unsettled: 0, wall: Duration::ZERO };
    while let Some(done) = tasks.join_next().await {
        let (pop, reports, unsettled) = done.unwrap_or_else(|e| panic!("a POP failed: {e}"));
        pops.push(pop);
        reached.reports += reports;
        reached.unsettled += unsettled;
    }
    let Reached { reports, unsettled, .. } = reached;
    assert!(
        unsettled <= reports,
        "bench-sync: {unsettled} reports of a flood were not charged, {reports} were: look at weir_sync_report_limits_exceeded_total and \
         weir_sync_store_errors_total"
    );
    Reached { wall: began.elapsed(), ..reached }
}
