//! The limiter of one worker: its state, from the rules to the calls under way.
//!
//! Decisions are in [`crate::decide`], reports and grants in [`crate::fleet`].

mod change;
mod identity;
mod inspect;
mod replace;
mod state;
#[cfg(test)]
mod tests;

pub use identity::{Reporter, TableIdentity};
pub use state::Limiter;
pub(crate) use state::{AcquireState, ConnectivityReading};
