//! The benchmark in a real Envoy, beside what people would pick instead: `make bench-envoy`, `make bench-quick`.
//!
//! ```text
//! plan.rs        how long it measures
//! case.rs        the cases: one listener each
//! filters.rs     what stands in front of a listener's upstream, as Envoy's configuration
//! proxy.rs       an Envoy that has some of them
//! upstream.rs    what is behind them
//! service/       a central service on Redis, a process of its own
//! generator.rs   the load
//! cpu.rs         CPU time from the kernel; who runs on which CPU
//! site.rs        a listener that is visited
//! pair.rs        a listener beside one without a filter, in an Envoy of their own
//! rounds.rs      pairs: every case, round after round
//! memory.rs      Envoy's memory under ever new addresses
//! stats.rs       quartiles, and how sure figures are
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
pub mod pair;
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

use cpu::Cpus;
use figures::Figures;
use page::Part;
use plan::Plan;
use site::CONNECTIONS;

/// Measures everything; gives what docs/benchmarks.md is to hold. Progress goes to standard error.
pub async fn run(plan: Plan) -> Result<Part, String> {
    let cpus = Cpus::choose()?;
    let machine = machine::with_envoy();
    cpus.settle()?;
    eprintln!("bench: {machine}");
    let rounds = rounds::all(plan, cpus).await?;
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
        "{machine} {} rounds; in each, {} visits to a listener, of {} requests over {CONNECTIONS} connections and {} one \
         after the other.\n\n{}\n{}",
        rounds.len(),
        plan.visits,
        figures::grouped(u32::try_from(plan.requests).unwrap_or(0)),
        plan.alone,
        figures.targets(),
        figures.listeners(),
    );
    Ok(Part { reached: figures.reached(), figures: page })
}
