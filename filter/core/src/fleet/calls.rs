//! The calls to weir-sync that are under way, and what each is for.

use alloc::vec::Vec;

use super::saying::Told;
use weir_wire::time::Time;

/// The most reports of a worker that are under way at once; the next waits until one ends.
pub const REPORTS_MAX: usize = 4;

/// The most requests of one worker that wait at once; any beyond are decided without asking weir-sync.
pub const DRAWS_MAX: usize = 1_000;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A report.
    Report,
    /// Tokens that a request waits for.
    Draw,
    /// The document of the rule set of this version.
    Rules(u64),
}

/// A call under way.
pub(crate) struct UnderWay {
    /// This worker never uses a number again, so an answer goes to the call it is for, or to none. A report's number is
    /// its sequence.
    pub(crate) number: u64,
    pub(crate) purpose: Purpose,
    pub(crate) sent_at: Time,
    /// What it said about keys.
    pub(crate) told: Vec<Told>,
}

/// The calls under way, in the order of their numbers: at most [`REPORTS_MAX`] reports, [`DRAWS_MAX`] draws, and one
/// fetch of rules.
#[derive(Default)]
pub(crate) struct Calls(Vec<UnderWay>);

impl Calls {
    /// Whether one more call for `purpose` may begin. A fetch replaces the one before.
    pub(crate) fn have_room(&self, purpose: Purpose) -> bool {
        let most = match purpose {
            Purpose::Report => REPORTS_MAX,
            Purpose::Draw => DRAWS_MAX,
            Purpose::Rules(_) => return true,
        };
        self.of(purpose).count() < most
    }

    pub(crate) fn begin(&mut self, call: UnderWay) {
        if let Purpose::Rules(_) = call.purpose {
            self.0.retain(|other| !matches!(other.purpose, Purpose::Rules(_)));
        }
        self.0.push(call);
    }

    /// Removes call `number`, if it is under way for `purpose`.
    pub(crate) fn end(&mut self, number: u64, purpose: Purpose) -> Option<UnderWay> {
        let at = self.place(number)?;
        self.0.get(at).filter(|call| call.purpose == purpose)?;
        Some(self.0.remove(at))
    }

    /// Ends every call for `purpose`.
    pub(crate) fn end_all(&mut self, purpose: Purpose) -> impl Iterator<Item = UnderWay> {
        self.0.extract_if(.., move |call| call.purpose == purpose)
    }

    /// The lowest number under way.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.first().map(|call| call.number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&UnderWay> {
        self.0.get(self.place(number)?)
    }

    /// Those for `purpose`, in the order they were sent.
    pub(crate) fn of(&self, purpose: Purpose) -> impl Iterator<Item = &UnderWay> {
        self.0.iter().filter(move |call| call.purpose == purpose)
    }

    /// What the calls under way said.
    pub(crate) fn told_mut(&mut self) -> impl Iterator<Item = &mut Told> {
        self.0.iter_mut().flat_map(|call| &mut call.told)
    }

    /// When the fetch of rules under way began.
    pub(crate) fn fetching_since(&self) -> Option<Time> {
        let is_fetch = |call: &&UnderWay| matches!(call.purpose, Purpose::Rules(_));
        self.0.iter().find(is_fetch).map(|call| call.sent_at)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.0.binary_search_by_key(&number, |call| call.number).ok()
    }
}
