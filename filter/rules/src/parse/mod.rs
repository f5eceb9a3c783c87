//! Reads rules from configuration.

mod condition;
mod reader;
mod rules;

pub use condition::CONDITIONS_MAX;
pub(crate) use condition::{condition, conditions, long_texts};
pub(crate) use reader::{Reader, rule_name};
pub(crate) use rules::rules;
