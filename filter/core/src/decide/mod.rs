//! The decision: a request goes in, an outcome comes out.
//!
//! ```text
//! request -> rules it meets -> keys -> [deny cache] -> slots -> judge -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that meets several rules takes from all their buckets or from none.
//! Buckets in one slot change together, by one compare-and-swap. The limiter commits several slots
//! one after the other, and gives back what it took if a later one turns out short.

mod afterwards;
mod answer;
#[cfg(feature = "takes")]
mod book;
mod cells;
mod counting;
mod decision;
mod finish;
mod flight;
mod give_back;
mod hit;
mod jitter;
mod judge;
mod judged;
mod keys;
mod meet;
mod penalty;
#[cfg(feature = "own_memory")]
mod plain;
#[cfg(feature = "own_memory")]
mod quick;
mod reserve;
mod ruling;
mod shadow;
mod spend;
mod status;
mod steps;
mod terms;
mod turn;

pub use afterwards::{Afterwards, Reserved, What};
#[cfg(feature = "takes")]
pub use book::Booking;
pub use decision::{Decision, Outcome, Policy, QuotaStatus, Reason};
pub(crate) use flight::in_flight;
pub(crate) use hit::{Hit, Scratch, slot_of};
#[cfg(feature = "takes")]
pub(crate) use judged::Judged;
pub(crate) use judged::Verdict;
pub(crate) use keys::Keys;
pub(crate) use penalty::{forget, put_ban};
#[cfg(feature = "own_memory")]
pub(crate) use plain::Plain;
#[cfg(feature = "own_memory")]
pub(crate) use quick::Quick;
pub(crate) use terms::RuleTerms;
