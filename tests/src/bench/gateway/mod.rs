//! Cost of a check at the gateway, beside the alternatives that people would pick: `make bench-gateway`.
//!
//! Every service is asked by Envoy's own filter `ratelimit`, about the same descriptors, and has a database of the same
//! Redis. It is visited with few keys and with many. CPU time is the kernel's figure for each of its threads,
//! and so is that of Redis.

mod contender;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::cpu::{Cpus, Meter};
use super::generator::Callers;
use super::page::Part;
use super::proxy::{Proxy, central, http};
use super::stats::{Spread, grouped, p50_and_p99};
use super::summary::{GATEWAY_PLAIN, GATEWAY_STRICT, Target};
use super::visits::{CALLERS, CONNECTIONS, Length, Round, Site, Visit, in_turn};
use super::{filters, machine, upstream};
use crate::redis::Redis;

use contender::{Contender, Service};

/// For a look, about a minute; or what docs/reference/benchmarks.md is made with, under seven minutes.
pub fn length(is_quick: bool) -> Length {
    Length {
        rounds: if is_quick { 3 } else { 9 },
        least_rounds: if is_quick { 1 } else { 3 },
        lasts: Duration::from_secs(if is_quick { 40 } else { 210 }),
        warm_up: 300,
        requests: if is_quick { 4_000 } else { 20_000 },
        alone: if is_quick { 200 } else { 400 },
        // What is not strict goes to Redis within a second.
        settles: Duration::from_millis(1_100),
    }
}

/// Requests per second that a key may have, in the rounds: more than any is asked for.
const LIMIT: u32 = 1_000;
/// Addresses that ask in turn: few, each of which is asked for again and again while it is measured; or so many that
/// each request finds its key as it was left some visits ago.
const KEYS: [u32; 2] = [100, 10_000];

/// A service with a number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Visited(Contender, u32);

impl fmt::Display for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:26} {:6} keys", self.0, self.1)
    }
}

/// Measures everything; gives what docs/reference/benchmarks.md is to hold. Progress goes to standard error.
pub async fn run(length: Length) -> Result<Part, String> {
    let cpus = Cpus::choose()?;
    let machine = machine::with_envoy();
    cpus.settle()?;
    eprintln!("bench-gateway: {machine}");
    let contenders = contender::there();
    let upstream = upstream::start()?;
    let redis = Redis::start().await;
    let services = contender::start(&contenders, &redis, LIMIT).await?;
    let mut proxy = proxy(&services, upstream, cpus).await?;
    let mut sites = vec![];
    for (keys, first) in KEYS.into_iter().zip([Ipv4Addr::new(198, 19, 0, 1), CALLERS]) {
        for service in &services {
            let (contender, callers) = (service.contender, Callers::new(first, keys));
            let meters = [Meter::of(&[service.id]), Meter::of(&[redis.id()])];
            let at = (&proxy, contender);
            sites.push(Site::open(Visited(contender, keys), at, callers, meters, 200).await?);
        }
    }
    let rounds = in_turn(&mut sites, length, |rounds| print_progress(length, rounds)).await?;
    proxy.check()?;
    Ok(part(&machine, length, &rounds))
}

/// An Envoy with a listener and a cluster for each service.
async fn proxy(services: &[Service], upstream: SocketAddr, cpus: Cpus) -> Result<Proxy<Contender>, String> {
    let mut clusters = vec![http("upstream", upstream)];
    clusters.extend(services.iter().map(|service| central(service.contender.cluster(), service.address)));
    let contenders = services.iter().map(|service| service.contender);
    let listeners = contenders.map(|contender| (contender, filters::central(contender.cluster())));
    Proxy::start(listeners, 1, clusters, cpus).await
}

fn print_progress(length: Length, rounds: &[Round<Visited>]) {
    let Some(round) = rounds.last() else { return };
    let (number, of) = (rounds.len(), length.rounds);
    eprintln!("bench-gateway: round {number} of {of}: CPU time of a check in µs, service + Redis");
    for (visited, visit) in round {
        let [service, redis] = visit.cpu_us;
        let ([p50, p99], [one_p50, one_p99]) = (visit.busy_us, alone(visit));
        eprintln!(
            "bench-gateway:   {visited}: {service:5.1} + {redis:5.1}; p50, p99: {p50:.0}, {p99:.0}; one at a time \
             {one_p50:.0}, {one_p99:.0}"
        );
    }
}

