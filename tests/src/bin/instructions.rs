//! Counts the instructions of each case and compares them with the baseline: `make instructions`.
//!
//! ```text
//! make instructions            fails where a case takes more than 5 % more than the baseline
//! make instructions-baseline   writes the counts of now as the baseline
//! ```

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_tests::cases::{self, Case};
use weir_tests::instructions::baseline::{CHANGE_PERCENT_MAX, Counts, change, name, parse, path, render};
use weir_tests::instructions::callgrind;

/// Writes the baseline instead of comparing with it.
const WRITE: &str = "--write";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => count_all().and_then(|counts| check(&counts)),
        [WRITE] => count_all().and_then(|counts| write(&counts)),
        [callgrind::RUN, title, operations] => run(title, operations),
        _ => Err(format!("expected nothing or {WRITE}, found {arguments:?}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(title: &str, operations: &str) -> Result<(), String> {
    let case = cases::all(None).into_iter().find(|case| case.title() == title);
    let case = case.ok_or_else(|| format!("no case is called {title:?}"))?;
    let operations = operations.parse().map_err(|_| format!("{operations:?} is no number of operations"))?;
    callgrind::run(case, operations);
    Ok(())
}

/// Counts every case, as many at a time as there are processors.
fn count_all() -> Result<Counts, String> {
    let valgrind = callgrind::find()?;
    let cases = cases::all(None);
    let (next, counted) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let count = callgrind::count(&valgrind, case).map_err(|error| format!("{}: {error}", case.title()));
            counted.lock().expect("nobody panics").push((Case::title(case), count));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let counted = counted.into_inner().expect("nobody panics");
    counted.into_iter().map(|(title, count)| Ok((title, count?))).collect()
}

fn write(counts: &Counts) -> Result<(), String> {
    let old = fs::read_to_string(path()).ok().and_then(|text| parse(&text).ok()).unwrap_or_default();
    print(&old, counts);
    fs::write(path(), render(counts)).map_err(|error| format!("{}: {error}", name()))?;
    println!("\nWritten to {}: commit it with the change, and give the reason of the cost there.", name());
    Ok(())
}

fn check(counts: &Counts) -> Result<(), String> {
    if !path().exists() {
        print(&Counts::new(), counts);
        println!("\nThere is no {}: nothing to compare with on this architecture.", name());
        return Ok(());
    }
    let text = fs::read_to_string(path()).map_err(|error| format!("{}: {error}", name()))?;
    let old = parse(&text).map_err(|error| format!("{}: {error}", name()))?;
    match print(&old, counts) {
        0 => Ok(()),
        failing => Err(format!(
            "{failing} cases differ from {}, where one may be dearer by {CHANGE_PERCENT_MAX} %. Where that is meant: `make \
             instructions-baseline`, and commit that file with the reason.",
            name()
        )),
    }
}

/// Prints every case of either, and how it changed; returns how many fail.
fn print(old: &Counts, new: &Counts) -> usize {
    println!("{:<44} {:>9} -> {:>9}", "instructions of one operation", "baseline", "now");
    let titles: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut failing = 0;
    for title in titles {
        let (old, new) = (old.get(title).copied(), new.get(title).copied());
        let text = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
        let (word, fails) = change(old, new).unwrap_or_default();
        failing += usize::from(fails);
        println!("{title:<44} {:>9} -> {:>9} {word}", text(old), text(new));
    }
    failing
}
