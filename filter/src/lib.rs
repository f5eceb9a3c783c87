//! The proxy-wasm filter: Weir's decision inside Envoy or another proxy-wasm host.
//!
//! ```text
//! exports.rs   what the host calls
//! dispatch.rs  finds a context by the host's number for it
//! plugin.rs    root context: does what the edge says after a configuration, a tick or an answer
//! request.rs   HTTP context: does what the edge says about a request
//! worker.rs    one configuration in one worker: the edge, and what it needs of the host
//! calls.rs     calls to weir-sync, and their answers
//! http.rs      what the host says about a request and its response
//! header_lines.rs  all lines of its headers
//! shared.rs    what workers share, in the host's shared data: the secret, the slots
//! metrics.rs   counters in the host's metrics
//! host.rs      the host's calls; the only place with blocks of `unsafe`, a clock, or randomness
//! memory.rs    memory that the host writes its answers to
//! ```
//!
//! Everything that decides is in `weir-limiter`, and so is the state machine of a worker (`weir_limiter::edge`).
//! Files here do not import each other in circles. Nothing here may trap: a panic costs the worker its VM and the
//! request in flight (invariant I1).
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod calls;
mod dispatch;
mod exports;
mod header_lines;
mod host;
mod http;
mod memory;
mod metrics;
mod plugin;
mod request;
mod shared;
mod worker;
