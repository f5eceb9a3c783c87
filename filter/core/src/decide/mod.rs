//! The decision for one request.
//!
//! ```text
//! request -> matching rules -> keys -> [local cache] -> slots -> judge -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that several rules count consumes tokens from all of their buckets or from
//! none. Entries in one slot change together, by one compare-and-swap. Several slots are committed one after
//! the other; if a later one turns out short, the tokens taken in the earlier ones are given back.

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
mod plain;
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
pub use decision::{Beside, Decision, Outcome, Policy, QuotaStatus, Reason};
pub(crate) use flight::in_flight;
pub(crate) use hit::{Hit, Scratch, slot_of};
#[cfg(feature = "takes")]
pub(crate) use judged::Judged;
pub(crate) use judged::Verdict;
pub(crate) use keys::Keys;
pub(crate) use penalty::{forget, put_ban, replace_ban};
pub(crate) use plain::Plain;
pub(crate) use quick::Quick;
pub(crate) use terms::RuleTerms;
