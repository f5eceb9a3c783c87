//! Orders: what an operator tells the fleet about an address, a network or a key, until a time.
//!
//! ```text
//! network.rs   an address or a network
//! until.rs     times, as operators write and read them
//! ask.rs       what is asked for, as JSON
//! order.rs     an order, as the store keeps it and as operators read it
//! tier.rs      the tiers that overrides add
//! banned.rs    the keys that they ban
//! compose.rs   what POPs are told to run: a rule set with the orders that change it
//! ```
//!
//! The store keeps them apart from the rule set ([`crate::store::orders`]), and [`crate::rules`] puts both together.

pub mod ask;
pub(crate) mod banned;
pub mod compose;
pub mod network;
pub mod order;
pub(crate) mod tier;
pub mod until;

pub use order::Order;
