//! Measures Weir in a real Envoy beside what people would pick instead: `make bench-envoy` and
//! `make bench-quick`. Prints what docs/benchmarks.md holds.

use std::path::PathBuf;
use std::process::ExitCode;

use weir_tests::bench::plan::Plan;
use weir_tests::bench::{page, run, service};
use weir_tests::process::told_to_end;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [service::WORD, address, redis, limit] => service::serve(address, redis, limit).await,
        [] => measure(Plan::FULL, None).await,
        ["--quick"] => measure(Plan::QUICK, None).await,
        ["--write", file] => measure(Plan::FULL, Some(file.into())).await,
        _ => Err("expected nothing, --quick, or --write FILE".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench: {reason}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(plan: Plan, file: Option<PathBuf>) -> Result<(), String> {
    // Dropping what runs ends the processes that it started.
    let part = tokio::select! {
        part = run(plan) => part?,
        told = told_to_end() => return Err(told),
    };
    println!("{}", part.figures);
    file.map_or(Ok(()), |file| page::rewrite(&file, page::ENVOY, &part))
}
