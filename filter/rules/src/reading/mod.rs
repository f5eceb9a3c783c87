//! Reading configuration, with a place for every error, not only the first.

mod errors;
mod fields;
pub(crate) mod meant;
mod struct_value;
#[cfg(test)]
mod tests;

pub(crate) use errors::Reader;
pub use errors::{ConfigError, ERRORS_MAX, ErrorCollector, ShortForm};
pub(crate) use fields::is_token;
pub use fields::{Fields, Item, Items};
pub(crate) use struct_value::decode as decode_struct;
