//! The rounds: each visits every service with few keys and with many, in an order that turns from round to round.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep;

use crate::bench::cpu::Meter;
use crate::bench::generator::{Callers, Generator};
use crate::bench::stats::quantile;
use crate::redis::Redis;

use super::contender::{Contender, Service};
use super::plan::Plan;
use super::proxy::Proxy;

/// Connections that load a listener.
pub(super) const CONNECTIONS: usize = 32;
/// Requests of a visit before it is measured.
const WARM_UP: usize = 300;

/// How many addresses ask in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keys {
    /// Each is asked for again and again while it is measured.
    Few,
    /// So many that each request finds its key as it was left some visits ago.
    Many,
}

impl Keys {
    /// Each of them.
    pub(super) const ALL: [Self; 2] = [Self::Few, Self::Many];

    /// How many.
    pub(super) fn count(self) -> u32 {
        match self {
            Self::Few => 100,
            Self::Many => 10_000,
        }
    }

    /// The first address; all are of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
    fn first(self) -> Ipv4Addr {
        match self {
            Self::Few => Ipv4Addr::new(198, 19, 0, 1),
            Self::Many => Ipv4Addr::new(198, 18, 0, 1),
        }
    }
}

/// What a visit measured. Times are in microseconds, those of CPUs for one check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    /// Of the service.
    pub(super) service_us: f64,
    /// Of Redis.
    pub(super) redis_us: f64,
    /// The median time of a request through Envoy, with all connections at once, and the 99th percentile.
    pub(super) busy: (f64, f64),
    /// The same, one request after the other.
    pub(super) alone: (f64, f64),
}

impl Visit {
    /// The CPU time of both.
    pub(super) fn both_us(&self) -> f64 {
        self.service_us + self.redis_us
    }
}

/// One round.
pub(super) type Round = BTreeMap<(Contender, Keys), Visit>;

/// A service that is visited.
struct Site {
    contender: Contender,
    keys: Keys,
    generator: Generator,
    callers: Arc<Callers>,
    service: Meter,
    redis: Meter,
}

/// Visits all, as long as `plan` says.
pub(super) async fn all(
    plan: Plan,
    redis: &Redis,
    services: &[Service],
    proxy: &Proxy,
) -> Result<Vec<Round>, String> {
    let mut sites = vec![];
    for keys in Keys::ALL {
        for service in services {
            sites.push(Site {
                contender: service.contender(),
                keys,
                generator: Generator::connect(proxy.address(service.contender())?, CONNECTIONS).await?,
                callers: Callers::new(keys.first(), keys.count()),
                service: Meter::default().and(&[service.id()]),
                redis: Meter::default().and(&[redis.id()]),
            });
        }
    }
    let mut rounds = vec![];
    let (count, end) = (sites.len().max(1), Instant::now() + plan.lasts);
    for number in 0..plan.rounds {
        if number >= plan.least_rounds && Instant::now() > end {
            break;
        }
        let mut round = Round::new();
        for turn in 0..sites.len() {
            let site = &mut sites[(number + turn) % count];
            let visit = site.visit(plan).await.map_err(|e| format!("{}: {e}", site.contender.name()))?;
            round.insert((site.contender, site.keys), visit);
        }
        told(number + 1, plan, &round);
        rounds.push(round);
    }
    Ok(rounds)
}

fn told(number: usize, plan: Plan, round: &Round) {
    eprintln!("bench-gateway: round {number} of {}: CPU time of a check in µs, service + Redis", plan.rounds);
    for ((contender, keys), visit) in round {
        eprintln!(
            "bench-gateway:   {:26} {:6} keys: {:5.1} + {:5.1}; p50, p99: {:.0}, {:.0}; one at a time {:.0}, {:.0}",
            contender.name(),
            keys.count(),
            visit.service_us,
            visit.redis_us,
            visit.busy.0,
            visit.busy.1,
            visit.alone.0,
            visit.alone.1,
        );
    }
}

impl Site {
    async fn visit(&mut self, plan: Plan) -> Result<Visit, String> {
        self.generator.load(WARM_UP, &self.callers).await?.all(200)?;
        let alone = self.generator.alone(plan.alone, &self.callers).await?.all(200)?;
        sleep(plan.afterwards).await;
        let before = (self.service.read()?, self.redis.read()?);
        let busy = self.generator.load(plan.requests, &self.callers).await?.all(200)?;
        sleep(plan.afterwards).await;
        let after = (self.service.read()?, self.redis.read()?);
        let each = |after: u64, before: u64| micros(after.saturating_sub(before)) / f64::from(busy.counted);
        Ok(Visit {
            service_us: each(after.0, before.0),
            redis_us: each(after.1, before.1),
            alone: p50_and_p99(alone.waited_us),
            busy: p50_and_p99(busy.waited_us),
        })
    }
}

fn p50_and_p99(mut waited_us: Vec<f64>) -> (f64, f64) {
    waited_us.sort_by(f64::total_cmp);
    (quantile(&waited_us, 0.5), quantile(&waited_us, 0.99))
}

fn micros(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64() * 1e6
}
