//! Reading configuration: every error with its place, not only the first.

mod fields;
mod reader;
mod struct_value;

pub(crate) use fields::is_token;
pub use fields::{ConfigError, ERRORS_MAX, Errors, Fields, Item, Items};
pub(crate) use reader::{Reader, rule_name};
pub(crate) use struct_value::decode as decode_struct;
