//! How long a report of 1,000 keys waits for its answer.

use super::pop::Pop;
use super::stats::median_and_p99_ms;
use super::{Figures, Plan, progress};
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

/// As many keys as a report may carry.
const KEYS: u64 = weir_protocol::messages::KEYS_MAX as u64;
/// Reports before those that are timed.
const WARM_UP: usize = 20;

/// One POP, one report after the other.
pub(super) async fn run(plan: Plan, figures: &mut Figures) {
    progress("reports of 1,000 keys");
    one(plan, "memory", "the memory store", figures).await;
    let redis = Redis::start().await;
    one(plan, &redis.url(), "Redis", figures).await;
}

async fn one(plan: Plan, store: &str, name: &str, figures: &mut Figures) {
    let weir_sync = WeirSync::start("bench", store).await;
    let mut pop = Pop::new(&weir_sync, "pop-0", 0..KEYS);
    let (mut latencies, mut unsettled) = (Vec::new(), 0);
    for n in 0..WARM_UP + plan.large_reports {
        let outcome = pop.exchange().await;
        if n >= WARM_UP {
            latencies.push(outcome.took);
            unsettled += u64::from(!outcome.is_settled);
        }
    }
    if unsettled > 0 {
        progress(&format!("{unsettled} of {} were not charged in time", latencies.len()));
    }
    let (median, p99) = median_and_p99_ms(latencies);
    let figure = format!("a report of 1,000 keys, {name}: p99 (median) until its answer");
    figures.row(&figure, &format!("{p99:.2} ms ({median:.2} ms)"));
}
