//! The messages that a point of presence (POP) and a weir-sync exchange, and their types.
//!
//! A [`quota`] is a rate and a burst, [`sharing`] defines how POPs share it, and [`refill_policy`] how it refills.
//! [`calendar`] computes calendar windows. [`messages`] defines a POP's report, the reply, and their encoding.
//!
//! ```
//! use weir_protocol::messages::{Key, Message, Report, BudgetRule};
//! use weir_protocol::quota::Quota;
//! use weir_protocol::sharing::Sharing;
//!
//! // 10 requests a second, 100 at once; a client has made 70 requests at this POP.
//! let quota = Quota::from_token_ns(100_000_000, 100)?;
//! let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
//! let key = Key { value: vec![4, 32, 192, 0, 2, 1], admitted: 70, unconfirmed: 70, asked: 70, ..Key::default() };
//! let report = Report { pop: "fra1".into(), sequence: 1, rules, keys: vec![key], ..Report::default() };
//!
//! let bytes = report.encode();
//! assert_eq!(Report::decode(&bytes)?, report);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![allow(missing_docs, reason = "a name that says all needs no comment")]
#![cfg_attr(not(test), deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod calendar;
pub mod messages;
pub mod quota;
pub mod refill_policy;
pub mod sharing;
pub mod time;
