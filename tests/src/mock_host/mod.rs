//! A proxy-wasm host that runs the real filter and answers it as a test scripts it.
//!
//! ```text
//! shared.rs    shared data with compare-and-swap, for several workers
//! script.rs    what a host function answers instead of working
//! host.rs      the host as one worker's VM sees it: clocks, request, logs, metrics, calls
//! interpreter.rs   what runs the module
//! guest.rs     a VM and its memory
//! imports.rs   every function that the module imports
//! worker.rs    a VM, driven through its exports in a real host's order
//! waiting.rs   requests that the filter holds until a call of theirs is answered, or that their upstream has
//! message.rs   weir-sync's answers and header maps, as bytes
//! ```
//!
//! Real hosts cannot be made to fail in a chosen way at a chosen call; this one can. The module runs
//! in an interpreter, so the same script gives the same run; tests/conformance runs it on a host that others wrote.

mod guest;
mod host;
mod imports;
mod interpreter;
mod message;
mod script;
mod shared;
mod waiting;
mod worker;

pub use host::{Ask, CallAnswer, Callback, Created, Host, HttpCall, LocalResponse};
pub use interpreter::{exports, imports};
pub use message::{grant, reply};
pub use script::{Answer, Script};
pub use shared::{SharedData, ZeroCas};
pub use waiting::{Begun, Passing, Waiting};
pub use worker::{Decision, Served, Trap, Worker};
