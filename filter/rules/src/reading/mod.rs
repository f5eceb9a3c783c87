//! Reading configuration, with a place for every error, not only the first.

mod errors;
mod fields;
pub(crate) mod meant;
mod number;
mod reader;
mod struct_value;
#[cfg(test)]
mod tests;

pub use errors::{ConfigError, ERRORS_MAX, ErrorCollector, ShortForm};
pub(crate) use fields::is_token;
pub use fields::{Fields, Item, Items};
pub(crate) use reader::{Reader, rule_name};
pub(crate) use struct_value::decode as decode_struct;
