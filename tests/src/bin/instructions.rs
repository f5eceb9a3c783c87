//! Counts the instructions of each case and compares them with the baseline: `make instructions`.
//!
//! ```text
//! make instructions            fails where a case takes more than 5 % more than the baseline
//! make instructions-baseline   writes the counts of now as the baseline
//! ```

use std::env;
use std::fs;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_tests::cases::{self, Case};
use weir_tests::instructions::baseline::{
    CHANGE_PERCENT_MAX, Change, Compared, Counts, compare, name, parse, path, render,
};
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
    let path = path();
    let old = fs::read_to_string(&path).ok().and_then(|text| parse(&text).ok()).unwrap_or_default();
    print(&compare(&old, counts));
    fs::write(&path, render(counts)).map_err(|error| format!("{}: {error}", name()))?;
    println!("\nWritten to {}: commit it with the change, and give the reason of the cost there.", name());
    Ok(())
}

fn check(counts: &Counts) -> Result<(), String> {
    let path = path();
    if !path.exists() {
        print(&compare(&Counts::new(), counts));
        println!("\nThere is no {}: nothing to compare with on this architecture.", name());
        return Ok(());
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", name()))?;
    let old = parse(&text).map_err(|error| format!("{}: {error}", name()))?;
    let compared = compare(&old, counts);
    print(&compared);
    let of = |change| compared.iter().filter(|case| case.change() == change).map(Compared::line).collect::<Vec<_>>();
    let fell = of(Change::Fell);
    if !fell.is_empty() {
        println!(
            "\nCheaper by more than {CHANGE_PERCENT_MAX} %:\n{}\n`make instructions-baseline` holds it there.",
            fell.join("\n")
        );
    }
    let wrong = [
        (Change::Rose, format!("dearer by more than {CHANGE_PERCENT_MAX} %")),
        (Change::New, "not in the baseline".into()),
        (Change::Gone, "in the baseline, and no case any more".into()),
    ];
    let problems = wrong.into_iter().map(|(change, about)| (about, of(change))).filter(|(_, cases)| !cases.is_empty());
    let problems: Vec<_> = problems.map(|(about, cases)| format!("{about}:\n{}", cases.join("\n"))).collect();
    if problems.is_empty() {
        println!("\nNo case is dearer by more than {CHANGE_PERCENT_MAX} % than in {}.", name());
        return Ok(());
    }
    Err(format!(
        "{}\nWhere that is meant: `make instructions-baseline`, and commit {} with the reason.",
        problems.join("\n"),
        name()
    ))
}

fn print(compared: &[Compared]) {
    println!("{:<44} {:>9} -> {:>9}", "instructions of one operation", "baseline", "now");
    for case in compared {
        println!("{}", case.line());
    }
}
