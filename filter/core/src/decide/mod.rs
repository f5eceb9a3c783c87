//! The decision for one request.
//!
//! ```text
//! request -> matching rules -> keys -> [local cache] -> slots -> judge -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that several rules count consumes tokens from all of their buckets or from
//! none. Entries in one slot change together, by one compare-and-swap. Several slots are committed one after
//! the other; if a later one turns out short, the tokens taken in the earlier ones are given back.

mod answer;
#[cfg(feature = "takes")]
mod book;
mod cells;
mod counting;
mod decision;
mod end_action;
mod evaluate;
mod fast_path;
mod finish;
mod flight;
mod give_back;
mod hit;
mod hit_result;
mod jitter;
mod keys;
mod matching;
mod penalty;
mod pending_decision;
mod plain;
mod reserve;
mod shadow;
mod spend;
mod status;
mod steps;
mod terms;
mod turn;

#[cfg(feature = "takes")]
pub use book::Booking;
pub use decision::{Beside, Decision, DecisionKind, LimitReason, Policy, QuotaStatus};
pub use end_action::{EndAction, EndActionKind, ReservedTokens};
pub(crate) use fast_path::FastPath;
pub(crate) use flight::in_flight;
pub(crate) use hit::{Hit, Scratch, slot_of};
pub(crate) use hit_result::HitDecision;
#[cfg(feature = "takes")]
pub(crate) use hit_result::HitResult;
pub(crate) use keys::KeyCache;
pub(crate) use penalty::{forget, put_ban, replace_ban};
pub(crate) use plain::Plain;
pub(crate) use terms::RuleTerms;
