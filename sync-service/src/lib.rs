//! weir-sync: receives reports from the points of presence, charges the budgets, and replies with grants.
//!
//! The path of a report: [`server`] accepts it, [`routes`] checks its path and its token and decodes it, and
//! `report` passes it to weir-budget's hub. A store ([`weir_store`]) makes the hub's charges, and the reply is
//! encoded. The thin binary only reads the [`config`] and waits for a signal.
//!
//! The path of a rule set: [`weir_cli::document`] parses it, and [`rules`] puts it into the store. POPs get the new
//! revision, which includes the overrides of operators ([`overrides`]), with their next replies. `rules/file.rs`
//! watches a rule file. The commands are in [`weir_cli`].
//!
//! Changes and decisions are written to the audit log ([`audit`]).
//!
//! A gateway ([`weir_gateway`]) is a point of presence in this process: it decides requests for services, and its
//! reports are handled here. Its APIs are in [`routes`] and `grpc`.
//!
//! The arithmetic of budgets is in weir-budget. This crate has the clock and the sockets.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tokio::sync::oneshot;
//! use weir_sync::{config::Config, secrets::Secrets};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Budgets in this process's memory, no tokens, any free port; it stops without a delay.
//! let (listen, drain_delay) = ("127.0.0.1:0".parse()?, Duration::ZERO);
//! let config = Config { listen, drain_delay, ..Config::default() };
//! let secrets = Secrets::read(&config).map_err(|wrong| wrong.join("; "))?;
//! let (ready, listening) = oneshot::channel();
//! let (stop, stopped) = oneshot::channel::<()>();
//! let shutdown = async { drop(stopped.await) };
//! let server = tokio::spawn(weir_sync::run(config, Arc::new(secrets), ready, shutdown));
//!
//! assert!(listening.await?.address.ip().is_loopback());
//! drop(stop);
//! server.await??;
//! # Ok(())
//! # }
//! ```

#![allow(missing_docs, reason = "a name that says all needs no comment")]

pub mod access;
mod anomalies;
pub mod audit;
mod changes;
pub mod config;
mod connections;
mod grpc;
mod keys;
pub mod metrics;
pub mod overrides;
mod problem;
mod refusals;
mod report;
pub mod routes;
pub mod rules;
pub mod secrets;
pub mod server;

pub use server::run;

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use weir_store::lock;

/// Ticks at this interval, the first at once. Missed ticks are not made up.
fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
