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
//! sweeps.rs      visits: every listener, sweep after sweep
//! memory.rs      Envoy's memory under ever new addresses
//! stats.rs       quartiles, and how sure they are
//! figures.rs     the tables
//! machine.rs     whose figures they are
//! summary.rs     what must be reached, of all benchmarks
//! page.rs        puts them into docs/reference/benchmarks.md
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
pub mod service;
pub mod site;
pub mod stats;
pub mod summary;
pub mod sweeps;
pub mod upstream;

use std::fs;

use crate::artefact;
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

use case::{By, Case, Under};
use cpu::Cpus;
use figures::Figures;
use filters::PLENTY;
use page::Part;
use plan::Plan;
use proxy::{Behind, Proxy};
use service::Service;
use site::{CONNECTIONS, Site};
use sweeps::Sweep;

/// Measures everything; gives what docs/reference/benchmarks.md is to hold. Progress goes to standard error.
pub async fn run(plan: Plan) -> Result<Part, String> {
    let cpus = Cpus::choose()?;
    let machine = machine::with_envoy();
    cpus.settle()?;
    eprintln!("bench: {machine}");
    let sweeps = sweeps(plan, cpus).await?;
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
    let figures = Figures::of(&sweeps, memory, module_bytes);
    let page = format!(
        "{machine} {} sweeps; per listener and sweep {} requests over {CONNECTIONS} connections and {} one after the \
         other.\n\n{}\n{}",
        sweeps.len(),
        figures::grouped(u32::try_from(plan.requests).unwrap_or(0)),
        plan.alone,
        figures.targets(),
        figures.listeners(),
    );
    Ok(Part { reached: figures.reached(), figures: page })
}

async fn sweeps(plan: Plan, cpus: Cpus) -> Result<Vec<Sweep>, String> {
    let upstream = upstream::start()?;
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), PLENTY.tokens()).await?;
    let weir_sync = WeirSync::start("bench", "memory").await;
    let behind = Behind {
        upstream: Some(upstream),
        service: Some(service.address()),
        weir_sync: Some(weir_sync.address()),
    };
    let (of_one, of_two) = (Case::of_one_worker(plan.all), Case::of_two_workers());
    let mut one = Proxy::start(&of_one, 1, behind, cpus).await?;
    let mut two = Proxy::start(&of_two, 2, behind, cpus).await?;
    let mut sites = vec![];
    for case in of_one {
        let also = if case.by == By::Central { vec![service.id(), redis.id()] } else { vec![] };
        sites.push(Site::open(case, &one, &also).await?);
    }
    for case in of_two {
        sites.push(Site::open(case, &two, &[]).await?);
    }
    let done = sweeps::all(&mut sites, plan, |sweeps| {
        let figure = |by| format!("{:.2}", figures::added(sweeps, Case::new(by, Under::Many)));
        eprintln!(
            "bench: sweep {} of {}: added µs: nothing {}, empty {}, local_ratelimit {}, wasm {}, module {}, central {}",
            sweeps.len(),
            plan.sweeps,
            figure(By::NothingAgain),
            figure(By::Empty),
            figure(By::Native),
            figure(By::Wasm),
            figure(By::Module),
            figure(By::Central),
        );
    })
    .await?;
    one.check()?;
    two.check()?;
    let through: u64 = sites.iter().filter(|site| site.case().by == By::Central).map(Site::admitted).sum();
    let asked: u64 = redis.info("commandstats", "cmdstat_incrby:calls=").await;
    if asked != through {
        return Err(format!("the central service was asked {asked} times for {through} requests"));
    }
    Ok(done)
}
