//! Filters in a real Envoy, beside what people would pick instead: `make bench-envoy`, `make bench-quick`.

pub mod case;
pub mod figures;

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::cpu::{Cpus, Meter};
use super::filters::{PLENTY, SERVICE, WEIR_SYNC};
use super::generator::{Callers, SETTLES};
use super::page::Part;
use super::proxy::{Proxy, central, http};
use super::service::Service;
use super::stats::float;
use super::visits::{CALLERS, CONNECTIONS, Length, Round, Site, in_turn};
use super::{machine, upstream};
use crate::artefact;
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

use case::{By, Case, Under};
use figures::Figures;

/// Callers that are only there for the proof that each address is counted by itself.
const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 19, 255, 1), Ipv4Addr::new(198, 19, 255, 2)];
/// Requests that every listener has had before the first visit, if it has fewer callers.
const PREPARING: u32 = 3_000;
/// Sweeps between two words of progress.
const TOLD_EVERY: usize = 20;

/// The length of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// True if every listener is visited, false if only those of the main ratios.
    all: bool,
    visits: Length,
}

impl Plan {
    /// The main ratios, in under five minutes; or what docs/reference/benchmarks.md is made with, in a quarter of an
    /// hour.
    pub fn of(is_quick: bool) -> Self {
        let visits = Length {
            rounds: 1_000,
            least_rounds: if is_quick { 50 } else { 100 },
            lasts: Duration::from_secs(if is_quick { 170 } else { 480 }),
            warm_up: 150,
            // Few: what disturbs the machine comes in pieces of some hundredths of a second, and the shorter a visit,
            // the likelier it lies between two of them.
            requests: 300,
            alone: 20,
            settles: SETTLES,
        };
        Self { all: !is_quick, visits }
    }
}

/// Measures everything; gives what docs/reference/benchmarks.md is to hold. Progress goes to standard error.
pub async fn run(plan: Plan) -> Result<Part, String> {
    let cpus = Cpus::choose()?;
    let machine = machine::with_envoy();
    cpus.settle()?;
    eprintln!("bench: {machine}");
    let sweeps = sweeps(plan, cpus).await?;
    let module = artefact::filter_wasm();
    let module_bytes = fs::metadata(&module).map_err(|e| format!("{}: {e}", module.display()))?.len();
    let Length { requests, alone, .. } = plan.visits;
    let text = format!(
        "{machine} {} sweeps; per listener and sweep {requests} requests over {CONNECTIONS} connections and \
         {alone} one after the other.",
        sweeps.len(),
    );
    Ok(Figures { sweeps: &sweeps, module_bytes: float(module_bytes) }.part(&text))
}

async fn sweeps(plan: Plan, cpus: Cpus) -> Result<Vec<Round<Case>>, String> {
    let upstream = upstream::start()?;
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), PLENTY.tokens()).await?;
    let weir_sync = WeirSync::start("bench", "memory").await;
    let clusters =
        vec![http("upstream", upstream), http(WEIR_SYNC, weir_sync.address()), central(SERVICE, service.address())];
    let (of_one, of_two) = (Case::of_one_worker(plan.all), Case::of_two_workers());
    let of = |cases: &[Case]| cases.iter().map(|case| (*case, case.filters())).collect::<Vec<_>>();
    let mut one = Proxy::start(of(&of_one), 1, clusters.clone(), cpus).await?;
    let mut two = Proxy::start(of(&of_two), 2, clusters, cpus).await?;
    let mut sites = vec![];
    for case in of_one {
        let also = if case.by == By::Central { vec![service.id(), redis.id()] } else { vec![] };
        sites.push(open(case, &one, &also).await.map_err(|e| format!("{case}: {e}"))?);
    }
    for case in of_two {
        sites.push(open(case, &two, &[]).await.map_err(|e| format!("{case}: {e}"))?);
    }
    let done = in_turn(&mut sites, plan.visits, |sweeps| {
        if sweeps.len().is_multiple_of(TOLD_EVERY) {
            print_progress(plan, sweeps);
        }
    })
    .await?;
    one.check()?;
    two.check()?;
    let through: u64 = sites.iter().filter(|site| site.key.by == By::Central).map(|site| site.admitted).sum();
    let asked: u64 = redis.info("commandstats", "cmdstat_incrby:calls=").await;
    if asked != through {
        return Err(format!("the central service was asked {asked} times for {through} requests"));
    }
    Ok(done)
}

fn print_progress(plan: Plan, sweeps: &[Round<Case>]) {
    let by = [By::NothingAgain, By::Empty, By::Native, By::Wasm, By::Module, By::Central];
    let added = by.map(|by| Case::new(by, Under::Many)).map(|case| (case, figures::added(sweeps, case)));
    let added = added.map(|(case, added)| format!("{case} {added:.2}"));
    eprintln!("bench: sweep {} of {}: added µs: {}", sweeps.len(), plan.visits.rounds, added.join(", "));
}

/// Connects to the case's listener in `proxy`, sees that it is what it should be, and brings it to where it stays: all
/// callers known, what is to be empty is empty. `also` are other processes whose CPU time counts.
async fn open(case: Case, proxy: &Proxy<Case>, also: &[u32]) -> Result<Site<Case>, String> {
    let callers = Callers::new(CALLERS, case.callers());
    let meters = [proxy.meter().and(also), Meter::default()];
    let mut site = Site::open(case, (proxy, case), callers, meters, case.status()).await?;
    prove(&mut site).await?;
    let prepared = usize::try_from(case.callers().max(PREPARING)).unwrap_or(usize::MAX);
    let answers = site.generator.load(prepared, &site.callers).await?;
    site.admitted += u64::from(answers.admitted);
    // What is limited lets one request through before.
    if case.status() != 429 || answers.admitted != 1 || answers.others != 0 {
        answers.all(case.status())?;
    }
    if case.has_two_workers() {
        site.generator.count_only(&site.meters[0], &site.callers).await?;
    }
    Ok(site)
}

/// Each address is counted by itself.
async fn prove(site: &mut Site<Case>) -> Result<(), String> {
    for (turn, caller) in OTHERS.into_iter().chain(OTHERS).enumerate() {
        let expected = if turn < OTHERS.len() { 200 } else { site.status };
        let status = site.generator.ask(caller).await?;
        site.admitted += u64::from(status == 200);
        if status != expected {
            return Err(format!("request {turn} was answered {status} instead of {expected}"));
        }
    }
    Ok(())
}
