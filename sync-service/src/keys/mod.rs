//! Top keys and the state of single keys.
//!
//! Each weir-sync shares its busiest keys with the others through the store ([`shared`]). [`name`] converts keys to
//! names and back, [`query`] parses an operator's query, [`request`] finds the keys of a request, and [`page`] renders
//! keys as JSON.

pub(crate) mod name;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod shared;
