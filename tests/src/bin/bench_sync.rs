//! Measures what weir-sync costs and prints it as rows of a table: `make bench-sync`.

use std::process::ExitCode;

use weir_tests::bench_sync::{self, PARTS, Plan};

#[tokio::main]
async fn main() -> ExitCode {
    let (options, parts): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let plan = match options.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Some(Plan::FULL),
        ["--quick"] => Some(Plan::QUICK),
        _ => None,
    };
    let Some(plan) = plan.filter(|_| parts.iter().all(|part| PARTS.contains(&part.as_str()))) else {
        eprintln!("usage: bench_sync [--quick] [{}]...", PARTS.join("|"));
        return ExitCode::from(2);
    };
    bench_sync::run(plan, &parts).await;
    ExitCode::SUCCESS
}
