//! Calls to weir-sync under way, each with its purpose.

use alloc::vec::Vec;

use super::report_builder::ReportedKey;
use weir_protocol::time::Time;

/// Most reports of a worker under way at once; the next waits until one ends.
pub const REPORTS_MAX: usize = 4;

/// Most requests of one worker that wait at once. Any beyond are decided without asking weir-sync.
pub const DRAWS_MAX: usize = 1_000;

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// Reports counts.
    Report,
    /// Acquires tokens that a request waits for.
    Draw,
    /// Fetches the document of the rule set of this version.
    Rules(u64),
}

/// A call under way.
pub(crate) struct PendingCall {
    /// Number of the call, which this worker never reuses: a late reply matches its own call or none. A
    /// report's number is its sequence.
    pub(crate) number: u64,
    pub(crate) purpose: CallPurpose,
    pub(crate) sent_at: Time,
    /// Record of each key in the report, in the same order.
    pub(crate) told: Vec<ReportedKey>,
}

/// The calls under way, ordered by number: at most [`REPORTS_MAX`] reports, [`DRAWS_MAX`] calls that acquire
/// tokens, and one fetch of rules.
#[derive(Default)]
pub(crate) struct Calls(Vec<PendingCall>);

impl Calls {
    /// True if one more call for `purpose` may start. A fetch replaces the previous one.
    pub(crate) fn have_room(&self, purpose: CallPurpose) -> bool {
        let most = match purpose {
            CallPurpose::Report => REPORTS_MAX,
            CallPurpose::Draw => DRAWS_MAX,
            CallPurpose::Rules(_) => return true,
        };
        self.of(purpose).count() < most
    }

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

    /// Removes every call for `purpose`.
    pub(crate) fn end_all(&mut self, purpose: CallPurpose) -> impl Iterator<Item = PendingCall> {
        self.0.extract_if(.., move |call| call.purpose == purpose)
    }

    /// The lowest number under way.
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

    /// The records of all keys in calls under way.
    pub(crate) fn told_mut(&mut self) -> impl Iterator<Item = &mut ReportedKey> {
        self.0.iter_mut().flat_map(|call| &mut call.told)
    }

    /// Start time of the fetch of rules under way.
    pub(crate) fn fetching_since(&self) -> Option<Time> {
        let is_fetch = |call: &&PendingCall| matches!(call.purpose, CallPurpose::Rules(_));
        self.0.iter().find(is_fetch).map(|call| call.sent_at)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.0.binary_search_by_key(&number, |call| call.number).ok()
    }
}
