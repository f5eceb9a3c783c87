//! End to end: the filter in a real Envoy, weir-sync beside it, Redis behind, each test with its own.
//!
//! X-Forwarded-For names the client (the setup trusts one hop), so one test process is as many
//! clients as it likes. The addresses are those reserved for documentation.

mod addresses;
mod algorithms;
mod audit_log;
mod canary;
mod claims;
mod clock;
mod configuration;
mod console;
mod evasions;
mod failover;
mod fleet;
mod gateway;
mod harness;
mod headers;
mod kubernetes;
mod limiting;
mod live;
mod llm_api;
mod login;
mod native;
mod observing;
mod offline;
mod outage;
mod overrides;
mod pages;
mod panics;
mod penalties;
mod plugin;
mod quotas;
mod ratelimit;
mod retrying;
mod rolling;
mod rules;
mod secured;
mod strict;
mod sync;
mod table;
mod who;
mod workers;
