//! The report of a POP to weir-sync, with its status for operators.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    BAN_MS_MAX, BANS_MAX, COUNTED_MAX, HELD_MS_MAX, KEY_BYTES_MAX, KEYS_MAX, MODULE_MAX, Message, POP_NAME_MAX,
    POPS_MAX, REFUSAL_MAX, RULE_NAME_MAX, RULES_MAX, WireError, expect,
};
use crate::quota::Quota;
use crate::sharing::Sharing;

/// The number of the last connectivity, fallback.
const STEP_MAX: u8 = 2;

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
    /// The rules that `keys` refer to.
    pub rules: Vec<BudgetRule>,
    /// The keys with something to report. A report without keys is a greeting, which marks the POP as live.
    pub keys: Vec<Key>,
    /// Keys that were banned here, to be passed to every POP.
    pub bans: Vec<Ban>,
    /// Those of `keys` that are epochs of a single request, which holds or held them, in the order of `keys`.
    pub held: Vec<HeldEpoch>,
    pub status: Option<StatusReport>,
}

/// The replies to its reports that a worker has received. Pushes of a lost reply are repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replies {
    /// Latest sequence number for which the worker awaits no reply, nor for any before it.
    pub done: u64,
    /// Latest report whose reply the worker gave up on.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRules {
    /// Its version; 0 is the one in the plugin configuration.
    pub version: u64,
    /// Latest pushed version that the worker refused; 0 if none.
    pub refused: u64,
}

/// A ban: a key that a rule's penalty refuses for a time.
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
    /// Name of the rule. Together with a key it names a budget.
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
    /// The part of `admitted` that no reply has confirmed yet. It is charged if the receiver has no record of
    /// this epoch, because it was restarted or flushed, or has dropped it.
    pub unconfirmed: u64,
    /// Upper limit of the age of the oldest unconfirmed token, in milliseconds: the budget has refilled since.
    pub span_ms: u32,
    /// For a warm key, which is reported late: number of tokens that the bucket lacks until it is full. At
    /// most this number of the unconfirmed tokens were admitted too recently to have been refilled.
    pub missing: u32,
    /// Tokens asked for, admitted or not, since the epoch began.
    pub asked: u64,
    /// The part of `asked` that is in no earlier report of this worker, except failed ones. It is the demand
    /// if the receiver has no record of this epoch, or if other receivers get some of the reports.
    pub asked_recently: u64,
    /// For a strict rule, number of tokens beyond `admitted` that the POP wants to be debited in advance.
    pub ahead: u32,
}

/// An epoch of a strict rule that was acquired for a single request, which holds it until its cost is known.
/// Until then none of its tokens is reported as spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldEpoch {
    /// Index into [`Report::keys`].
    pub key: u16,
    /// Time from now for which the request may continue, in milliseconds. 0 if it has ended at a cost of `admitted`:
    /// tokens debited beyond that are refunded, and missing ones are debited, regardless of the budget's level.
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
    /// Reason why the POP refused a newer rule set (see [`super::RunningRules::refused`]); empty if it did not.
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
    /// Requests that were allowed; limited; denied, because the POP was in fallback; and those that would
    /// have been limited if the rule were enforced for their keys.
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
    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }

    deserializer.deserialize_bytes(Bytes)
}

pub(super) fn check_bans(bans: &[Ban], rules: usize) -> Result<(), WireError> {
    let fits = |ban: &Ban| {
        usize::from(ban.rule) < rules && (1..=KEY_BYTES_MAX).contains(&ban.value.len()) && ban.for_ms <= BAN_MS_MAX
    };
    expect("bans", bans.len() <= BANS_MAX)?;
    expect("bans[]", bans.iter().all(fits))
}
