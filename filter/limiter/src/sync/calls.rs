//! Calls to weir-sync under way, each with its purpose, and the tokens and epochs that a call acquired.

use alloc::vec::Vec;

use crate::RuleIndex;
use crate::table::slot::{Tag, Watched};
use crate::table::{EntryPlace, NamedKey};
use weir_protocol::messages::{self, Ban, HeldEpoch};
use weir_protocol::time::Time;

/// Maximum number of a worker's reports under way at once; the next waits until one ends.
pub(crate) const REPORTS_MAX: usize = 4;

/// Maximum number of requests of one worker that wait at once. Further ones are decided without asking weir-sync.
pub const ACQUIRES_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPurpose {
    Report,
    Acquire,
    /// Fetch of the rule set document of this version.
    Rules(u64),
}

pub(crate) struct PendingCall {
    /// Number of the call, which this worker never reuses, so that a late reply matches its own call or none. The
    /// number of a report is its sequence.
    pub(crate) number: u64,
    pub(crate) purpose: CallPurpose,
    pub(crate) sent_at: Time,
    /// Record of each key in the report, in the same order.
    pub(crate) reported: Vec<ReportedKey>,
}

/// The calls under way, ordered by number; at most one of them fetches rules.
#[derive(Default)]
pub(crate) struct Calls(Vec<PendingCall>);

impl Calls {
    /// Adds a call. A fetch of rules replaces the previous one.
    pub(crate) fn begin(&mut self, call: PendingCall) {
        if let CallPurpose::Rules(_) = call.purpose {
            self.0.retain(|other| !matches!(other.purpose, CallPurpose::Rules(_)));
        }
        self.0.push(call);
    }

    /// Removes call `number`, if it is under way for `purpose`.
    pub(crate) fn end(&mut self, number: u64, purpose: CallPurpose) -> Option<PendingCall> {
        let at = self.place(number)?;
        self.0.get(at).filter(|call| call.purpose == purpose)?;
        Some(self.0.remove(at))
    }

    pub(crate) fn end_all(&mut self, purpose: CallPurpose) -> impl Iterator<Item = PendingCall> {
        self.0.extract_if(.., move |call| call.purpose == purpose)
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.0.first().map(|call| call.number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&PendingCall> {
        self.0.get(self.place(number)?)
    }

    /// The calls for `purpose`, in the order they were sent.
    pub(crate) fn of(&self, purpose: CallPurpose) -> impl Iterator<Item = &PendingCall> {
        self.0.iter().filter(move |call| call.purpose == purpose)
    }

    pub(crate) fn reported_mut(&mut self) -> impl Iterator<Item = &mut ReportedKey> {
        self.0.iter_mut().flat_map(|call| &mut call.reported)
    }

    /// Start time of the rules fetch under way.
    pub(crate) fn fetching_since(&self) -> Option<Time> {
        let is_fetch = |call: &&PendingCall| matches!(call.purpose, CallPurpose::Rules(_));
        self.0.iter().find(is_fetch).map(|call| call.sent_at)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.0.binary_search_by_key(&number, |call| call.number).ok()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedKey {
    pub(crate) place: EntryPlace,
    /// [`RuleIndex::NONE`] if the rule is no longer in force, or if the reply must change nothing.
    pub(crate) rule: RuleIndex,
    pub(crate) epoch: u32,
    pub(crate) admitted: u32,
    /// Total demand at this worker in tokens, and the part of it that no earlier report contained.
    pub(crate) asked: u64,
    pub(crate) asked_recently: u64,
    /// In a call for tokens, the tokens that the request waits for.
    pub(crate) awaited: u32,
    /// True for an epoch that one request acquired for itself alone.
    pub(crate) is_unplaced: bool,
    /// True if the request acquires again, because the lease of its first reply had ended.
    pub(crate) is_again: bool,
    pub(crate) dirty_since: Time,
}

impl ReportedKey {
    /// A record without counts.
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

#[derive(Default)]
pub(crate) struct ReportBuilder {
    pub(crate) rules: Vec<RuleIndex>,
    pub(crate) keys: Vec<messages::Key>,
    pub(crate) reported: Vec<ReportedKey>,
    pub(crate) bans: Vec<Ban>,
    /// The keys whose epochs a request holds or held.
    pub(crate) held: Vec<HeldEpoch>,
}

pub(crate) struct KeyContents<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) watched: &'a Watched,
    /// Tokens that a warm key's bucket lacks.
    pub(crate) missing: u64,
    /// Tokens that the key wants in advance.
    pub(crate) ahead: u32,
}

impl ReportBuilder {
    /// Adds a key under `rule` with its entry's counts. `reported` may contain another rule for the reply.
    pub(crate) fn add(&mut self, rule: RuleIndex, reported: ReportedKey, contents: &KeyContents<'_>, now: Time) {
        let &KeyContents { value, watched, missing, ahead } = contents;
        let Some(rule) = self.refer(rule) else { return };
        let admitted = u64::from(watched.admitted);
        // `asked` is added up only when workers report, `admitted` immediately.
        let asked = u64::from(watched.asked()).max(admitted);
        let unconfirmed = admitted.saturating_sub(u64::from(watched.charged));
        // Another worker may have admitted tokens before this one had anything to report.
        let span_ns = now.nanos_since(reported.dirty_since).max(watched.unconfirmed_ns(now));
        self.keys.push(messages::Key {
            rule,
            value: value.to_vec(),
            epoch: watched.epoch,
            admitted,
            unconfirmed,
            span_ms: u32::try_from(span_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX),
            missing: u32::try_from(missing.min(unconfirmed)).unwrap_or(u32::MAX),
            asked,
            asked_recently: reported.asked_recently.min(asked),
            ahead,
        });
        self.reported.push(reported);
    }

    /// The report's index of a rule of the limiter, which is added if it is new.
    pub(crate) fn refer(&mut self, rule: RuleIndex) -> Option<u16> {
        let index = self.rules.iter().position(|&known| known == rule).unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        });
        u16::try_from(index).ok()
    }
}

/// Tokens that a call acquired for the next decision of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquiredTokens {
    pub(crate) tag: Tag,
    /// The record of the key in that call. Its awaited tokens are reserved until the decision.
    pub(crate) reported: ReportedKey,
    /// Tokens of an epoch for this request alone; 0 if they are in the key's entry.
    pub(crate) tokens: u32,
    pub(crate) until: Time,
    /// Time of the budget's next token, or of the acquired turn.
    pub(crate) more_at: Time,
    pub(crate) left: u32,
    /// True if the lease or the window had ended on arrival; the request acquires again.
    pub(crate) is_over: bool,
}

/// An epoch that is in no entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnEpoch {
    pub(crate) name: NamedKey,
    pub(crate) epoch: u32,
    /// Tokens that the budget was debited for the epoch.
    pub(crate) tokens: u32,
    /// Cost of its request; `None` while that is in progress.
    pub(crate) cost: Option<u32>,
    pub(crate) until: Time,
    /// The last call that named the epoch; 0 if none did, or none since its request ended.
    pub(crate) named_in: u64,
    /// Earliest time to report the cost again, if it has to wait.
    pub(crate) again_at: Time,
}
