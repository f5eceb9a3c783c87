//! A proxy-wasm host that runs the real filter and answers it as a test says.
//!
//! ```text
//! shared.rs    shared data with compare-and-swap, for several workers
//! script.rs    what a host function answers instead of working
//! host.rs      the host as one worker's VM sees it: clocks, request, logs, metrics, calls
//! runtime.rs   what runs the module
//! interpreter.rs   the runtime of most tests
//! guest.rs     the VM's memory, in any runtime
//! imports.rs   every function that the module imports
//! transcript.rs   what the module and its host say to each other, as text
//! worker.rs    a VM, driven through its exports in a real host's order
//! waiting.rs   requests that the filter holds until a call of theirs is answered, or that their upstream has
//! message.rs   configurations and weir-sync's answers, as bytes
//! ```
//!
//! Real hosts cannot be made to fail in a chosen way at a chosen call; this one can. The module runs
//! in an interpreter, so the same script gives the same run; tests/conformance runs it in wasmtime.

mod guest;
mod host;
mod imports;
mod interpreter;
mod message;
mod runtime;
mod script;
mod shared;
mod transcript;
mod waiting;
mod worker;

pub use host::{Ask, CallAnswer, Callback, Created, Host, HttpCall, LocalResponse};
pub use imports::answer;
pub use interpreter::interpreter;
pub use message::{grant, protobuf_struct, reply};
pub use runtime::{Runtime, Vm};
pub use script::{Answer, Script};
pub use shared::{SharedData, ZeroCas};
pub use waiting::{Begun, Passing, Waiting};
pub use worker::{Decision, Served, Trap, Worker};
