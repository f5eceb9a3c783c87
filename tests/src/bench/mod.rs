//! The benchmarks: what Weir costs beside what people would pick instead.
//!
//! All measure candidates in turn, round after round, so that what disturbs the machine for a while meets all of
//! them; take CPU time from the kernel; and print tables of medians and quartiles.
//!
//! ```text
//! visits.rs      a listener that is visited; all of them, round after round
//! generator.rs   the load (wrk and h2load know neither which worker a connection belongs to, nor callers in turn)
//! cpu.rs         CPU time; who runs on which CPU
//! proxy.rs       an Envoy with a listener for each candidate
//! filters.rs     what stands in front of a listener's upstream, as Envoy's configuration
//! upstream.rs    what is behind them
//! service.rs     a central service on Redis, a process of its own
//! stats.rs       quartiles, and how sure they are
//! summary.rs     what must be reached
//! page.rs        the tables, put into docs/reference/benchmarks.md
//!
//! envoy/         filters in a real Envoy: `make bench-envoy`, `make bench-quick`
//! native.rs      what criterion measured of the core: `make bench-native`
//! sync/          weir-sync: `make bench-sync`
//! gateway/       checks at the gateway: `make bench-gateway`
//! ```

pub mod cpu;
pub mod envoy;
pub mod filters;
pub mod gateway;
pub mod generator;
pub mod machine;
pub mod native;
pub mod page;
pub mod proxy;
pub mod service;
pub mod stats;
pub mod summary;
pub mod sync;
pub mod upstream;
pub mod visits;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use tokio::runtime::Builder;

use crate::process::ended_by_signal;
use page::Part;

const USAGE: &str = "expected envoy, gateway, sync or native, then maybe --quick, then maybe --write FILE, \
    then criterion's folder for native";

/// The program: measures the benchmark that its first argument names.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        // The central service of a benchmark is the same program.
        [service::WORD, address, redis, limit] => {
            on(Builder::new_current_thread(), service::serve(address, redis, limit))
        }
        [name, words @ ..] => measured(name, words),
        [] => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measured(name: &str, words: &[&str]) -> Result<(), String> {
    let (is_quick, words) = match words {
        ["--quick", words @ ..] => (true, words),
        words => (false, words),
    };
    let (file, parts) = match words {
        ["--write", file, parts @ ..] => (Some(Path::new(*file)), parts),
        parts => (None, parts),
    };
    let one = Builder::new_current_thread;
    let (marker, part) = match (name, parts) {
        ("envoy", []) => (page::ENVOY, on(one(), envoy::run(envoy::Plan::of(is_quick)))?),
        ("gateway", []) => (page::GATEWAY, on(one(), gateway::run(gateway::length(is_quick)))?),
        ("sync", []) => {
            let measured = async { Ok(sync::run(sync::Plan::of(is_quick)).await) };
            (page::SYNC, on(Builder::new_multi_thread(), measured)?)
        }
        ("native", [criterion]) => (page::NATIVE, native::read(Path::new(criterion))?),
        _ => return Err(USAGE.into()),
    };
    let Part { figures, .. } = &part;
    println!("{figures}");
    file.map_or(Ok(()), |file| page::rewrite(file, marker, &part))
}

/// Runs `measure`; at a signal it is dropped, which ends the processes that it started.
fn on<T>(mut builder: Builder, measure: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = builder.enable_all().build().map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(async {
        tokio::select! {
            done = measure => done,
            reason = ended_by_signal() => Err(reason),
        }
    })
}
