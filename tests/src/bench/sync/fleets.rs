//! A fleet of simulated POPs that report at their interval.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;
use weir_protocol::messages::KEYS_MAX;

use super::pop::Pop;
use super::{Figures, Plan, cpu, progress};
use crate::bench::stats::{float, grouped, p50_and_p99};
use crate::redis::Redis;
use crate::redis_cluster::Cluster;
use crate::weir_sync::WeirSync;

/// Before those reports that are timed: the first ones carry whole bursts.
const WARM_UP: Duration = Duration::from_secs(2);

/// Reports of all keys before those that are timed.
const LARGE_WARM_UP: usize = 20;

/// POPs that report by turns.
#[derive(Clone, Copy, Debug)]
struct Fleet {
    pops: u32,
    /// How often each reports.
    interval: Duration,
    /// How many hot keys there are.
    keys: u64,
    /// How many of them each POP is asked for.
    keys_at_a_pop: u64,
    /// How long it reports after the warm-up.
    lasts: Duration,
}

/// What a fleet cost.
struct Cost {
    /// The part of one core that each weir-sync, and each server of the store, took.
    weir_syncs: Vec<f64>,
    servers: Vec<f64>,
    heard: Heard,
    charged: f64,
}

/// 330 POPs with the memory store, and with Redis.
pub(super) async fn run(plan: Plan, figures: &mut Figures) {
    let fleet = Fleet {
        pops: 330,
        interval: Duration::from_millis(250),
        keys: 330,
        keys_at_a_pop: 10,
        lasts: plan.fleet,
    };
    progress("330 POPs, memory store");
    one(fleet, "memory", "memory store", figures).await;
    progress("330 POPs, Redis");
    let redis = Redis::start().await;
    one(fleet, &redis.url(), "Redis", figures).await;
}

async fn one(fleet: Fleet, store: &str, name: &str, figures: &mut Figures) {
    let Cost { weir_syncs, heard, charged, .. } =
        fleet.report(&[WeirSync::start("bench", store).await], &[]).await;
    let [median, p99] = p50_and_p99_ms(heard.latencies);
    let figure = format!(
        "{} POPs, a report of {} keys every {} ms, {name}: CPU of one core; p99 (median) of a reply; not charged; \
         tokens admitted, and charged",
        fleet.pops,
        fleet.keys_at_a_pop,
        fleet.interval.as_millis()
    );
    let reached = format!(
        "{:.1} %; {p99:.2} ms ({median:.2} ms); {} of {}; {}, {}",
        weir_syncs.iter().sum::<f64>() * 100.0,
        heard.unsettled,
        grouped(float(heard.reports)),
        grouped(float(heard.admitted)),
        grouped(charged),
    );
    figures.row(&figure, &reached);
}

/// More and more POPs that report 200 keys each to two weir-syncs, over a cluster of three masters.
///
/// They report every twenty seconds, so that 1,000 POPs fit on two cores beside what they report to. What it costs to
/// charge a report does not depend on when the next one comes; what a reply pushes grows with the time between two.
pub(super) async fn grow(figures: &mut Figures) {
    for pops in [100, 300, 1_000] {
        let interval = Duration::from_secs(20);
        let fleet = Fleet { pops, interval, keys: 2_000, keys_at_a_pop: 200, lasts: interval };
        progress(&format!("{pops} POPs, a cluster of three masters"));
        let cluster = Cluster::start_masters().await;
        let weir_syncs = [
            WeirSync::start("bench-a", &cluster.url()).await,
            WeirSync::start("bench-b", &cluster.url()).await,
        ];
        let cost = fleet.report(&weir_syncs, cluster.masters()).await;
        let [median, p99] = p50_and_p99_ms(cost.heard.latencies);
        let timed =
            float(u64::from(pops) * fleet.keys_at_a_pop) * fleet.lasts.as_secs_f64() / interval.as_secs_f64();
        let a_key = |cores: &[f64]| cores.iter().sum::<f64>() * fleet.lasts.as_secs_f64() * 1e6 / timed;
        let figure = format!(
            "{pops} POPs, a report of {} keys every {} s, two weir-syncs, a cluster of three masters: CPU time of a key, \
             in weir-sync and in Redis; bytes of a key, there and back; p99 (median) of a reply; not charged",
            fleet.keys_at_a_pop,
            interval.as_secs(),
        );
        let keys = float(cost.heard.reports * fleet.keys_at_a_pop);
        let reached = format!(
            "{:.1} us and {:.1} us; {:.1} and {:.1}; {p99:.1} ms ({median:.1} ms); {} of {}",
            a_key(&cost.weir_syncs),
            a_key(&cost.servers),
            float(cost.heard.bytes.0) / keys,
            float(cost.heard.bytes.1) / keys,
            cost.heard.unsettled,
            grouped(float(cost.heard.reports)),
        );
        figures.row(&figure, &reached);
    }
}

