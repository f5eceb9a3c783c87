//! A fleet of simulated POPs that report at their interval to one weir-sync.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::pop::Pop;
use super::stats::{median_and_p99_ms, thousands};
use super::{Figures, Plan, cpu, progress};
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

/// How many POPs.
const POPS: u32 = 330;
/// How often each reports.
const INTERVAL: Duration = Duration::from_millis(250);
/// How many hot keys the fleet has.
const KEYS: u64 = 330;
/// How many of them each POP is asked for.
const KEYS_AT_A_POP: u64 = 10;
/// Intervals before those that are timed: the first ones carry whole bursts.
const WARM_UP: Duration = Duration::from_secs(2);

/// With the memory store, and with Redis.
pub(super) async fn run(plan: Plan, figures: &mut Figures) {
    progress("330 POPs, memory store");
    one(plan, "memory", "memory store", figures).await;
    progress("330 POPs, Redis");
    let redis = Redis::start().await;
    one(plan, &redis.url(), "Redis", figures).await;
}

async fn one(plan: Plan, store: &str, name: &str, figures: &mut Figures) {
    let weir_sync = WeirSync::start("bench", store).await;
    let began = Instant::now();
    let (from, to) = (began + WARM_UP, began + WARM_UP + plan.fleet);
    let mut tasks = JoinSet::new();
    for n in 0..POPS {
        let first = u64::from(n) * 7 % (KEYS - KEYS_AT_A_POP + 1);
        let pop = Pop::new(&weir_sync, &format!("pop-{n}"), first..first + KEYS_AT_A_POP);
        // POPs do not act in step.
        tasks.spawn(reports(pop, began + INTERVAL * n / POPS, from, to));
    }
    sleep_until(from.into()).await;
    let before = cpu::time(weir_sync.id());
    sleep_until(to.into()).await;
    let share = cpu::time(weir_sync.id()).saturating_sub(before).as_secs_f64() / plan.fleet.as_secs_f64();
    let (mut latencies, mut admitted, mut reports_all, mut unsettled) = (Vec::new(), 0, 0, 0);
    while let Some(done) = tasks.join_next().await {
        let heard = done.unwrap_or_else(|e| panic!("a POP failed: {e}"));
        latencies.extend(heard.latencies);
        admitted += heard.admitted;
        reports_all += heard.reports;
        unsettled += heard.unsettled;
    }
    let charged = weir_sync.metric("weir_sync_tokens_charged_total").await.unwrap_or(f64::NAN);
    let of_all = super::stats::float(admitted);
    let (median, p99) = median_and_p99_ms(latencies);
    let figure = format!(
        "{POPS} POPs, a report of {KEYS_AT_A_POP} keys every {} ms, {name}: CPU of one core; p99 (median) of a reply; not charged; \
         tokens admitted, and charged",
        INTERVAL.as_millis()
    );
    let reached = format!(
        "{:.1} %; {p99:.2} ms ({median:.2} ms); {unsettled} of {}; {}, {}",
        share * 100.0,
        thousands(super::stats::float(reports_all)),
        thousands(of_all),
        thousands(charged),
    );
    figures.row(&figure, &reached);
}

/// What a POP heard.
struct Heard {
    latencies: Vec<Duration>,
    admitted: u64,
    /// With those before the timed ones.
    reports: u64,
    /// Of these, not charged at once.
    unsettled: u64,
}

/// Reports every interval from `due` until `to`; those from `from` on are timed.
async fn reports(mut pop: Pop, mut due: Instant, from: Instant, to: Instant) -> Heard {
    let mut heard = Heard { latencies: Vec::new(), admitted: 0, reports: 0, unsettled: 0 };
    let mut is_settled = true;
    while due < to || !is_settled {
        sleep_until(due.into()).await;
        let outcome = pop.exchange().await;
        is_settled = outcome.is_settled;
        heard.reports += 1;
        heard.unsettled += u64::from(!is_settled);
        if due >= from {
            heard.latencies.push(outcome.took);
        }
        due += INTERVAL;
    }
    heard.admitted = pop.admitted();
    heard
}
