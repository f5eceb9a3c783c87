//! Rules: what an operator writes (match, key, quota, behaviour), checked and made ready.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod after;
pub mod algorithm;
mod calendar;
pub mod claim;
pub mod config;
pub mod cost;
pub mod document;
pub mod fleet_secret;
pub mod key;
pub mod key_spec;
pub mod limit;
pub mod matching;
pub mod mode;
mod parse;
pub mod penalty;
pub mod reading;
pub mod request;
pub mod response;
mod rule;
mod rule_set;
mod struct_value;
pub mod template;
pub mod tier;
pub mod variant;
pub mod wider;

pub use parse::CONDITIONS_MAX;
pub use response::{HeaderFamilies, Reset, Response};
pub use rule::Rule;
pub use rule_set::{Listed, NO_RULE, RuleSet};
