//! Measures what weir-sync costs: `make bench-sync`. Prints what docs/reference/benchmarks.md holds of it.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use weir_tests::bench::page;
use weir_tests::bench_sync::{self, PARTS, Plan};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (plan, words) = match words.as_slice() {
        ["--quick", words @ ..] => (Plan::QUICK, words),
        words => (Plan::FULL, words),
    };
    // The page holds a whole run.
    let (file, parts) = match words {
        ["--write", file] => (Some(Path::new(*file)), vec![]),
        parts => (None, parts.iter().map(ToString::to_string).collect()),
    };
    if !parts.iter().all(|part| PARTS.contains(&part.as_str())) {
        eprintln!("usage: bench_sync [--quick] [--write FILE | {}...]", PARTS.join("|"));
        return ExitCode::from(2);
    }
    let part = bench_sync::run(plan, &parts).await;
    println!("{}", part.figures);
    match file.map_or(Ok(()), |file| page::rewrite(file, page::SYNC, &part)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench-sync: {reason}");
            ExitCode::FAILURE
        }
    }
}
