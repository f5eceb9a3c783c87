//! What the programs of the benchmarks in a real Envoy do with their arguments.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use super::page::{self, Part};
use super::service;
use crate::process::told_to_end;

/// Runs the benchmark `name`, whose part of the page is called so: a quick run that is only printed, or a full one,
/// which may be written into a file. The central service that it starts is the same program with other arguments.
pub async fn run<P>(
    name: &str,
    [full, quick]: [P; 2],
    measure: impl AsyncFnOnce(P) -> Result<Part, String>,
) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [service::WORD, address, redis, limit] => service::serve(address, redis, limit).await,
        [] => print(name, measure(full), None).await,
        ["--quick"] => print(name, measure(quick), None).await,
        ["--write", file] => print(name, measure(full), Some(Path::new(*file))).await,
        _ => Err("expected nothing, --quick, or --write FILE".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{name}: {reason}");
            ExitCode::FAILURE
        }
    }
}

async fn print(
    name: &str,
    measured: impl Future<Output = Result<Part, String>>,
    file: Option<&Path>,
) -> Result<(), String> {
    // Dropping what runs ends the processes that it started.
    let part = tokio::select! {
        part = measured => part?,
        told = told_to_end() => return Err(told),
    };
    println!("{}", part.figures);
    file.map_or(Ok(()), |file| page::rewrite(file, name, &part))
}
