//! The limiter of one worker: what it knows, from its rules to the calls under way.
//!
//! What it decides is in [`crate::decide`], what it reports and is granted in [`crate::fleet`].

mod change;
mod identity;
mod inspect;
mod replace;
mod state;
#[cfg(test)]
mod tests;

pub use identity::{Reporter, TableIdentity};
pub use state::Limiter;
pub(crate) use state::{Drawn, Touch};
