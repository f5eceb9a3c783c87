//! What the tests share: real Envoys, weir-syncs and servers on free ports of loopback, clients, load.
//!
//! Each test starts what it needs and ends it by process id when the test ends, however it ends.
//! A harness that cannot go on panics with a sentence that says what is missing: that is how a test fails.
#![allow(clippy::missing_panics_doc, reason = "a helper that panics is a test that fails, see above")]

pub mod artefact;
pub mod bench;
pub mod bench_gateway;
pub mod bench_native;
pub mod bench_sync;
pub mod browser;
pub mod cases;
pub mod client;
pub mod envoy;
pub mod examples;
pub mod fleet;
pub mod instructions;
pub mod kept_budget;
pub mod link;
pub mod load;
pub mod mock_host;
pub mod operator;
pub mod port;
pub mod process;
pub mod redis;
pub mod redis_cluster;
pub mod redis_sentinels;
pub mod server;
pub mod simulation;
pub mod wait;
pub mod weir_sync;
