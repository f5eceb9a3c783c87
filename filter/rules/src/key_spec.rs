//! What a rule counts by: a list of parts of the request.

mod among;
mod extract;
mod parse;
mod put;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use parse::{key, prefixes};
pub use spec::{KeyPart, KeySpec, Missing, MissingPart, PARTS_MAX, Part, SEGMENTS_MAX};
