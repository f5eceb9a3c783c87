//! The module's side of proxy-wasm's ABI 0.2.1, on any host and in any runtime of WebAssembly.
//!
//! ```text
//! calls.rs    every function that a module imports, every status that it may return, and what is decided then
//! story.rs    a run through every function that a module exports
//! ```
//!
//! `make native` runs every function with every status in an interpreter, `make conformance` the same in wasmtime,
//! where each run is the same to the byte. A function that is not in the table is an error, and so is one that the
//! run does not reach.

mod calls;
mod story;

use crate::mock_host::{Answer, Host, Runtime, Script, SharedData, Trap, ZeroCas};

pub use calls::{CALLS, Call, OK, STATUSES, Without, decided};
pub use story::{Outcome, Run};

/// A run of the module on a host that follows `script`.
pub fn run(runtime: &'static dyn Runtime, script: Script) -> Result<Run, Trap> {
    story::run(runtime, Host::new(&SharedData::new(ZeroCas::Overwrites)).with(script))
}

/// The transcript of a run in which every call of `function` returns `status` and does nothing; or what does not
/// hold in it.
pub fn sweep(runtime: &'static dyn Runtime, function: &str, status: u32) -> Result<Vec<String>, String> {
    let place = format!("{function} returns {status}");
    let script = Script::always(function, Answer::Status(status));
    let run = run(runtime, script).map_err(|trap| format!("{place}: {trap:?}"))?;
    let row = calls::row(function).ok_or_else(|| format!("{place}: it is not in the table"))?;
    let (without, why) = row.without(status);
    let expected = decided(without);
    if run.outcomes == expected {
        Ok(run.transcript)
    } else {
        Err(format!("{place}: decided {:?}, expected {expected:?}: {why}", run.outcomes))
    }
}

/// Which of the module's functions the table or the run leaves out; the run is one on a host that works.
pub fn left_out(runtime: &'static dyn Runtime, run: &Run) -> Vec<String> {
    let is_covered = |name: &str| {
        let is_reached = run.calls_of(name) > 0;
        calls::row(name).is_some_and(|row| row.is_reached() == is_reached)
    };
    let imports = runtime.imports().iter().filter(|name| !is_covered(name));
    imports.chain(runtime.exports().iter().filter(|name| run.calls_of(name) == 0)).cloned().collect()
}

/// Where two transcripts part: the lines before, and what each says then.
pub fn difference(one: &[String], other: &[String]) -> Option<String> {
    const LINES_BEFORE: usize = 6;
    let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at))?;
    let line = |of: &[String]| of.get(at).map_or("(the end)", String::as_str).to_owned();
    let before = one[at.saturating_sub(LINES_BEFORE)..at].join("\n");
    Some(format!("{before}\n< {}\n> {}", line(one), line(other)))
}
