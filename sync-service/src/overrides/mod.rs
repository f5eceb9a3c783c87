//! Overrides: what an operator sets for an address, a network or a key until a given time.
//!
//! ```text
//! network.rs   an address or a network
//! until.rs     durations, as operators write them
//! request.rs       requests, as JSON
//! spec.rs     an override, as the store keeps it and as operators read it
//! tier.rs      the tiers that overrides add
//! banned.rs    the keys that overrides ban
//! compose.rs   the rule set that POPs run: the operator's with its overrides
//! ```
//!
//! The store keeps overrides apart from the rule set ([`crate::store::rules`]); [`crate::rules`] combines
//! them.

pub mod compose;
pub mod network;
pub(crate) mod path;
pub mod request;
pub mod spec;
pub(crate) mod tier;

pub use spec::Override;
