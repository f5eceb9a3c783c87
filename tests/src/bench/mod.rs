//! The benchmark in a real Envoy, beside what people would pick instead: `make bench-envoy`, `make bench-quick`.
//!
//! ```text
//! plan.rs        how long it measures
//! case.rs        the cases: one listener each
//! filters.rs     what stands in front of a listener's upstream, as Envoy's configuration
//! proxy.rs       the Envoy that has them all
//! upstream.rs    what is behind them
//! service/       a central service on Redis, a process of its own
//! generator.rs   the load
//! cpu.rs         CPU time from the kernel; who runs on which CPU
//! site.rs        a listener that is visited
//! rounds.rs      visits: every listener, round after round
//! memory.rs      Envoy's memory under ever new addresses
//! stats.rs       median and quartiles
//! figures.rs     the tables
//! machine.rs     whose figures they are
//! summary.rs     what must be reached, of all benchmarks
//! page.rs        puts them into docs/benchmarks.md
//! ```

pub mod case;
pub mod command;
pub mod cpu;
pub mod figures;
pub mod filters;
pub mod generator;
pub mod machine;
pub mod memory;
pub mod page;
pub mod plan;
pub mod proxy;
pub mod rounds;
pub mod service;
pub mod site;
pub mod stats;
pub mod summary;
pub mod upstream;

use std::fs;

use crate::artefact;
use crate::redis::Redis;

use case::Case;
use cpu::Cpus;
use figures::{Figures, added};
use filters::PLENTY;
use page::Part;
use plan::Plan;
use proxy::{Behind, Proxy};
use rounds::Round;
use service::Service;
use site::{CONNECTIONS, Site};

/// Measures everything; gives what docs/benchmarks.md is to hold. Progress goes to standard error.
pub async fn run(plan: Plan) -> Result<Part, String> {
    let cpus = Cpus::choose()?;
    let machine = machine::with_envoy();
    cpus.settle()?;
    eprintln!("bench: {machine}");
    let rounds = rounds(plan, cpus).await?;
    eprintln!("bench: memory, {} addresses", figures::grouped(plan.many_addresses));
    let memory = memory::measure(plan, cpus, |sent| {
        if sent.is_multiple_of(500_000) {
            eprintln!("bench: memory, {} addresses so far", figures::grouped(sent));
        }
    })
    .await?;
    let module = artefact::filter_wasm();
    let module_bytes = fs::metadata(&module).map_err(|e| format!("{}: {e}", module.display()))?.len();
    let module_bytes = u32::try_from(module_bytes).unwrap_or(u32::MAX);
    let figures = Figures::of(&rounds, memory, module_bytes);
    let page = format!(
        "{machine} {} rounds; per listener and round {} requests over {CONNECTIONS} connections and {} one after \
         the other.\n\n{}\n{}",
        rounds.len(),
        figures::grouped(u32::try_from(plan.requests * plan.passes).unwrap_or(0)),
        figures::grouped(u32::try_from(plan.alone * plan.passes).unwrap_or(0)),
        figures.targets(),
        figures.listeners(),
    );
    Ok(Part { reached: figures.reached(), figures: page })
}

async fn rounds(plan: Plan, cpus: Cpus) -> Result<Vec<Round>, String> {
    let upstream = upstream::start()?;
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), PLENTY.tokens()).await?;
    let behind = Behind { upstream: Some(upstream), service: Some(service.address()) };
    let mut one = Proxy::start(&Case::ONE_WORKER, 1, behind, cpus).await?;
    let mut two = Proxy::start(&Case::TWO_WORKERS, 2, behind, cpus).await?;
    let mut sites = vec![];
    for case in Case::ONE_WORKER {
        let also = if case == Case::Central { vec![service.id(), redis.id()] } else { vec![] };
        sites.push(Site::open(case, &one, &also).await?);
    }
    for case in Case::TWO_WORKERS {
        sites.push(Site::open(case, &two, &[]).await?);
    }
    let done = rounds::all(&mut sites, plan, |number, round| {
        let figure = |case| format!("{:.1}", added(round, case));
        eprintln!(
            "bench: round {number} of {}: added µs: empty {}, native {}, Weir {}, four rules {}, central {}",
            plan.rounds,
            figure(Case::Empty),
            figure(Case::Native),
            figure(Case::Weir),
            figure(Case::WeirFour),
            figure(Case::Central),
        );
    })
    .await?;
    one.check()?;
    two.check()?;
    let through: u64 = sites.iter().filter(|site| site.case() == Case::Central).map(Site::admitted).sum();
    let asked: u64 = redis.info("commandstats", "cmdstat_incrby:calls=").await;
    if asked != through {
        return Err(format!("the central service was asked {asked} times for {through} requests"));
    }
    Ok(done)
}
