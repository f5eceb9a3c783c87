//! The contents of a report, and the record that is kept of each key until the reply.

use alloc::vec::Vec;

use crate::RuleIndex;
use crate::table::EntryPlace;
use crate::table::slot::Watched;
use weir_protocol::messages::{self, Ban, HeldEpoch};
use weir_protocol::time::Time;

/// The record of one key in a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedKey {
    pub(crate) place: EntryPlace,
    /// Index of the rule; [`RuleIndex::NONE`] if it is no longer in force, or if the reply is to change
    /// nothing.
    pub(crate) rule: RuleIndex,
    pub(crate) epoch: u32,
    pub(crate) admitted: u32,
    /// Tokens that this worker was asked for in total, and the part of them that no earlier report contained.
    pub(crate) asked: u64,
    pub(crate) asked_recently: u64,
    /// Tokens that the request waits for, in a call for tokens.
    pub(crate) awaited: u32,
    /// True for an epoch that one request acquired for itself alone.
    pub(crate) is_unplaced: bool,
    /// True if the request acquires again, because the lease of its first reply had ended.
    pub(crate) is_again: bool,
    pub(crate) dirty_since: Time,
}

impl ReportedKey {
    /// A record for the key at `place` under `rule`, with something to report since `dirty_since`. All counts
    /// are zero.
    pub(crate) fn of(place: EntryPlace, rule: RuleIndex, dirty_since: Time) -> Self {
        Self {
            place,
            rule,
            epoch: 0,
            admitted: 0,
            asked: 0,
            asked_recently: 0,
            awaited: 0,
            is_unplaced: false,
            is_again: false,
            dirty_since,
        }
    }
}

/// A report under construction.
#[derive(Default)]
pub(crate) struct ReportBuilder {
    /// The rules that the keys refer to.
    pub(crate) rules: Vec<RuleIndex>,
    pub(crate) keys: Vec<messages::Key>,
    pub(crate) told: Vec<ReportedKey>,
    pub(crate) bans: Vec<Ban>,
    /// The keys that are epochs which a request holds, or held.
    pub(crate) held: Vec<HeldEpoch>,
}

/// The contents of a report about one key.
pub(crate) struct KeyContents<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) watched: &'a Watched,
    /// Tokens that a warm key's bucket lacks.
    pub(crate) missing: u64,
    /// Tokens that the key wants in advance.
    pub(crate) ahead: u32,
}

impl ReportBuilder {
    /// Adds a key under `rule` with its entry's counts. `told` may name another rule for the reply.
    pub(crate) fn add(&mut self, rule: RuleIndex, told: ReportedKey, said: &KeyContents<'_>, now: Time) {
        let &KeyContents { value, watched, missing, ahead } = said;
        let Some(rule) = self.refer(rule) else { return };
        let admitted = u64::from(watched.admitted);
        // `asked` is added up only when workers report, `admitted` at once.
        let asked = u64::from(watched.asked()).max(admitted);
        let unconfirmed = admitted.saturating_sub(u64::from(watched.charged));
        // Another worker may have admitted tokens before this one had anything to report.
        let span_ns = now.nanos_since(told.dirty_since).max(watched.unheard_ns(now));
        self.keys.push(messages::Key {
            rule,
            value: value.to_vec(),
            epoch: watched.epoch,
            admitted,
            unconfirmed,
            span_ms: u32::try_from(span_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX),
            missing: u32::try_from(missing.min(unconfirmed)).unwrap_or(u32::MAX),
            asked,
            asked_recently: told.asked_recently.min(asked),
            ahead,
        });
        self.told.push(told);
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The report's index for a rule of the limiter. Adds the rule if it is new.
    pub(crate) fn refer(&mut self, rule: RuleIndex) -> Option<u16> {
        let index = self.rules.iter().position(|&known| known == rule).unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        });
        u16::try_from(index).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
