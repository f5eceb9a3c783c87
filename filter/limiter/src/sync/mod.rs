//! A worker's side of the budget loop: reports of admitted tokens go out, grants and leases come in.
//!
//! ```text
//! watch list -> report  -> weir-sync -> a reply -> grants
//! a request  -> acquire -> weir-sync -> a reply -> tokens for that request -> own_epochs
//!            -> consume -> the budget, in a host next to the store
//! handover   -> the reporter's list, if one engine reports for all workers; the next worker's list
//! ```

mod acquire;
mod calls;
mod client;
pub mod connectivity;
mod consume;
mod demand;
mod grants;
mod own_epochs;
mod report;
mod watch_list;
mod watched_key;

pub(crate) use calls::AcquiredTokens;
pub use calls::{ACQUIRES_MAX, CallPurpose, REPORTS_MAX};
pub use client::SyncClient;
pub(crate) use consume::{decide_taken, evaluate_consumed};
pub(crate) use demand::ConsumeState;
pub use demand::{Consume, ConsumeReply};
pub use own_epochs::OWN_MAX;
pub(crate) use report::{gather, hurry, inherit, leave};
pub(crate) use watch_list::WatchList;
