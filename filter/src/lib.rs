//! The proxy-wasm filter: Weir's decision inside Envoy or another proxy-wasm host.
//!
//! ```text
//! exports.rs   what the host calls
//!   unused.rs  the callbacks that nothing here acts on, for a host that wants them all
//! dispatch.rs  the contexts, by the host's numbers for them
//! host.rs      the host's calls; the only place with blocks of `unsafe`, a clock, or randomness
//! nginx.rs     where nginx is another host than Envoy
//! memory.rs    what the host writes its answers to
//! shared.rs    what workers agree on through shared data: the secret, the slots
//! metrics.rs   counters in the host's metrics
//! worker.rs    one configuration in one worker: limiter, slots, answers, metrics
//!   live.rs    the rule set that the fleet is to run: fetched, shared, put in force
//! answers.rs   what refused clients are told, ready for the host
//! holding.rs   requests that wait for their turn
//! sync.rs      calls to weir-sync, and their answers
//! plugin.rs    root context: configure, tick, the exchange with weir-sync
//! request.rs   HTTP context: request in, decision out; a strict rule's request may wait
//! ```
//!
//! Everything that decides is in `weir-limiter`. Nothing here may trap: a panic costs the worker its
//! VM and the request in flight (invariant I1).
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod answers;
mod dispatch;
mod exports;
mod holding;
mod host;
mod memory;
mod metrics;
mod nginx;
mod plugin;
mod request;
mod sample;
mod shared;
mod sync;
mod worker;
