//! The rounds: each measures every case once, in an Envoy of its own. Where a listener's memory happens to lie makes its requests
//! dearer or cheaper by some microseconds for as long as its Envoy runs, and listeners beside it push its code and data out of
//! the caches.

use std::collections::BTreeMap;
use std::time::Instant;

use fastrand::Rng;

use crate::bench::case::{By, Case, Under};
use crate::bench::cpu::Cpus;
use crate::bench::figures;
use crate::bench::pair::Pair;
use crate::bench::plan::Plan;
use crate::bench::proxy::Behind;
use crate::bench::upstream;

/// What each case showed.
pub type Round = BTreeMap<Case, Pair>;

/// As many rounds as `plan` says. Progress goes to standard error.
pub async fn all(plan: Plan, cpus: Cpus) -> Result<Vec<Round>, String> {
    let (mut rounds, mut order) = (vec![], Rng::with_seed(0));
    let behind = Behind { upstream: Some(upstream::start()?), ..Behind::default() };
    let end = Instant::now() + plan.lasts;
    while rounds.len() < plan.least_rounds || Instant::now() < end {
        let mut cases = Case::all(plan.all);
        let has_rotating = rounds.len().is_multiple_of(plan.rotating_every);
        cases.retain(|case| has_rotating || case.under != Under::Rotating);
        order.shuffle(&mut cases);
        let mut round = Round::new();
        for case in cases {
            let pair = Pair::measure(case, plan, cpus, behind, &mut order).await;
            round.insert(case, pair.map_err(|e| format!("{case}: {e}"))?);
        }
        rounds.push(round);
        told(&rounds);
    }
    Ok(rounds)
}

fn told(rounds: &[Round]) {
    let figure = |by| format!("{:.2}", figures::added(rounds, Case::new(by, Under::Many)));
    eprintln!(
        "bench: round {}: added µs so far: nothing {}, empty {}, local_ratelimit {}, wasm {}, module {}, central {}",
        rounds.len(),
        figure(By::NothingAgain),
        figure(By::Empty),
        figure(By::Native),
        figure(By::Wasm),
        figure(By::Module),
        figure(By::Central),
    );
}
