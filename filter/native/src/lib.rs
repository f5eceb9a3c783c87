//! The filter as a dynamic module of Envoy: Weir's decision in Envoy's own process, instead of in a sandbox.
//!
//! ```text
//! exports.rs   the module's hooks, by Envoy's names; each contains panics
//! plugin.rs    one configuration: an edge for each worker, one that reports for all, ticks, answers to its calls
//! request.rs   one request: does what the edge says about it
//! worker.rs    one worker of a configuration: its edge, and the requests that it holds
//! process.rs   what configurations of one name share: the secret, the slots, what workers tell each other
//! calls.rs     calls to weir-sync, and their answers
//! http.rs      what Envoy says about a request and its response
//! metrics.rs   counters in Envoy's metrics; counts.rs, what rules decided since the process began
//! timer.rs     ticks: Envoy has no timer for a filter's configuration
//! lock.rs      locks
//! abi.rs       Envoy's calls; the only place with blocks of `unsafe`
//! ```
//!
//! Everything that decides is in `weir-limiter`, as for the wasm module (`weir-filter`): both take the same configuration.
//! Envoy makes a configuration once, on its main thread, and asks for a request's decision on the worker that has the
//! request. There is no callback on a worker without requests. So the main thread ticks the edges of all workers, and
//! each edge is behind a lock that nobody but its worker and that tick takes: workers never wait for one another. The
//! tick has it for a moment only: an edge of its own gathers what the workers have to report, and makes the reports.
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod abi;
mod calls;
mod counts;
mod exports;
mod http;
mod lock;
mod metrics;
mod plugin;
mod process;
mod request;
mod timer;
mod worker;
