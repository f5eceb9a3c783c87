//! The rounds: each visits every listener some times, in an order that turns from pass to pass.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::bench::case::Case;
use crate::bench::plan::Plan;
use crate::bench::site::{Site, Tally};
use crate::bench::stats::quantile;

/// What a round measured of one case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visit {
    /// CPU time per request, in microseconds, all connections at once.
    pub cpu_us: f64,
    /// The same, one request after the other.
    pub alone_us: f64,
    /// Median latency of requests one after the other, in microseconds.
    pub p50_us: f64,
    /// Their 99th percentile.
    pub p99_us: f64,
}

impl Visit {
    fn of(mut tally: Tally) -> Self {
        tally.waited_us.sort_by(f64::total_cmp);
        Self {
            cpu_us: tally.busy.per_request_us(),
            alone_us: tally.alone.per_request_us(),
            p50_us: quantile(&tally.waited_us, 0.5),
            p99_us: quantile(&tally.waited_us, 0.99),
        }
    }
}

/// One round.
pub type Round = BTreeMap<Case, Visit>;

/// Visits all sites; `told` after each round.
pub async fn all(sites: &mut [Site], plan: Plan, told: impl Fn(usize, &Round)) -> Result<Vec<Round>, String> {
    let mut rounds = vec![];
    let count = sites.len().max(1);
    let end = Instant::now() + plan.lasts;
    for number in 0..plan.rounds {
        if number >= plan.least_rounds && Instant::now() > end {
            break;
        }
        let mut tallies: BTreeMap<Case, Tally> = BTreeMap::new();
        for pass in 0..plan.passes {
            for turn in 0..sites.len() {
                let site = &mut sites[(number * plan.passes + pass + turn) % count];
                site.visit(plan, tallies.entry(site.case()).or_default()).await?;
            }
        }
        let round = tallies.into_iter().map(|(case, tally)| (case, Visit::of(tally))).collect();
        told(number + 1, &round);
        rounds.push(round);
    }
    Ok(rounds)
}
