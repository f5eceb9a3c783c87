//! What a report says, key by key, and what must be remembered of it until its answer comes.

use alloc::vec::Vec;

use crate::RuleIndex;
use crate::table::EntryPlace;
use crate::table::slot::Watched;
use weir_wire::messages::{self, Ban, Held};
use weir_wire::time::Time;

/// What a report said of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) place: EntryPlace,
    /// The rule's index; [`RuleIndex::NONE`] if it is not in force any more, or if the answer is to change nothing.
    pub(crate) rule: RuleIndex,
    pub(crate) epoch: u32,
    pub(crate) admitted: u32,
    /// Tokens that this worker was asked for, and those of them that no earlier report had said.
    pub(crate) asked: u64,
    pub(crate) asked_recently: u64,
    /// In a draw, the tokens that its request waits for.
    pub(crate) awaited: u32,
    /// Whether it is an epoch that one request drew for itself.
    pub(crate) is_unplaced: bool,
    /// Whether its request had drawn before.
    pub(crate) is_again: bool,
    pub(crate) dirty_since: Time,
}

impl Told {
    /// For the key at `place` under `rule`, with something to report since `dirty_since`; all counts are zero.
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

/// What a report is going to say.
#[derive(Default)]
pub(crate) struct Saying {
    /// The rules that keys refer to.
    pub(crate) rules: Vec<RuleIndex>,
    pub(crate) keys: Vec<messages::Key>,
    pub(crate) told: Vec<Told>,
    pub(crate) bans: Vec<Ban>,
    /// Which of `keys` are epochs that a request holds, or held.
    pub(crate) held: Vec<Held>,
}

/// What is said about one key.
pub(crate) struct Said<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) watched: &'a Watched,
    /// For a warm key, the tokens that its bucket lacks.
    pub(crate) missing: u64,
    /// The tokens that it wants in advance.
    pub(crate) ahead: u32,
}

impl Saying {
    /// Adds a key under `rule`, whatever rule the answer is for: what its entry counts, and what it wants.
    pub(crate) fn add(&mut self, rule: RuleIndex, told: Told, said: &Said<'_>, now: Time) {
        let &Said { value, watched, missing, ahead } = said;
        let Some(rule) = self.refer(rule) else { return };
        let admitted = u64::from(watched.admitted);
        // `asked` is added up only when workers report, `admitted` at once.
        let asked = u64::from(watched.asked()).max(admitted);
        let unconfirmed = admitted.saturating_sub(u64::from(watched.charged));
        // Another worker may have admitted before this one had anything to report.
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

    /// The report's index for a rule of the limiter; the rule is added if need be.
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
