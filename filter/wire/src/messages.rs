//! The messages of the budget loop: what a point of presence reports, what weir-sync grants.
//!
//! **Form.** One version byte, then the message in [postcard](https://postcard.jamesmunns.com/wire-format)
//! (integers are varints, so a hot key costs a few bytes). Sent as [`CONTENT_TYPE`].
//!
//! **Counts are cumulative.** A report says how much a bucket has admitted and been asked for since
//! the bucket's epoch began, not since the last report. A report that is lost, repeated, overtaken
//! by the next one or sent by two workers is therefore harmless: the receiver takes the maximum per
//! `(pop, epoch)`. A reply confirms the counts of those keys that it says are settled, and no others. The sequence
//! number only tells a stale report from a fresh one.
//!
//! **Version.** A receiver refuses a message of any version but [`VERSION`], and names both.
//!
//! **Push rides on replies.** A POP reports every interval, even with nothing to say but that it is up. So
//! pushed news reaches it within one interval, and no connection is held open for that.

mod coding;
mod limits;
mod reply;
mod report;
mod status;

pub use self::coding::{Message, VERSION, WireError};
pub use self::limits::*;
pub use self::reply::{AdmitRatio, Allowance, Grant, Leased, Pushed, Reply, Settled};
pub use self::report::{Ban, Held, Key, Replies, Report, Rule, Running};
pub use self::status::{RuleCounts, Status};
