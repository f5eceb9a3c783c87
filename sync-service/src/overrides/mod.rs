//! Overrides: an operator's ban, allow or other rate for an address, a network or a key, until a given time.
//!
//! ```text
//! request.rs   requests, as JSON, and durations, as operators write them
//! spec.rs      an override, as the store keeps it and as operators read it
//! tier.rs      the tiers that overrides add
//! compose.rs   the rule set that POPs run: the operator's with its overrides
//! ```
//!
//! The store keeps overrides apart from the rule set ([`weir_store::rules`]); [`crate::rules`] combines both.

pub(crate) mod compose;
pub mod request;
pub(crate) mod spec;
pub(crate) mod tier;

pub use spec::OverrideKind;
