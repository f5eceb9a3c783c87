//! The module's side of proxy-wasm's ABI 0.2.1, on any host.
//!
//! ```text
//! calls.rs    every function that a module imports, every status that it may return, and what is decided then
//! story.rs    a run through every function that a module exports
//! ```
//!
//! A function that is not in the table is an error, and so is one that the run does not reach.

mod calls;
mod story;

use crate::mock_host::{Answer, Host, Script, SharedData, Trap, ZeroCas, exports, imports};

pub use calls::{CALLS, Call, OK, STATUSES, Without, decided};
pub use story::{Outcome, Run};

/// A run of the module on a host that follows `script`.
pub fn run(script: Script) -> Result<Run, Trap> {
    story::run(Host::new(&SharedData::new(ZeroCas::Overwrites)).with(script))
}

/// The error describes what fails in a run in which every call of `function` returns `status` and does nothing.
pub fn sweep(function: &str, status: u32) -> Result<(), String> {
    let place = format!("{function} returns {status}");
    let script = Script::always(function, Answer::Status(status));
    let run = run(script).map_err(|trap| format!("{place}: {trap:?}"))?;
    let row = calls::row(function).ok_or_else(|| format!("{place}: it is not in the table"))?;
    let (without, why) = row.without(status);
    let expected = decided(without);
    if run.outcomes == expected {
        Ok(())
    } else {
        Err(format!("{place}: decided {:?}, expected {expected:?}: {why}", run.outcomes))
    }
}

/// The module's functions that the table or the run leaves out; the run is one on a host that works.
pub fn left_out(run: &Run) -> Vec<String> {
    let is_covered = |name: &str| {
        let is_reached = run.calls_of(name) > 0;
        calls::row(name).is_some_and(|row| row.is_reached() == is_reached)
    };
    let imports = imports().iter().filter(|name| !is_covered(name));
    imports.chain(exports().iter().filter(|name| run.calls_of(name) == 0)).cloned().collect()
}
