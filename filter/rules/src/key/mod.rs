//! Keys: the parts of a request that a rule counts by, and the value that a request has for them.

pub mod fleet_secret;
mod parse;
mod spec;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use parse::{key, prefixes};
pub use spec::{KeyPart, KeySpec, Missing, MissingPart, PARTS_MAX, Part, SEGMENTS_MAX};
pub use value::KeyValue;
