//! The budget loop in a deterministic simulation: the real limiter and the real budget, simulated
//! time, network, clocks and store. One seed reproduces a run to the bit.
//!
//! ```text
//! a fleet     setup.rs: its size, rules, links, clocks; traffic.rs: requests; faults.rs: what goes wrong when
//! its parts   pop.rs: the only caller of weir-limiter; sync.rs: of weir_budget::hub; store.rs: of weir_budget::budget,
//!             with ledger.rs: what sources reported, and what was charged
//! a run       world.rs: what is due next; exchange.rs: the events; lies.rs: a POP that lies; log.rs: what became of
//!             each request
//! checks      invariants.rs: at each admission, charge and message; account.rs, reference.rs: what was truly offered
//!             and admitted; ideal.rs, stretch.rs: beside an ideal limiter
//! the table   scenario.rs: a row, its run and its text; scenarios.rs: all rows, with the plans in rows.rs,
//!             fault_rows.rs, flights.rs, operators.rs, pushes.rs, reaction.rs, turns.rs, windows.rs
//! worlds      random.rs: drawn from a seed, with shapes.rs: how clients ask; trials.rs: for which mechanism;
//!             expected.rs: what they must admit; features.rs: what some try beside quotas, with bans.rs
//! plots.rs    the plots of docs/plots
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures to look at, far below 2^52"
)]
#![allow(missing_docs, reason = "a name that says all needs no comment")]
#![allow(clippy::struct_field_names, reason = "a field ends with its unit")]

pub mod account;
mod bans;
mod exchange;
mod expected;
mod fault_rows;
pub mod faults;
mod features;
mod flights;
mod ideal;
mod invariants;
mod ledger;
pub mod lies;
mod log;
pub mod operators;
pub mod plots;
mod pop;
mod pushes;
pub mod random;
pub mod reaction;
pub mod reference;
pub mod rows;
pub mod scenario;
pub mod scenarios;
pub mod setup;
mod shapes;
mod store;
mod stretch;
pub mod sync;
pub mod traffic;
mod trials;
mod turns;
mod windows;
pub mod world;
