//! The budget loop in a deterministic simulation: the real limiter and the real budget, simulated
//! time, network, clocks and store. One seed reproduces a run to the bit.
//!
//! ```text
//! setup.rs      how large a world is, and which rules it has
//! traffic.rs    when requests arrive, at which POP, from which client
//! network.rs    delay, jitter, loss, duplication, partition
//! clocks.rs     clocks that begin anywhere, drift and jump
//! faults.rs     what goes wrong when: written down, or drawn from a seed
//! pop.rs        a point of presence: the only caller of weir-limiter
//! sync.rs       a weir-sync: the only caller of weir_budget::hub
//! store.rs      the store: the only caller of weir_budget::budget
//! ledger.rs     what sources reported, and how much of it the store charged
//! world.rs      all of them, and what is due next; exchange.rs, trouble.rs: the events
//! reference.rs  what was truly offered and admitted, beside an ideal bucket; account.rs: of one key
//! ideal.rs      what an ideal limiter would have admitted; stretch.rs: while nothing is wrong;
//!               overdrawn.rs: how far a budget is overdrawn then
//! invariants.rs I3, I4, I7 and I8, checked at every admission and every charge
//! checks.rs     what each grant and each report must contain
//! apart.rs      what a POP or a region may admit while it is alone
//! bound.rs      how far a fleet may overshoot
//! scenario.rs   what a scenario is and how it is run; scenarios.rs, more_scenarios.rs,
//!               clock_steps.rs, floors.rs, lumps.rs, mechanisms.rs, operators.rs, penalties.rs, quotas.rs,
//!               settings.rs: the table
//! report.rs     the table as text
//! random.rs     worlds drawn from a seed; shapes.rs: how their clients ask; trials.rs: faults and
//!               which clients ask meanwhile, with drawing.rs; expected.rs: what they must admit; exact.rs:
//!               trials that one figure decides
//! features.rs   what some worlds try beside quotas: bans.rs, calendars.rs (midnights), pushes.rs (rule sets that
//!               operators put; they have rows of the table, too), strict_windows.rs; windows.rs: windows of strict
//!               rules in the table; reserved.rs: what requests reserve; flights.rs:
//!               requests in flight; log.rs: what became of each request; touch.rs:
//!               when news gets through
//! many.rs       a million keys; crowds.rs: more of them above their quotas than can be reported; reaction.rs: how long
//!               until the fleet is back at the rate
//! models.rs     plain local limits and a central limiter, to compare with; plot.rs,
//!               plots.rs: drawn as SVG
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures to look at, far below 2^52"
)]

pub mod account;
pub mod apart;
pub mod bans;
pub mod bound;
pub mod calendars;
mod checks;
pub mod clock_steps;
pub mod clocks;
pub mod crowds;
mod drawing;
pub mod exact;
mod exchange;
pub mod expected;
pub mod faults;
pub mod features;
pub mod flights;
pub mod floors;
pub mod ideal;
pub mod invariants;
pub mod ledger;
pub mod lies;
pub mod log;
pub mod lumps;
pub mod many;
pub mod mechanisms;
pub mod models;
pub mod more_scenarios;
pub mod network;
pub mod operators;
pub mod overdrawn;
pub mod penalties;
pub mod plot;
pub mod plots;
pub mod pop;
pub mod pushes;
pub mod queue;
pub mod quotas;
pub mod random;
pub mod reaction;
pub mod reference;
pub mod report;
pub mod reserved;
pub mod scenario;
pub mod scenarios;
pub mod settings;
pub mod setup;
pub mod shapes;
pub mod store;
pub mod stretch;
pub mod strict_windows;
pub mod sync;
pub mod touch;
pub mod traffic;
pub mod trials;
mod trouble;
pub mod turns;
pub mod windows;
pub mod world;
