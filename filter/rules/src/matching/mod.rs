//! Conditions: which requests a rule counts. [`Index`] finds the few, out of many, that a request can meet.

mod addresses;
mod condition;
mod glob;
mod holds;
mod hosts;
mod index;
mod parse;
mod path;
#[cfg(test)]
mod tests;
mod value;

pub use addresses::{AddressSet, Range};
pub use condition::{Clause, Condition, End, Test};
pub use glob::{GLOB_BYTES_MAX, GLOB_PATH_BYTES_MAX, Glob};
pub use holds::Holds;
pub use hosts::Hosts;
pub use index::{Bits, Index};
pub use parse::CONDITIONS_MAX;
pub(crate) use parse::{condition, conditions, long_texts};
pub use path::{PathMatch, Written};
pub(crate) use value::test_of;
pub use value::{PATTERN_BYTES_MAX, PROGRAMS_BYTES_MAX, Pattern, REGEX_VALUE_BYTES_MAX, Texts, ValueTest};
