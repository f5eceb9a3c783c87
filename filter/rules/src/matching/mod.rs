//! Which requests a rule counts.
//!
//! A [`Condition`] is compiled when configuration arrives; [`Index`] finds the few of many conditions that a
//! request can meet at all.

mod addresses;
mod bits;
mod condition;
mod cookie;
mod duplicates;
mod folding;
mod glob;
mod holds;
mod host;
mod index;
mod path;
mod query;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use addresses::{AddressSet, AddressSetError, Range};
pub use bits::Bits;
pub use condition::{Clause, Condition, Test};
pub use duplicates::Duplicates;
pub(crate) use duplicates::{OneOf, Repeated};
pub use folding::Folding;
pub(crate) use folding::PathRead;
pub use glob::{GLOB_BYTES_MAX, GLOB_PATH_BYTES_MAX, Glob};
pub use holds::Holds;
pub use host::{HOST_BYTES_MAX, Hosts};
pub(crate) use host::{HostRead, host_of};
pub use index::Index;
pub use path::{PathMatch, Written};
pub use query::QUERY_BYTES_MAX;
pub use source::{CLAIM_NAMES_MAX, NAME_BYTES_MAX, Source, ValueOf};
pub(crate) use source::{Kind, duplicates, source};
pub use value::{PATTERN_BYTES_MAX, PROGRAMS_BYTES_MAX, Pattern, REGEX_VALUE_BYTES_MAX, Texts, ValueTest};
