//! The check of one request.
//!
//! ```text
//! request -> matching rules -> keys -> [local cache] -> slots -> evaluate -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that several rules count takes tokens from all of their buckets or from none. Entries
//! in one slot change together, by one compare-and-swap. Several slots are committed one after another; if a later one
//! has too few tokens, those taken in the earlier ones are given back.

mod answer;
mod cells;
mod decide;
mod decision;
mod evaluate;
mod fast_path;
mod plain;
mod rules;
mod settle;
mod strict;
mod terms;

pub(crate) use answer::{Denial, LocalCache};
pub(crate) use decision::{
    AcquireState, CurrentRequest, EndActionKind, Hit, HitDecision, HitResult, ReservedTokens, Scratch,
};
pub use decision::{Beside, Decision, DecisionKind, EndAction, LimitReason, Policy, QuotaStatus};
pub(crate) use fast_path::{FastPath, passed, refused_quickly, try_fast_path};
pub(crate) use rules::CompiledRules;
pub use settle::Booking;
pub(crate) use settle::{book, drop_refusals};
pub(crate) use terms::RuleTerms;
