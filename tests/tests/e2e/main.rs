//! End to end: the filter in a real Envoy, weir-sync beside it, Redis behind, each test with its own.
//!
//! Who asks is said by X-Forwarded-For (the setup trusts one hop), so one test process is as many
//! clients as it likes. The addresses are those reserved for documentation.

mod addresses;
mod algorithms;
mod configuration;
mod fleet;
mod harness;
mod limiting;
mod observing;
mod outage;
mod plugin;
mod refill;
mod regions;
mod rules;
mod strict;
mod sync;
mod table;
mod workers;
