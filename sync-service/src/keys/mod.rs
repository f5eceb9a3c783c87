//! Top keys and the state of single keys.
//!
//! Each weir-sync shares its busiest keys with the others through the store ([`shared`]). [`query`] parses an
//! operator's query, [`found`] finds the keys of a request, [`overrides`] the overrides that affect a key, and
//! [`page`] renders keys as JSON.

pub(crate) mod name;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod shared;
pub(crate) mod which;
