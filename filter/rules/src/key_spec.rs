//! What a rule counts by: a list of parts of the request.

mod among;
mod extract;
mod parse;
mod put;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use parse::{claim_names, duplicates, key, prefixes, token};
pub use spec::{
    CLAIM_NAMES_MAX, KeySpec, Missing, MissingPart, PART_NAME_BYTES_MAX, PARTS_MAX, SEGMENTS_MAX,
};
