//! The request that is being checked: its mode, its hits, and the tokens acquired for it.

use alloc::vec::Vec;

use crate::algorithms::{Admitted, BucketStatus};
use crate::check::decision::EndAction;
use crate::check::terms::KeyId;
use crate::key::KeyHash;
use crate::sync::{AcquiredTokens, ConsumeReply};
use crate::table::slot::{Slot, Tag};
use crate::table::{EntryPlace, LoadedSlot};
use crate::{NEXT_TO_STORE, RuleIndex};
use weir_rules::matching::Bits;
use weir_rules::request::Values;

/// The request that is being checked, or the last one.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub(crate) struct CurrentRequest {
    /// The POP's connectivity.
    pub(crate) connectivity: ConnectivityReading,
    /// Tokens that the last call acquired for its own request.
    pub(crate) acquired: Vec<AcquiredTokens>,
    /// Keys that the last call got no answer for from the store. Its request decides them as offline.
    pub(crate) in_vain: Vec<Tag>,
    /// The budget's answer, if the request consumes, and the tag of its key.
    pub(crate) consumed: Option<(Tag, ConsumeReply)>,
    /// True if the request can be held until its turn.
    pub(crate) may_hold: bool,
    /// True for a peek: its refusal counts for nothing, and rules in shadow are not evaluated.
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
        connectivity: ConnectivityReading { is_lost: true, is_lost_for_strict: true, acquired: AcquireState::NotYet },
        acquired: Vec::new(),
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
        let own = self.acquired.iter().find(|tokens| tokens.tag == tag && tokens.tokens > 0);
        own.map(|acquired| acquired.reported.epoch)
    }

    /// The budget's answer for the key `tag`, if the request consumed.
    pub(crate) fn taken_for(&self, tag: Tag) -> Option<ConsumeReply> {
        self.consumed.filter(|(of, _)| NEXT_TO_STORE && *of == tag).map(|(_, taken)| taken)
    }

    /// True if the lease of the acquired tokens had ended on arrival, so that the request must acquire again.
    pub(crate) fn is_acquire_over(&self) -> bool {
        self.acquired.iter().any(|tokens| tokens.is_over)
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

// Hits, and buffers that are reused for every request.

/// Buffers that are reused for every request.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) values: Values,
    /// Conditions that the request may meet.
    pub(crate) conditions: Bits,
    /// Indices of the matching rules.
    pub(crate) met: Vec<u16>,
    /// Matching rules that are tiers without a limit.
    pub(crate) unlimited: Vec<RuleIndex>,
    pub(crate) hits: Vec<Hit>,
    /// Hits of rules that are not enforced for the request's key.
    pub(crate) shadow: Vec<Hit>,
    pub(crate) loaded: Vec<LoadedSlot>,
    /// Spare slots to read into.
    pub(crate) rooms: Vec<Slot>,
}

/// A rule that counts the request, and the place of the key's bucket.
pub(crate) struct Hit {
    pub(crate) rule: RuleIndex,
    pub(crate) key: KeyId,
    pub(crate) tag: Tag,
    pub(crate) slot: u32,
    /// Tokens that the request costs.
    pub(crate) cost: u32,
    /// True if the rule is in shadow for this key.
    pub(crate) is_shadow: bool,
    /// True if the watch list has counted this request.
    pub(crate) watched: bool,
    /// True if the key's admit ratio was applied to this request.
    pub(crate) thinned: bool,
    pub(crate) result: HitResult,
}

impl Hit {
    pub(crate) fn of(rule: RuleIndex, key: KeyId, hash: KeyHash, salt: u64, slot_count: u32, cost: u32) -> Self {
        Self {
            rule,
            key,
            tag: Tag::of_key(hash.tag, salt),
            slot: slot_of(hash.place, slot_count),
            cost,
            is_shadow: false,
            watched: false,
            thinned: false,
            result: HitResult::NOT_YET,
        }
    }

    pub(crate) fn place(&self) -> EntryPlace {
        EntryPlace { tag: self.tag, slot: self.slot }
    }
}

/// Maps hashes evenly to slots without a division (Lemire, "Fast random integer generation in an interval",
/// 2019, section 3).
pub(crate) fn slot_of(place: u64, count: u32) -> u32 {
    let spread = (u128::from(place) * u128::from(count)) >> 64;
    u32::try_from(spread).unwrap_or(0)
}

/// The decision on a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitDecision {
    /// The tokens are there; carries the quota status without them.
    Fits(BucketStatus),
    /// The bucket has too few tokens.
    Short { wait_ns: u64 },
    /// The key's admit ratio refuses this request.
    Thinned { wait_ns: u64 },
    /// The key is banned, by the rule's penalty or by an operator.
    Banned { wait_ns: u64 },
    /// The rule is strict, and the POP holds too few tokens that the budget was debited for.
    Unpaid,
    /// The rule fails closed, and the POP is offline.
    Denied,
}

/// The result of evaluating a hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitResult {
    pub(crate) decision: HitDecision,
    /// Tag of the bucket or cells: the key's own, or that of an overflow cell.
    pub(crate) tag: Tag,
    /// True if debts or requests of other keys count against this bucket or cell.
    pub(crate) is_shared: bool,
    /// Number of spent entries that were dropped to make room.
    pub(crate) evicted: u32,
    /// Record of the tokens taken, if they are in cells or reserved.
    pub(crate) taken: Option<Admitted>,
}

impl HitResult {
    pub(crate) const NOT_YET: Self = Self::refused(HitDecision::Unpaid, Tag::of_key(0, 0));

    /// A decision with nothing taken.
    pub(crate) const fn refused(decision: HitDecision, tag: Tag) -> Self {
        Self { decision, tag, is_shared: false, evicted: 0, taken: None }
    }
}
