//! The messages of the budget loop: a POP's [`Report`], and weir-sync's [`Reply`] with its grants; their encoding, and
//! the limits that both ends enforce.
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

use alloc::string::String;
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

pub use self::reply::{AdmitRatio, Allowance, Grant, Leased, PushedGrant, Reply, Settled};
use crate::quota::Quota;
use crate::sharing::Sharing;

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
/// Longest hold that one report can state for an epoch, in milliseconds. A later report can renew it.
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
/// Largest [`StatusReport::step`]: fallback.
const STEP_MAX: u8 = 2;

// A report with every field at its limit must fit, except for the floors of its rules.
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the POP, the same for all its workers.
    pub pop: String,
    /// Random id of the worker's VM.
    pub worker: u64,
    /// Number of the worker's report, from 1.
    pub sequence: u64,
    /// Random id of the POP's table. Epochs are unique within one table only.
    pub table: u32,
    /// Time of the report, in milliseconds of the POP's monotonic clock, which all workers of a table share.
    pub made_ms: u64,
    /// Number of POPs in the fleet, from the last reply that was not a guess; 0 if there was none.
    pub pops: u32,
    pub running: RunningRules,
    pub replies: Replies,
    pub rules: Vec<BudgetRule>,
    /// The keys with something to report. A report without keys is a greeting, which marks the POP as live.
    pub keys: Vec<Key>,
    /// Keys that were banned here, to be passed to every POP.
    pub bans: Vec<Ban>,
    /// The epochs among `keys` that a single request holds or held, in the order of `keys`.
    pub held: Vec<HeldEpoch>,
    pub status: Option<StatusReport>,
}

/// A worker's account of the replies that it has received. Pushes in a lost reply are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replies {
    /// Latest sequence number up to which the worker awaits no replies.
    pub done: u64,
    /// Latest report whose reply the worker gave up on.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRules {
    /// Version of the rule set; 0 is the one in the plugin configuration.
    pub version: u64,
    /// Latest pushed version that the worker refused; 0 if none.
    pub refused: u64,
}

/// A key that is refused for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Index into the message's `rules`.
    pub rule: u16,
    pub value: Vec<u8>,
    /// Remaining duration in milliseconds, at most [`BAN_MS_MAX`].
    pub for_ms: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRule {
    /// Name of the rule. A name and a key identify a budget.
    pub name: String,
    pub quota: Quota,
    pub sharing: Sharing,
}

/// The counts of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Index into [`Report::rules`].
    pub rule: u16,
    /// Value of the key in canonical form, the same at every POP.
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// Identifies, within the table, the period that the counts cover. The counts of a new epoch start at zero.
    pub epoch: u32,
    /// Tokens admitted since the epoch began.
    pub admitted: u64,
    /// The part of `admitted` that no reply has confirmed yet. It is charged if the receiver has no record of this
    /// epoch, because the receiver was restarted or flushed, or has dropped it.
    pub unconfirmed: u64,
    /// Maximum age of the oldest unconfirmed token, in milliseconds. The budget has refilled during this time.
    pub span_ms: u32,
    /// For a warm key, which is reported late: number of tokens that the bucket lacks until it is full. Unconfirmed
    /// tokens beyond this number have been refilled since.
    pub missing: u32,
    /// Tokens asked for, admitted or not, since the epoch began.
    pub asked: u64,
    /// The part of `asked` that is in no earlier report of this worker, except failed ones. It is the demand if the
    /// receiver has no record of this epoch, or if other receivers get some of the reports.
    pub asked_recently: u64,
    /// For a strict rule, number of tokens beyond `admitted` that the POP wants debited in advance.
    pub ahead: u32,
}

/// An epoch of a strict rule, acquired for a single request, which holds it until its cost is known. Until then,
/// reports state none of its tokens as spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldEpoch {
    /// Index into [`Report::keys`].
    pub key: u16,
    /// Time from now for which the request may continue, in milliseconds. If 0, the request has ended at a cost of
    /// `admitted`: excess tokens are refunded, and missing ones are debited regardless of the budget's level.
    pub for_ms: u32,
}

