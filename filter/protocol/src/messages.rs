//! The messages of the budget loop: a POP's report, and weir-sync's reply with its grants; their encoding, and the
//! limits that both ends enforce.
//!
//! **Form.** One version byte, then the message in [postcard](https://postcard.jamesmunns.com/wire-format) (integers
//! are varints, so a hot key takes a few bytes). The media type is [`CONTENT_TYPE`].
//!
//! **Counts are cumulative.** A report contains the tokens that a bucket has admitted and was asked for since its epoch
//! began, not since the last report. A report that is lost, repeated, overtaken by the next one or sent by two workers
//! is therefore harmless: the receiver takes the maximum per `(pop, epoch)`. A reply confirms the counts of its settled
//! keys, and of no others. The sequence number only distinguishes stale reports from fresh ones.
//!
//! **Version.** A receiver refuses a message of any version but [`VERSION`]. The error names both versions.
//!
//! **Pushes are part of replies.** A POP sends a report every interval, even if only as a sign of life. Pushed grants
//! reach it within one interval, and no connection has to be held open for them.

mod reply;
mod report;

use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

pub use self::reply::{AdmitRatio, Allowance, Grant, Leased, PushedGrant, Reply, Settled};
pub use self::report::{Ban, BudgetRule, HeldEpoch, Key, Replies, Report, RuleCounts, RunningRules, StatusReport};

pub const CONTENT_TYPE: &str = "application/vnd.weir.sync";
/// Path of reports, sent by POST.
pub const REPORT_PATH: &str = "/v1/report";
pub const POP_NAME_MAX: usize = 64;
pub const RULE_NAME_MAX: usize = 64;
pub const KEY_BYTES_MAX: usize = 64;
pub const RULES_MAX: usize = 1_000;
/// Maximum number of keys in one report; the rest wait for the next.
pub const KEYS_MAX: usize = 1_000;
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
pub const DIVISOR_MAX: u32 = 4_095;
/// Maximum number of bans in one message; the rest wait for the next.
pub const BANS_MAX: usize = 250;
pub const BAN_MS_MAX: u32 = 7 * 86_400_000;
/// Longest time for which one report can state that a request holds an epoch, in milliseconds. It can be renewed.
pub const HELD_MS_MAX: u32 = 600_000;
/// Path of rule sets, fetched by GET with `?version=N`.
pub const RULES_PATH: &str = "/v1/rules";
pub const POPS_MAX: u32 = 10_000;
/// Maximum number of workers that share the report limits of their POP.
pub const WORKERS_MAX: u32 = 128;
/// Maximum number of rules with decision counts in one report; the others follow in turn.
pub const COUNTED_MAX: usize = 64;
pub const MODULE_MAX: usize = 32;
/// Longest reason of a refused rule set, in bytes.
pub const REFUSAL_MAX: usize = 500;

// A report with every field at its limit must fit.
const _: () = assert!(
    KEYS_MAX * (KEY_BYTES_MAX + 72)
        + RULES_MAX * (RULE_NAME_MAX + 24)
        + BANS_MAX * (KEY_BYTES_MAX + 10)
        + COUNTED_MAX * (RULE_NAME_MAX + 41)
        + REFUSAL_MAX
        < MESSAGE_BYTES_MAX
);

/// Version of the messages, their first byte.
pub const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    #[error("the message is empty: expected a version byte and a body")]
    Empty,
    #[error("the message has version {0}, expected {known}", known = VERSION)]
    Version(u8),
    #[error("the message has {0} bytes, expected at most {most}", most = MESSAGE_BYTES_MAX)]
    TooLarge(usize),
    #[error("the message's body is malformed")]
    Malformed,
    /// A field, named here, is out of its limits.
    #[error("a field is out of its limits: {0}")]
    Limit(&'static str),
}

pub trait Message: Serialize + DeserializeOwned {
    /// Checks the limits of all fields, which decoding does not.
    fn validate(&self) -> Result<(), WireError>;

    fn encode(&self) -> Vec<u8> {
        // Serialisation cannot fail: neither message has a type that postcard refuses (a sequence of unknown
        // length). If that changed, the receiver would refuse the lone version byte.
        postcard::to_extend(self, alloc::vec![VERSION]).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(WireError::TooLarge(bytes.len()));
        }
        let (&version, body) = bytes.split_first().ok_or(WireError::Empty)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let Ok((message, [])) = postcard::take_from_bytes::<Self>(body) else {
            return Err(WireError::Malformed);
        };
        message.validate()?;
        Ok(message)
    }
}

fn expect(field: &'static str, is_within_limits: bool) -> Result<(), WireError> {
    if is_within_limits { Ok(()) } else { Err(WireError::Limit(field)) }
}
