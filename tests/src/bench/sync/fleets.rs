//! A fleet of simulated POPs that report at their interval: docs/operating.md reckons with what its keys cost.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::pop::Pop;
use super::{Figures, cpu, progress};
use crate::bench::stats::{float, grouped, p50_and_p99};
use crate::redis_cluster::Cluster;
use crate::weir_sync::WeirSync;

/// The number of hot keys, ...
const KEYS: u64 = 2_000;
/// ... and how many of them each POP is asked for.
const KEYS_AT_A_POP: u64 = 200;
/// Reports of each POP per second, so that 1,000 POPs fit on two cores beside their weir-sync. The cost of
/// charging a report does not depend on the time to the next one; the pushes of a reply grow with that time.
const INTERVAL: Duration = Duration::from_secs(20);

/// More and more POPs that report to two weir-syncs, over a cluster of three masters. The second report of each is
/// timed: the first ones carry whole bursts.
pub(super) async fn run(figures: &mut Figures) {
    for pops in [100, 300, 1_000] {
        progress(&format!("{pops} POPs, a cluster of three masters"));
        let cluster = Cluster::start_masters().await;
        let weir_syncs =
            [WeirSync::start("bench-a", &cluster.url()).await, WeirSync::start("bench-b", &cluster.url()).await];
        let began = Instant::now();
        let (from, to) = (began + INTERVAL, began + 2 * INTERVAL);
        let mut tasks = JoinSet::new();
        for (n, weir_sync) in (0..pops).zip(weir_syncs.iter().cycle()) {
            let first = u64::from(n) * 7 % (KEYS - KEYS_AT_A_POP + 1);
            let pop = Pop::new(weir_sync, &format!("pop-{n}"), first..first + KEYS_AT_A_POP);
            // POPs do not act in step.
            tasks.spawn(reports(pop, began + INTERVAL * n / pops, from, to));
        }
        let spent = || {
            let weir_syncs: Vec<u32> = weir_syncs.iter().map(WeirSync::id).collect();
            let servers: Vec<u32> = cluster.masters().iter().map(crate::redis::Redis::id).collect();
            [weir_syncs, servers].map(|processes| cpu(&processes).as_secs_f64() * 1e6)
        };
        sleep_until(from.into()).await;
        let before = spent();
        sleep_until(to.into()).await;
        let after = spent();
        let mut seen = Seen::default();
        while let Some(done) = tasks.join_next().await {
            seen.add(done.unwrap_or_else(|e| panic!("a POP failed: {e}")));
        }
        let [sync_us, redis_us] = [0, 1].map(|n| (after[n] - before[n]) / float(u64::from(pops) * KEYS_AT_A_POP));
        figures.row(&figure(pops), None, seen.reached(sync_us, redis_us));
    }
}

fn figure(pops: u32) -> String {
    format!(
        "{pops} POPs, a report of {KEYS_AT_A_POP} keys every {} s, two weir-syncs, a cluster of three masters: CPU \
         time of a key, in weir-sync and in Redis; bytes of a key, there and back; p99 (median) of a reply; not \
         charged",
        INTERVAL.as_secs(),
    )
}

/// The reports of some POPs, and their replies.
#[derive(Default)]
struct Seen {
    /// Of the timed ones, in milliseconds.
    latencies_ms: Vec<f64>,
    /// With those before the timed ones.
    reports: u64,
    /// Of these, not charged at once.
    unsettled: u64,
    /// Of reports and of replies, without HTTP's heads.
    bytes: (u64, u64),
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.latencies_ms.extend(other.latencies_ms);
        self.reports += other.reports;
        self.unsettled += other.unsettled;
        self.bytes = (self.bytes.0 + other.bytes.0, self.bytes.1 + other.bytes.1);
    }

    fn reached(&self, sync_us: f64, redis_us: f64) -> String {
        let [median, p99] = p50_and_p99(self.latencies_ms.iter().copied());
        let (keys, reports) = (float(self.reports * KEYS_AT_A_POP), grouped(float(self.reports)));
        format!(
            "{sync_us:.1} us and {redis_us:.1} us; {:.1} and {:.1}; {p99:.1} ms ({median:.1} ms); {} of {reports}",
            float(self.bytes.0) / keys,
            float(self.bytes.1) / keys,
            self.unsettled,
        )
    }
}

/// Reports every interval from `due` until `to`; those from `from` on are timed.
async fn reports(mut pop: Pop, mut due: Instant, from: Instant, to: Instant) -> Seen {
    let (mut seen, mut is_settled) = (Seen::default(), true);
    while due < to || !is_settled {
        sleep_until(due.into()).await;
        let outcome = pop.exchange().await;
        is_settled = outcome.is_settled;
        seen.reports += 1;
        seen.unsettled += u64::from(!is_settled);
        seen.bytes = (seen.bytes.0 + outcome.bytes.0, seen.bytes.1 + outcome.bytes.1);
        if due >= from {
            seen.latencies_ms.push(outcome.took.as_secs_f64() * 1e3);
        }
        due += INTERVAL;
    }
    seen
}
