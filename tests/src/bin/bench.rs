//! Measures Weir beside what people would pick instead: `make bench` and the targets beside it. Prints what
//! docs/reference/benchmarks.md holds, and writes it there on request.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_tests::bench::main()
}
