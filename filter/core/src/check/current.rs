//! The request that is being checked: its mode, and what was found out or acquired for it.

use alloc::vec::Vec;

use crate::check::decision::EndAction;
use crate::sync::{AcquiredTokens, ConsumeReply};
use crate::table::slot::Tag;
use crate::{NEXT_TO_STORE, RuleIndex};

/// The request that is being checked, or the last one.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub(crate) struct CurrentRequest {
    /// The POP's connectivity.
    pub(crate) touch: ConnectivityReading,
    /// Tokens that the last call acquired for its own request.
    pub(crate) in_hand: Vec<AcquiredTokens>,
    /// Keys that the last call got no answer for from the store. Its request decides them as offline.
    pub(crate) in_vain: Vec<Tag>,
    /// The budget's answer, if the request consumes, and the tag of its key.
    pub(crate) consumed: Option<(Tag, ConsumeReply)>,
    /// True if the request can be held until its turn.
    pub(crate) may_hold: bool,
    /// True for a peek: its refusal counts for nothing, and rules in shadow are not judged.
    pub(crate) only_asks: bool,
    /// True while past requests are booked: their refusals count for nothing.
    pub(crate) is_booking: bool,
    /// True if it reserves what it takes, because the host states its cost later.
    pub(crate) is_reserving: bool,
    /// True if any request may do so. A refused key may then have tokens again at any time.
    pub(crate) may_reserve: bool,
    pub(crate) afterwards: Vec<EndAction>,
    /// Rules in shadow that would refuse it.
    pub(crate) would_refuse: Vec<RuleIndex>,
}

impl CurrentRequest {
    /// The state before the first request.
    pub(crate) const NONE: Self = Self {
        touch: ConnectivityReading {
            is_lost: true,
            is_lost_for_strict: true,
            acquired: AcquireState::NotYet,
        },
        in_hand: Vec::new(),
        in_vain: Vec::new(),
        consumed: None,
        may_hold: true,
        only_asks: false,
        is_booking: false,
        is_reserving: false,
        may_reserve: false,
        afterwards: Vec::new(),
        would_refuse: Vec::new(),
    };

    /// The epoch that it acquired for itself under the key `tag`.
    pub(crate) fn acquired_for(&self, tag: Tag) -> Option<u32> {
        let own = self.in_hand.iter().find(|in_hand| in_hand.tag == tag && in_hand.tokens > 0);
        own.map(|acquired| acquired.told.epoch)
    }

    /// The budget's answer for the key `tag`, if the request consumed.
    pub(crate) fn taken_for(&self, tag: Tag) -> Option<ConsumeReply> {
        self.consumed.filter(|(of, _)| NEXT_TO_STORE && *of == tag).map(|(_, taken)| taken)
    }

    /// True if the lease of the acquired tokens had ended on arrival, so that the request must acquire again.
    pub(crate) fn is_acquire_over(&self) -> bool {
        self.in_hand.iter().any(|in_hand| in_hand.is_over)
    }
}

/// Progress of acquiring a strict rule's tokens for the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireState {
    NotYet,
    /// The lease had ended when the reply arrived: the request acquires again.
    Over,
    Answered,
    /// weir-sync did not reply, or has no store.
    InVain,
}

/// The POP's connectivity, read once in each decision that reads the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectivityReading {
    /// Bounded rules apply their `on_sync_loss`.
    pub(crate) is_lost: bool,
    /// Strict rules apply their `on_sync_loss`.
    pub(crate) is_lost_for_strict: bool,
    pub(crate) acquired: AcquireState,
}

impl ConnectivityReading {
    /// True if the current request may acquire tokens.
    pub(crate) fn may_acquire(self) -> bool {
        matches!(self.acquired, AcquireState::NotYet | AcquireState::Over)
    }
}
