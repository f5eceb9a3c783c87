//! Top keys and the state of single keys.
//!
//! Each weir-sync shares its busiest keys with the others through the store ([`shared`]). [`query`] parses an
//! operator's query, [`found`] finds the keys of a request, [`overrides`] the overrides that affect a key, and
//! [`page`] renders keys as JSON.

pub mod found;
pub mod name;
pub mod overrides;
pub mod page;
pub mod query;
pub mod shared;
pub mod summary;
pub mod which;
