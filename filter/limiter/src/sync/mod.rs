//! A worker's side of the budget loop: reports of admitted tokens go out, grants and leases come in.
//!
//! ```text
//! watch list -> report  -> weir-sync -> a reply -> grants
//! a request  -> acquire -> weir-sync -> a reply -> tokens for that request
//!            -> consume -> the budget, in a host next to the store
//! handover   -> the reporter's list, if one engine reports for all workers; the next worker's list
//! ```

mod acquire;
mod calls;
mod client;
pub mod connectivity;
mod consume;
mod grants;
mod report;
mod watch_list;
mod watched_key;

pub use calls::ACQUIRES_MAX;
pub(crate) use calls::{AcquiredTokens, CallPurpose};
pub use client::{OWN_MAX, Reporter, SyncClient};
pub use consume::{Consume, ConsumeReply};
pub(crate) use consume::{ConsumeState, decide_taken, evaluate_consumed};
pub(crate) use report::{gather, hurry, inherit, leave};
pub(crate) use watch_list::WatchList;
