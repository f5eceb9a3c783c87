//! The filter as a dynamic module of Envoy: decisions in Envoy's own process instead of a sandbox.
//!
//! ```text
//! exports.rs   the module's hooks, by Envoy's names; each catches panics
//! plugin.rs    one configuration: an engine for each worker, one that reports for all, ticks, responses to its calls
//! request.rs   one request: carries out the decisions of its worker's engine
//! process.rs   state that configurations of one name share: the secret, the slots, values shared by workers; the clock
//!              and ticks: Envoy has no timer for a filter's configuration
//! http.rs      Envoy's attributes of a request and its response; calls to weir-sync
//! metrics.rs   counters in Envoy's metrics, and decisions of each rule since the process began
//! abi.rs       bindings to Envoy; the only file with `unsafe` blocks
//! ```
//!
//! The decision logic is in `weir-limiter`, as for the wasm module (`weir-filter`), and both modules take the same
//! configuration. Envoy creates a configuration once, on its main thread, and asks for a decision on the request's
//! worker. A worker without requests gets no callback, so the main thread ticks the engines of all workers. Each engine
//! is behind a lock that only its worker and that tick take, so workers never wait for one another. The tick holds the
//! lock only briefly: an engine of its own gathers the workers' counts and makes the reports.
#![cfg_attr(not(test), deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod abi;
mod exports;
mod http;
mod metrics;
mod plugin;
mod process;
mod request;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning: the data is valid even if a holder panicked.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