impl Fleet {
    /// Lets all POPs report to one after the other of `weir_syncs`, whose store is `servers`.
    async fn report(self, weir_syncs: &[WeirSync], servers: &[Redis]) -> Cost {
        let began = Instant::now();
        let warm_up = WARM_UP.max(self.interval);
        let (from, to) = (began + warm_up, began + warm_up + self.lasts);
        let mut tasks = JoinSet::new();
        for (n, weir_sync) in (0..self.pops).zip(weir_syncs.iter().cycle()) {
            let first = u64::from(n) * 7 % (self.keys - self.keys_at_a_pop + 1);
            let pop = Pop::new(weir_sync, &format!("pop-{n}"), first..first + self.keys_at_a_pop);
            // POPs do not act in step.
            tasks.spawn(reports(pop, self.interval, began + self.interval * n / self.pops, from, to));
        }
        sleep_until(from.into()).await;
        let spent = || {
            let weir_syncs = weir_syncs.iter().map(|weir_sync| cpu(&[weir_sync.id()]));
            let servers = servers.iter().map(|server| cpu(&[server.id()]));
            (weir_syncs.collect::<Vec<_>>(), servers.collect::<Vec<_>>())
        };
        let before = spent();
        sleep_until(to.into()).await;
        let after = spent();
        let cores = |after: &[Duration], before: &[Duration]| {
            let part = |(after, before): (&Duration, &Duration)| {
                after.saturating_sub(*before).as_secs_f64() / self.lasts.as_secs_f64()
            };
            after.iter().zip(before).map(part).collect()
        };
        let mut heard = Heard::default();
        while let Some(done) = tasks.join_next().await {
            heard.add(done.unwrap_or_else(|e| panic!("a POP failed: {e}")));
        }
        let mut charged = 0.0;
        for weir_sync in weir_syncs {
            charged += weir_sync.metric("weir_sync_tokens_charged_total").await.unwrap_or(f64::NAN);
        }
        Cost { weir_syncs: cores(&after.0, &before.0), servers: cores(&after.1, &before.1), heard, charged }
    }
}

/// What POPs heard.
#[derive(Default)]
struct Heard {
    latencies: Vec<Duration>,
    admitted: u64,
    /// With those before the timed ones.
    reports: u64,
    /// Of these, not charged at once.
    unsettled: u64,
    /// Of reports and of replies, without HTTP's heads.
    bytes: (u64, u64),
}

impl Heard {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.admitted += other.admitted;
        self.reports += other.reports;
        self.unsettled += other.unsettled;
        self.bytes = (self.bytes.0 + other.bytes.0, self.bytes.1 + other.bytes.1);
    }
}

/// Reports every `interval` from `due` until `to`; those from `from` on are timed.
async fn reports(mut pop: Pop, interval: Duration, mut due: Instant, from: Instant, to: Instant) -> Heard {
    let mut heard = Heard::default();
    let mut is_settled = true;
    while due < to || !is_settled {
        sleep_until(due.into()).await;
        let outcome = pop.exchange().await;
        is_settled = outcome.is_settled;
        heard.reports += 1;
        heard.unsettled += u64::from(!is_settled);
        heard.bytes = (heard.bytes.0 + outcome.bytes.0, heard.bytes.1 + outcome.bytes.1);
        if due >= from {
            heard.latencies.push(outcome.took);
        }
        due += interval;
    }
    heard.admitted = pop.admitted();
    heard
}

/// How long a report of as many keys as it may carry waits for its answer: one POP, one report after the other.
pub(super) async fn large(plan: Plan, figures: &mut Figures) {
    progress("reports of 1,000 keys");
    large_over(plan, "memory", "the memory store", figures).await;
    let redis = Redis::start().await;
    large_over(plan, &redis.url(), "Redis", figures).await;
}

async fn large_over(plan: Plan, store: &str, name: &str, figures: &mut Figures) {
    let weir_sync = WeirSync::start("bench", store).await;
    let mut pop = Pop::new(&weir_sync, "pop-0", 0..KEYS_MAX as u64);
    let (mut latencies, mut unsettled) = (Vec::new(), 0);
    for n in 0..LARGE_WARM_UP + plan.large_reports {
        let outcome = pop.exchange().await;
        if n >= LARGE_WARM_UP {
            latencies.push(outcome.took);
            unsettled += u64::from(!outcome.is_settled);
        }
    }
    if unsettled > 0 {
        progress(&format!("{unsettled} of {} were not charged in time", latencies.len()));
    }
    let [median, p99] = p50_and_p99_ms(latencies);
    let figure = format!("a report of 1,000 keys, {name}: p99 (median) until its answer");
    figures.row(&figure, &format!("{p99:.2} ms ({median:.2} ms)"));
}

fn p50_and_p99_ms(latencies: Vec<Duration>) -> [f64; 2] {
    p50_and_p99(latencies.into_iter().map(|latency| latency.as_secs_f64() * 1e3))
}
