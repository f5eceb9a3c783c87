//! Reading configuration: every error with its place, not only the first.

mod fields;
mod reader;
mod struct_value;

pub use fields::{ConfigError, ERRORS_MAX, Errors, Fields};
pub(crate) use fields::{choice, is_token, number, shown, span, text};
pub(crate) use reader::{Reader, rule_name};
pub(crate) use struct_value::decode as decode_struct;
