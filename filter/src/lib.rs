//! The proxy-wasm filter: Weir's decisions inside Envoy or another proxy-wasm host.
//!
//! ```text
//! exports.rs   the callbacks of the host, and the contexts that they are for
//! worker.rs    one configuration in one worker (root context): the engine, its effects, its requests (HTTP contexts)
//! http.rs      the host's attributes of a request and its response, with all lines of its headers; calls to weir-sync
//! shared.rs    state that workers share in the host's shared data: the secret, the slots
//! metrics.rs   counters in the host's metrics
//! host.rs      calls into the host; the only file with `unsafe` blocks, a clock, or randomness
//! memory.rs    buffers for the host's results
//! ```
//!
//! The decision logic is in `weir-limiter`, as is the state machine of a worker (`weir_limiter::engine`). Files here
//! do not import each other in circles. Nothing here may trap: a panic costs a worker its VM and its request (I1).
#![cfg_attr(not(test), deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod exports;
mod host;
mod http;
mod memory;
mod metrics;
mod shared;
mod worker;

/// Takes constant time, and an eighth of the code that libc's allocator takes.
#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();
