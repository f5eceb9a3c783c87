//! A listener that is visited, and visits to all of them in turn. They are short and many, so that what disturbs the
//! machine for a while meets all listeners, and leaves most visits to each of them undisturbed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::time::sleep;

use super::cpu::Meter;
use super::generator::{Callers, Generator, SETTLES};
use super::proxy::Proxy;
use super::stats::{micros, p50_and_p99};

/// Connections that load one listener: enough that its worker hardly ever waits.
pub const CONNECTIONS: usize = 32;
/// The first caller; all are of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
pub const CALLERS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Rounds; each visits every listener once.
    pub rounds: usize,
    /// Fewer, but at least this many, if they last longer than `lasts`.
    pub least_rounds: usize,
    /// Time that the rounds may last.
    pub lasts: Duration,
    /// Requests of a visit before it is measured: what ran before has left its own data in the caches.
    pub warm_up: usize,
    /// Requests of a visit that are measured for CPU time, over all connections at once.
    pub requests: usize,
    /// Requests of a visit that are measured for latency, one after the other.
    pub alone: usize,
    /// After requests, for how long CPU time still counts.
    pub settles: Duration,
}

/// The measurements of a visit. Times are in microseconds, those of CPUs for one request.
#[derive(Clone, Debug, Default)]
pub struct Visit {
    /// CPU time of each meter, all connections at once.
    pub cpu_us: [f64; 2],
    /// The same of both together, one request after the other.
    pub alone_us: f64,
    /// The wait of each of those sent one after the other.
    pub waited_us: Vec<f64>,
    /// The median and the 99th percentile of how long those waited that were sent at once.
    pub busy_us: [f64; 2],
}

/// One round.
pub type Round<K> = BTreeMap<K, Visit>;

/// A listener that is visited.
pub struct Site<K> {
    /// Its key.
    pub key: K,
    /// The connections to it.
    pub generator: Generator,
    /// The callers.
    pub callers: Arc<Callers>,
    /// The meters of CPU time, one for each process.
    pub meters: [Meter; 2],
    /// The status of every answer.
    pub status: u16,
    /// Requests that were answered 200 so far.
    pub admitted: u64,
}

impl<K: Copy + Display + Ord> Site<K> {
    /// Connects to the listener `at` of `proxy`.
    pub async fn open<L: Copy + Display + Ord>(
        key: K,
        (proxy, at): (&Proxy<L>, L),
        callers: Arc<Callers>,
        meters: [Meter; 2],
        status: u16,
    ) -> Result<Self, String> {
        let generator = Generator::connect(proxy.address(at)?, CONNECTIONS).await?;
        Ok(Self { key, generator, callers, meters, status, admitted: 0 })
    }

    /// Measures it once. An error if an answer is not what it must be.
    async fn visit(&mut self, length: Length) -> Result<Visit, String> {
        let Self { callers, status, .. } = self;
        let (callers, status) = (Arc::clone(callers), *status);
        let warm = self.generator.load(length.warm_up, &callers).await?.all(status)?;
        let start = self.read_after(length.settles).await?;
        let busy = self.generator.load(length.requests, &callers).await?.all(status)?;
        let between = self.read_after(length.settles).await?;
        let alone = self.generator.alone(length.alone, &callers).await?.all(status)?;
        let end = self.read_after(SETTLES).await?;
        self.admitted += u64::from(warm.admitted + busy.admitted + alone.admitted);
        let each =
            |after: u64, before: u64, requests: u32| micros(after.saturating_sub(before)) / f64::from(requests.max(1));
        let used = |n: usize| each(end[n], between[n], alone.counted);
        Ok(Visit {
            cpu_us: [0, 1].map(|n| each(between[n], start[n], busy.counted)),
            alone_us: used(0) + used(1),
            busy_us: p50_and_p99(busy.waited_us.iter().copied()),
            waited_us: alone.waited_us,
        })
    }

    /// The CPU time so far, once those who used it sleep.
    async fn read_after(&self, settles: Duration) -> Result<[u64; 2], String> {
        sleep(settles).await;
        let [one, other] = &self.meters;
        Ok([one.read()?, other.read()?])
    }
}

/// Visits all sites, round after round, each time in another order, so that a site does not always come after the same
/// one; `progress` gets all rounds so far, after each.
pub async fn in_turn<K: Copy + Display + Ord>(
    sites: &mut [Site<K>],
    length: Length,
    progress: impl Fn(&[Round<K>]),
) -> Result<Vec<Round<K>>, String> {
    let mut rounds: Vec<Round<K>> = vec![];
    let (mut order, mut places) = (Rng::with_seed(0), (0..sites.len()).collect::<Vec<_>>());
    let end = Instant::now() + length.lasts;
    for number in 0..length.rounds {
        if number >= length.least_rounds && Instant::now() > end {
            break;
        }
        let mut round = Round::new();
        order.shuffle(&mut places);
        for place in &places {
            let site = &mut sites[*place];
            let visit = site.visit(length).await.map_err(|e| format!("{}: {e}", site.key))?;
            round.insert(site.key, visit);
        }
        rounds.push(round);
        progress(&rounds);
    }
    Ok(rounds)
}
