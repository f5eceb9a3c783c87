//! Measures Weir in a real Envoy beside what people would pick instead: `make bench-envoy` and
//! `make bench-quick`. Prints what docs/reference/benchmarks.md holds.

use std::process::ExitCode;

use weir_tests::bench::plan::Plan;
use weir_tests::bench::{command, page, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    command::run(page::ENVOY, [Plan::FULL, Plan::QUICK], run).await
}
