//! Prints what criterion measured of the core, and writes it into docs/reference/benchmarks.md: `make bench-native`.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use weir_tests::bench::page;
use weir_tests::bench_native;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [criterion] => told(criterion, None),
        [criterion, "--write", file] => told(criterion, Some(Path::new(file))),
        _ => Err("expected criterion's folder, and maybe --write FILE".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench-native: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn told(criterion: &str, file: Option<&Path>) -> Result<(), String> {
    let part = bench_native::read(Path::new(criterion))?;
    println!("{}", part.figures);
    file.map_or(Ok(()), |file| page::rewrite(file, page::NATIVE, &part))
}
