//! The messages of the budget loop: a POP's report, and weir-sync's reply with its grants.
//!
//! **Form.** One version byte, then the message in [postcard](https://postcard.jamesmunns.com/wire-format)
//! (integers are varints, so a hot key takes a few bytes). The media type is [`CONTENT_TYPE`].
//!
//! **Counts are cumulative.** A report contains the tokens that a bucket has admitted and was asked for since
//! its epoch began, not since the last report. A report that is lost, repeated, overtaken by the next one or
//! sent by two workers is therefore harmless: the receiver takes the maximum per `(pop, epoch)`. A reply
//! confirms the counts of its settled keys, and of no others. The sequence number only distinguishes stale
//! reports from fresh ones.
//!
//! **Version.** A receiver refuses a message of any version but [`VERSION`]. The error names both versions.
//!
//! **Pushes are part of replies.** A POP sends a report every interval, even if only as a sign of life.
//! Pushed grants reach it within one interval, and no connection has to be held open for them.

mod coding;
mod reply;
mod report;

pub use self::coding::*;
pub use self::reply::{AdmitRatio, Allowance, Grant, Leased, PushedGrant, Reply, Settled};
pub use self::report::{
    Ban, BudgetRule, HeldEpoch, Key, Replies, Report, RuleCounts, RunningRules, StatusReport,
};
