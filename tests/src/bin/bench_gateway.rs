//! Measures what a check at the gateway costs, beside what people would pick instead: `make bench-gateway`. Prints what
//! docs/reference/benchmarks.md holds of it.

use std::process::ExitCode;

use weir_tests::bench::{command, page};
use weir_tests::bench_gateway::{Plan, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    command::run(page::GATEWAY, [Plan::FULL, Plan::QUICK], run).await
}
