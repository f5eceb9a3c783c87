//! weir-sync: takes reports from the points of presence, charges the budgets, answers with grants.
//!
//! A report's way: [`server`] accepts it, [`routes`] checks who sends what, [`report`] reads it, has
//! a [`store`] charge it and weir-budget divide it, and encodes the grants. The thin binary only
//! reads the [`config`] and waits for a signal.
//!
//! The arithmetic of budgets is weir-budget's. This crate knows the clock, the sockets and the stores.

pub mod boxed;
pub mod config;
pub mod figures;
pub mod metrics;
pub mod problem;
pub mod report;
pub mod routes;
pub mod sequences;
pub mod server;
pub mod store;

pub use server::run;