impl Report {
    /// Time for which the key at index `place` is held, in milliseconds; `None` if it is not held.
    pub fn held_ms(&self, place: usize) -> Option<u32> {
        let at = self.held.binary_search_by_key(&place, |held| usize::from(held.key)).ok()?;
        self.held.get(at).map(|held| held.for_ms)
    }

    /// The epoch of `key`, unique among all epochs of its POP.
    pub fn epoch(&self, key: &Key) -> u64 {
        u64::from(self.table) << 32 | u64::from(key.epoch)
    }
}

impl Message for Report {
    fn validate(&self) -> Result<(), WireError> {
        let name_fits = |name: &str, max: usize| (1..=max).contains(&name.len());
        expect("pop", name_fits(&self.pop, POP_NAME_MAX))?;
        expect("pops", self.pops <= POPS_MAX)?;
        expect("rules", self.rules.len() <= RULES_MAX)?;
        for rule in &self.rules {
            expect("rules[].name", name_fits(&rule.name, RULE_NAME_MAX))?;
            expect("rules[].sharing", rule.sharing.fits(rule.quota))?;
        }
        expect("keys", self.keys.len() <= KEYS_MAX)?;
        for key in &self.keys {
            expect("keys[].rule", usize::from(key.rule) < self.rules.len())?;
            expect("keys[].value", (1..=KEY_BYTES_MAX).contains(&key.value.len()))?;
            expect("keys[].admitted", key.admitted <= key.asked && key.unconfirmed <= key.admitted)?;
            expect("keys[].asked_recently", key.asked_recently <= key.asked)?;
        }
        for held in &self.held {
            let rule = self.keys.get(usize::from(held.key)).and_then(|key| self.rules.get(usize::from(key.rule)));
            expect("held[].key", rule.is_some_and(|rule| rule.sharing.strict))?;
            expect("held[].for_ms", held.for_ms <= HELD_MS_MAX)?;
        }
        expect("held", self.held.is_sorted_by(|one, next| one.key < next.key))?;
        self.status.as_ref().map_or(Ok(()), StatusReport::check)?;
        check_bans(&self.bans, self.rules.len())
    }
}

/// The status of a POP, sent by one of its workers about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Connectivity: 0 fresh, 1 stale, 2 fallback.
    pub step: u8,
    /// Wall clock, in milliseconds since 1970; 0 if it has none.
    pub unix_ms: u64,
    pub module: String,
    /// Reason why the POP refused a newer rule set (see [`RunningRules::refused`]); empty if it did not.
    pub refusal: String,
    /// Interval in which the counts of each rule are sent, in milliseconds.
    pub every_ms: u32,
    /// Requests that the `deny` list refused, including bans of addresses, since the POP's process began.
    pub blocked: u64,
    pub rules: Vec<RuleCounts>,
}

/// Decisions of all workers of a POP by one rule since its process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounts {
    pub name: String,
    /// Requests that were allowed; limited; denied, because the POP was in fallback; and those that would have been
    /// limited if the rule were enforced for their keys.
    pub decided: [u64; 4],
}

impl StatusReport {
    fn check(&self) -> Result<(), WireError> {
        expect("status.step", self.step <= STEP_MAX)?;
        expect("status.module", self.module.len() <= MODULE_MAX)?;
        expect("status.refusal", self.refusal.len() <= REFUSAL_MAX)?;
        expect("status.rules", self.rules.len() <= COUNTED_MAX)?;
        let is_named = |rule: &RuleCounts| (1..=RULE_NAME_MAX).contains(&rule.name.len());
        expect("status.rules[].name", self.rules.iter().all(is_named))
    }
}

/// Deserialises bytes at once; a sequence would be read one byte at a time. The encoding is the same.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
}

fn check_bans(bans: &[Ban], rules: usize) -> Result<(), WireError> {
    let fits = |ban: &Ban| {
        usize::from(ban.rule) < rules && (1..=KEY_BYTES_MAX).contains(&ban.value.len()) && ban.for_ms <= BAN_MS_MAX
    };
    expect("bans", bans.len() <= BANS_MAX)?;
    expect("bans[]", bans.iter().all(fits))
}
