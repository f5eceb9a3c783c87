//! The check of one request.
//!
//! ```text
//! request -> matching rules -> keys -> [local cache] -> slots -> evaluate -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that several rules count consumes tokens from all of their buckets or from
//! none. Entries in one slot change together, by one compare-and-swap. Several slots are committed one after
//! the other; if a later one turns out short, the tokens taken in the earlier ones are given back.

mod answer;
mod book;
mod cells;
mod commit;
mod current;
mod decide;
mod decision;
mod evaluate;
mod fast_path;
mod local_cache;
mod plain;
mod quota_changes;
mod rules;
mod settle;
mod strict;
mod terms;

pub(crate) use answer::{forget, put_ban, replace_ban};
pub use book::Booking;
pub(crate) use book::{book, book_beyond, drop_refusals};
pub(crate) use current::{AcquireState, CurrentRequest, Hit, HitDecision, HitResult, Scratch};
pub use decision::{
    Beside, Decision, DecisionKind, EndAction, EndActionKind, LimitReason, Policy, QuotaStatus, ReservedTokens,
};
pub(crate) use fast_path::{FastPath, passed, refused_quickly, try_fast_path};
pub(crate) use local_cache::{Denial, LocalCache};
pub(crate) use rules::CompiledRules;
pub(crate) use terms::RuleTerms;
