//! The tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bench::figures::grouped;
use crate::bench::page::Part;
use crate::bench::stats::Spread;
use crate::bench::summary::{GATEWAY_PLAIN, GATEWAY_STRICT, Reached, Target};

use super::accuracy::{self, Admitted};
use super::contender::Contender;
use super::plan::Plan;
use super::rounds::{CONNECTIONS, Keys, Round, Visit};

/// What the page is to hold.
pub(super) fn part(
    machine: &str,
    plan: Plan,
    rounds: &[Round],
    accuracy: &BTreeMap<Contender, Admitted>,
) -> Part {
    let requests = grouped(u32::try_from(plan.requests).unwrap_or_default());
    let mut page = format!(
        "{machine} {} rounds; per service, number of keys and round {requests} requests over {CONNECTIONS} connections and {} \
         one after the other; median, and quartiles in brackets.\n\n",
        rounds.len(),
        plan.alone,
    );
    let mut reached = vec![];
    page += "| checks per second of CPU | must | aim | reached, service and Redis | the service alone |\n|---|---|---|---|---|\n";
    for (target, ours, theirs) in [
        (Some(GATEWAY_STRICT), Contender::Strict, Contender::Minimal),
        (Some(GATEWAY_PLAIN), Contender::Plain, Contender::Limitador),
        (None, Contender::Plain, Contender::Minimal),
        (None, Contender::Strict, Contender::Limitador),
        (None, Contender::Plain, Contender::LimitadorCached),
    ] {
        let Some(compared) = Compared::of(rounds, ours, theirs) else { continue };
        let (must, aim) = target.map_or(("", ""), |target| (target.must, target.aim));
        let (both, alone) = (&compared.both, &compared.alone);
        let _ = writeln!(
            page,
            "| {} : {} | {must} | {aim} | {} | {} |",
            ours.name(),
            theirs.name(),
            text(both),
            text(alone)
        );
        reached.extend(target.map(|target| compared.reached(target)));
    }
    page += &services(rounds);
    page += &admitted(plan, accuracy);
    Part { reached, figures: page }
}

/// How many times as many checks one makes in a second of CPU, for few keys and for many.
struct Compared {
    both: Vec<(Keys, Spread)>,
    alone: Vec<(Keys, Spread)>,
}

impl Compared {
    fn of(rounds: &[Round], ours: Contender, theirs: Contender) -> Option<Self> {
        let ratios = |of: fn(&Visit) -> f64| {
            Keys::ALL.into_iter().map(move |keys| {
                let ratio =
                    |round: &Round| Some(of(round.get(&(theirs, keys))?) / of(round.get(&(ours, keys))?));
                (keys, Spread::of(rounds.iter().filter_map(ratio)))
            })
        };
        let is_there = rounds.iter().any(|round| round.contains_key(&(theirs, Keys::Few)));
        is_there.then(|| Self {
            both: ratios(Visit::both_us).collect(),
            alone: ratios(|visit| visit.service_us).collect(),
        })
    }

    /// The worse of both.
    fn reached(&self, target: Target) -> Reached {
        let worse = self.both.iter().map(|(_, spread)| spread.median).fold(f64::INFINITY, f64::min);
        target.reached(worse, text(&self.both))
    }
}

fn text(ratios: &[(Keys, Spread)]) -> String {
    let each = ratios.iter().map(|(keys, spread)| format!("{spread}, {} keys", grouped(keys.count())));
    each.collect::<Vec<_>>().join("; ")
}

/// A row for each service and number of keys.
fn services(rounds: &[Round]) -> String {
    let mut page = format!(
        "\n| service | keys | checks per second of CPU | CPU of a check, service, µs | Redis, µs | p50 and p99, one at a time, µs | \
         {CONNECTIONS} at a time, µs |\n|---|---|---|---|---|---|---|\n"
    );
    for contender in Contender::ALL {
        for keys in Keys::ALL {
            let visits: Vec<&Visit> =
                rounds.iter().filter_map(|round| round.get(&(contender, keys))).collect();
            if visits.is_empty() {
                continue;
            }
            let of = |of: fn(&Visit) -> f64| Spread::of(visits.iter().map(|visit| of(visit)));
            let _ = writeln!(
                page,
                "| {} | {} | {:.0} | {:.1} | {:.1} | {:.0}, {:.0} | {:.0}, {:.0} |",
                contender.name(),
                grouped(keys.count()),
                of(|visit| 1e6 / visit.both_us()),
                of(|visit| visit.service_us),
                of(|visit| visit.redis_us),
                of(|visit| visit.alone.0).median,
                of(|visit| visit.alone.1).median,
                of(|visit| visit.busy.0).median,
                of(|visit| visit.busy.1).median,
            );
        }
    }
    page
}

/// A row for each service: what it let through.
fn admitted(plan: Plan, accuracy: &BTreeMap<Contender, Admitted>) -> String {
    let mut page = format!(
        "\n| {} replicas, {}/s for a client that asks for three times as much, {} s | let through : the limit over that time | the most within any second |\n\
         |---|---|---|\n",
        accuracy::REPLICAS,
        accuracy::LIMIT,
        plan.accuracy.as_secs(),
    );
    for (contender, Admitted { part, in_a_second }) in accuracy {
        let _ = writeln!(page, "| {} | {part:.3} | {in_a_second} |", contender.name());
    }
    page
}
