//! What a POP tells weir-sync.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::coding::{Message, WireError, expect};
use super::limits::{
    BAN_MS_MAX, BANS_MAX, HELD_MS_MAX, KEY_BYTES_MAX, KEYS_MAX, POP_NAME_MAX, POPS_MAX, RULE_NAME_MAX,
    RULES_MAX,
};
use super::status::Status;
use crate::quota::Quota;
use crate::sharing::Sharing;

/// What one worker of a POP tells weir-sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The POP's name, the same for all its workers.
    pub pop: String,
    /// A random name of the worker's VM.
    pub worker: u64,
    /// Counts this worker's reports, from 1.
    pub sequence: u64,
    /// A random name of the POP's table: an epoch is unique within one table only.
    pub table: u32,
    /// When it was made, in milliseconds of the POP's monotonic clock, which all workers of a table share.
    pub made_ms: u64,
    /// How many POPs the fleet has, as last told by a weir-sync that knew; 0 if none ever did. A weir-sync that starts
    /// without its store uses this.
    pub pops: u32,
    /// Which rule set the worker runs.
    pub running: Running,
    /// Which replies to its reports it got.
    pub replies: Replies,
    /// The rules that `keys` refer to.
    pub rules: Vec<Rule>,
    /// The keys with something to report. A report without keys is a greeting, which counts the POP as live.
    pub keys: Vec<Key>,
    /// Keys that were banned here; every POP is to hear of them.
    pub bans: Vec<Ban>,
    /// Which of `keys` are epochs that a request holds, or held, in the order of `keys`.
    pub held: Vec<Held>,
    /// How the POP is, which one of its workers says about once a second.
    pub status: Option<Status>,
}

/// Which replies to its reports a worker got. What a lost reply pushed is pushed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replies {
    /// It no longer waits for a reply to any report up to this sequence.
    pub done: u64,
    /// The latest report whose reply it gave up on.
    pub lost: u64,
}

/// Which rule set a worker runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its version; 0 is the one in the plugin configuration.
    pub version: u64,
    /// The latest pushed version that it could not use; 0 if none.
    pub refused: u64,
}

/// A ban: a key that a rule's penalty refuses for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Index into the message's `rules`.
    pub rule: u16,
    /// The key's value in canonical form.
    pub value: Vec<u8>,
    /// For how long from now, in milliseconds; at most [`BAN_MS_MAX`].
    pub for_ms: u32,
}

/// A rule as weir-sync needs it: whose budget, and how large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Names the budget together with the key.
    pub name: String,
    /// How large the budget is.
    pub quota: Quota,
    /// How POPs share it.
    pub sharing: Sharing,
}

/// One bucket's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Index into [`Report::rules`].
    pub rule: u16,
    /// The key's value in canonical form, the same at every POP.
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// Identifies, within the table, the time that the counts cover; a new epoch's counts start at zero.
    pub epoch: u32,
    /// Tokens admitted since the epoch began.
    pub admitted: u64,
    /// The part of `admitted` that no reply has confirmed yet: what to charge if the receiver has no
    /// record of this epoch (it was restarted or flushed, or it forgot).
    pub unconfirmed: u64,
    /// How long before the report the first of the unconfirmed tokens may have been admitted, in
    /// milliseconds. The budget has refilled since, so it is not charged as if all were taken now.
    pub span_ms: u32,
    /// For a warm key, which is reported late: how many tokens the bucket lacks until it is full. At most that
    /// many of the unconfirmed tokens were admitted too recently to have been refilled.
    pub missing: u32,
    /// Tokens asked for, admitted or not, since the epoch began.
    pub asked: u64,
    /// The part of `asked` that is in no earlier report of this worker, failed reports aside: the demand to
    /// assume if the receiver has no record of this epoch, or if other receivers hear some of the reports.
    pub asked_recently: u64,
    /// For a strict rule, how many tokens beyond `admitted` the POP wants debited in advance.
    pub ahead: u32,
}

/// An epoch of a strict rule that one request drew for itself, and that it holds until its cost is known: no token of it is
/// said to be spent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Index into [`Report::keys`].
    pub key: u16,
    /// For how long from now the request may go on, in milliseconds. With 0 it has ended, and cost `admitted`: what was
    /// debited beyond that comes back, and what that is more is debited, whatever the budget has left.
    pub for_ms: u32,
}

impl Report {
    /// For how long the key at `place` is held, if it is, in milliseconds.
    pub fn held_ms(&self, place: usize) -> Option<u32> {
        let at = self.held.binary_search_by_key(&place, |held| usize::from(held.key)).ok()?;
        self.held.get(at).map(|held| held.for_ms)
    }

    /// The epoch of `key`, unique among all epochs that its POP ever had.
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
            let rule =
                self.keys.get(usize::from(held.key)).and_then(|key| self.rules.get(usize::from(key.rule)));
            expect("held[].key", rule.is_some_and(|rule| rule.sharing.strict))?;
            expect("held[].for_ms", held.for_ms <= HELD_MS_MAX)?;
        }
        expect("held", self.held.is_sorted_by(|one, next| one.key < next.key))?;
        self.status.as_ref().map_or(Ok(()), Status::check)?;
        check_bans(&self.bans, self.rules.len())
    }
}

/// Reads bytes at once: in a sequence, each would be read by itself. On the wire both are the same.
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

/// Whether a message that names so many rules may carry these bans.
pub(super) fn check_bans(bans: &[Ban], rules: usize) -> Result<(), WireError> {
    let fits = |ban: &Ban| {
        usize::from(ban.rule) < rules
            && (1..=KEY_BYTES_MAX).contains(&ban.value.len())
            && ban.for_ms <= BAN_MS_MAX
    };
    expect("bans", bans.len() <= BANS_MAX)?;
    expect("bans[]", bans.iter().all(fits))
}
