//! What both ends of the budget loop speak.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod calendar;
pub mod messages;
pub mod quota;
pub mod sharing;
pub mod time;
