//! Shared parts of the tests: real Envoys, weir-syncs and servers on free ports of loopback, clients, load.
//!
//! Each test starts what it needs and ends it by process id when the test ends, however it ends.
//! A harness that cannot go on panics with a sentence about what is missing: that is how a test fails.
#![allow(clippy::missing_panics_doc, reason = "a helper that panics is a test that fails, see above")]

#[cfg(feature = "mock_host")]
pub mod artefact;
#[cfg(feature = "hosts")]
pub mod bench;
#[cfg(feature = "hosts")]
pub mod browser;
pub mod cases;
#[cfg(feature = "hosts")]
pub mod client;
#[cfg(feature = "hosts")]
pub mod envoy;
#[cfg(feature = "hosts")]
pub mod every_metric;
#[cfg(feature = "hosts")]
pub mod examples;
#[cfg(feature = "hosts")]
pub mod fleet;
pub mod instructions;
#[cfg(feature = "hosts")]
pub mod link;
#[cfg(feature = "hosts")]
pub mod load;
#[cfg(feature = "mock_host")]
pub mod mock_host;
#[cfg(feature = "hosts")]
pub mod operator;
#[cfg(feature = "hosts")]
pub mod port;
#[cfg(feature = "hosts")]
pub mod process;
#[cfg(feature = "hosts")]
pub mod redis;
#[cfg(feature = "hosts")]
pub mod redis_cluster;
#[cfg(feature = "hosts")]
pub mod redis_sentinels;
#[cfg(feature = "hosts")]
pub mod region;
#[cfg(feature = "hosts")]
pub mod server;
pub mod simulation;
#[cfg(feature = "hosts")]
pub mod wait;
#[cfg(feature = "hosts")]
pub mod weir_sync;
