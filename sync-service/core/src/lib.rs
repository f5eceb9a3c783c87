//! A key's budget: what was admitted for it everywhere, and what each point of presence may do next.
//!
//! Pure pieces, in the order a report meets them:
//!
//! 1. [`region`] takes a report in, and at the end gives its grants out;
//! 2. [`demand`] turns the cumulative counts of the reports into requests per second;
//! 3. [`budget`] charges what was admitted, exactly once, and gives the [`budget::Account`];
//! 4. [`divide`] turns an account into a grant;
//! 5. [`hot`] knows the keys that every POP must hear of;
//! 6. [`heard`] remembers how budgets stood, [`pops`] who reports here, and with the store out of reach
//!    [`alone`] goes on from there with the region's own share.
//!
//! Beside them: [`floors`] evens out what is a region's own, [`source`] knows what was charged for a POP and how
//! late its reports are, `clock` what is time and what a step of the store's clock, [`spill`] pays for late reports, [`spread`] remembers how deep a budget went, [`bound`] says how far above the quota all POPs together can get, and
//! [`boxed`] sees to it that every POP hears of the keys that a penalty holds.
//!
//! Keys of strict rules go another way: [`draws`] gathers what a report wants of them, and [`escrow`] gives
//! tokens before they are spent; [`tally`] does so for quotas of the calendar, and [`strict`] is either.
//!
//! This crate knows no clock, no socket and no store: time is an argument, a store keeps
//! [`budget::Budget`]s (or does the same elsewhere: the Redis script of weir-sync is a translation
//! of [`budget::Budget::charge`], [`escrow::Escrow::draw`] and [`tally::Tally::draw`], and one test suite runs over both).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alone;
pub mod bound;
mod bounded;
pub mod boxed;
pub mod budget;
mod clock;
pub mod demand;
pub mod divide;
pub mod draws;
pub mod escrow;
pub mod floors;
pub mod heard;
pub mod hot;
pub mod pops;
pub mod region;
mod sorted;
pub mod source;
pub mod spill;
pub mod spread;
pub mod strict;
pub mod tally;
pub mod workers;
