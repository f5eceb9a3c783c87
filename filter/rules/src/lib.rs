//! Rules: what operators write (match, key, quota, behaviour), checked and compiled.
//!
//! [`document`] and [`config`] read text into a [`RuleSet`] and record the place of every error. [`matching`] decides
//! which requests a rule counts, [`key`] what it counts by, [`limit`] how much it allows and how many tokens a request
//! takes, and [`response`] what a limited client receives. A rule set is built when configuration arrives; nothing on
//! the request path parses or formats.
//!
//! ```
//! use weir_rules::document;
//!
//! let text = br#"{"rules": [{"name": "per-client", "key": ["client_address"], "rate": "50/s", "burst": 100}]}"#;
//! let rules = document::parse(text).expect("good rules");
//! assert_eq!(rules.rules()[0].quota.burst(), 100);
//!
//! let errors = document::parse(br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5"}]}"#).unwrap_err();
//! assert!(errors[0].to_string().starts_with("rules[0].rate: expected"));
//! ```
#![no_std]
#![allow(missing_docs, reason = "a name that says all needs no comment")]
#![cfg_attr(not(test), deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod document;
pub mod key;
pub mod limit;
pub mod matching;
pub mod reading;
pub mod request;
pub mod response;
mod rule;
mod rule_set;
pub mod sorting;

pub use key::fleet_secret;
pub use limit::{after, algorithm, cost};
pub use matching::CONDITIONS_MAX;
pub use request::{address, claim_as_text};
pub use response::{HeaderFamilies, Reset, Response, template};
pub use rule::{Rule, mode, variant};
pub use rule_set::{Listed, NO_RULE, RuleSet};
