//! weir-sync: takes reports from the points of presence, charges the budgets, answers with grants.
//!
//! A report's way: [`server`] accepts it, [`routes`] checks its path and its token, [`report`] reads it, gives it to
//! weir-budget's hub, has a [`store`] charge what the hub says, and encodes the reply. The thin binary only reads the
//! [`config`] and waits for a signal.
//!
//! A rule set's way: [`document`] reads it, [`rules`] puts it into the store and tells the POPs of it with their next
//! replies, together with the [`orders`] of operators, [`fleet`] knows which ones they run. [`rules_file`] watches a file of
//! rules, [`check`] judges one, [`explain`] says what it does with a request, [`import`] writes one from another rate limiter's
//! configuration. [`cli`] has the commands that ask a weir-sync that runs.
//!
//! What changes, and what is decided, is written to the [`trail`].
//!
//! A [`gateway`] is a point of presence in this process: it decides requests for services that ask, and its reports are
//! answered here.
//!
//! The arithmetic of budgets is weir-budget's. This crate knows the clock, the sockets and the stores.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::{net::TcpStream, sync::oneshot};
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
//! let mut connection = TcpStream::connect(listening.await?.address).await?;
//! connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: weir-sync\r\nconnection: close\r\n\r\n").await?;
//! let mut answer = String::new();
//! connection.read_to_string(&mut answer).await?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
//!
//! drop(stop);
//! server.await??;
//! # Ok(())
//! # }
//! ```

pub mod access;
pub mod anomalies;
pub mod changes;
pub mod check;
pub mod claims;
pub mod cli;
pub mod config;
pub mod connections;
pub mod descriptors;
pub mod document;
pub mod explain;
pub mod figures;
pub mod fleet;
pub mod gateway;
mod hosts;
mod http_client;
pub mod import;
mod input;
pub mod keys;
pub mod live;
pub mod metrics;
mod misread;
pub mod moment;
pub mod orders;
pub mod problem;
mod random;
pub mod rates;
pub mod refusals;
pub mod report;
pub mod routes;
pub mod rules;
pub mod rules_file;
pub mod secrets;
pub mod server;
pub mod settling;
pub mod statuses;
pub mod store;
pub mod strict_json;
pub mod tls;
pub mod trail;
mod turns;
mod yaml;

pub use server::run;
