//! End to end: the filter in a real Envoy, weir-sync beside it, Redis behind, each test with its own.
//!
//! X-Forwarded-For names the client (the setup trusts one hop), so one test process is as many
//! clients as it likes. The addresses are those reserved for documentation.

mod algorithms;
mod audit_log;
mod changes;
mod claims;
mod clock;
mod configuration;
mod console;
mod evasions;
mod failover;
mod fleet;
mod harness;
mod headers;
mod keys;
mod kubernetes;
mod limiting;
mod llm_api;
mod login;
mod native;
mod observing;
mod offline;
mod pages;
mod panics;
mod plugin;
mod ratelimit;
mod retrying;
mod rolling;
mod secured;
mod strict;
mod sync;
mod table;
mod workers;