fn both(visit: &Visit) -> f64 {
    visit.cpu_us[0] + visit.cpu_us[1]
}

fn service(visit: &Visit) -> f64 {
    visit.cpu_us[0]
}

fn alone(visit: &Visit) -> [f64; 2] {
    p50_and_p99(visit.waited_us.iter().copied())
}

/// The page's part.
fn part(machine: &str, length: Length, rounds: &[Round<Visited>]) -> Part {
    let Length { requests, alone, .. } = length;
    let text = format!(
        "{machine} {} rounds; per service, number of keys and round {requests} requests over {CONNECTIONS} \
         connections and {alone} one after the other; median, and quartiles in brackets. A figure is checks per second \
         of CPU.",
        rounds.len(),
    );
    let mut part = Part::begin(&text, &["reached, service and Redis", "the service alone"]);
    for (target, ours, theirs) in [
        (GATEWAY_STRICT, Contender::Strict, Contender::Minimal),
        (GATEWAY_PLAIN, Contender::Plain, Contender::Limitador),
    ] {
        if rounds.iter().any(|round| round.contains_key(&Visited(theirs, KEYS[0]))) {
            compared(&mut part, target, rounds, ours, theirs);
        }
    }
    services(&mut part, rounds);
    part
}

/// Ratio of the checks that one makes in a second of CPU, for few keys and for many; the worse of both counts.
fn compared(part: &mut Part, target: Target, rounds: &[Round<Visited>], ours: Contender, theirs: Contender) {
    let ratios = |of: fn(&Visit) -> f64| {
        KEYS.map(|keys| {
            let ratio = |round: &Round<Visited>| {
                Some(of(round.get(&Visited(theirs, keys))?) / of(round.get(&Visited(ours, keys))?))
            };
            (keys, Spread::of(rounds.iter().filter_map(ratio)))
        })
    };
    let text = |ratios: &[(u32, Spread)]| {
        let each = ratios.iter().map(|(keys, spread)| format!("{spread}, {} keys", grouped((*keys).into())));
        each.collect::<Vec<_>>().join("; ")
    };
    let all = ratios(both);
    let worse = all.iter().map(|(_, spread)| spread.median).fold(f64::INFINITY, f64::min);
    let cells = [text(&all), text(&ratios(service))];
    part.figure(&format!("{ours} : {theirs}"), Some((target, worse)), &cells);
}

/// A row for each service and number of keys.
fn services(part: &mut Part, rounds: &[Round<Visited>]) {
    part.table(&[
        "service",
        "keys",
        "checks per second of CPU",
        "CPU of a check, service, µs",
        "Redis, µs",
        "p50 and p99, one at a time, µs",
        &format!("{CONNECTIONS} at a time, µs"),
    ]);
    for contender in Contender::ALL {
        for keys in KEYS {
            let visited = Visited(contender, keys);
            let visits: Vec<&Visit> = rounds.iter().filter_map(|round| round.get(&visited)).collect();
            if visits.is_empty() {
                continue;
            }
            let of = |of: &dyn Fn(&Visit) -> f64| Spread::of(visits.iter().map(|visit| of(visit)));
            let pair = |of_visit: fn(&Visit) -> [f64; 2]| {
                let [p50, p99] = [0, 1].map(|n| of(&|visit| of_visit(visit)[n]).median);
                format!("{p50:.0}, {p99:.0}")
            };
            part.row(&[
                contender.to_string(),
                grouped(keys.into()),
                format!("{:.0}", of(&|visit| 1e6 / both(visit))),
                format!("{:.1}", of(&service)),
                format!("{:.1}", of(&|visit| visit.cpu_us[1])),
                pair(alone),
                pair(|visit| visit.busy_us),
            ]);
        }
    }
}
