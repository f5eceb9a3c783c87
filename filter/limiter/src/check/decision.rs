//! The decision for a request, with the quota status for its client; and the state of the request being checked: its
//! mode, its hits, and the tokens acquired for it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::algorithms::{Admitted, BucketStatus, Receipt};
use crate::check::terms::KeyId;
use crate::sync::{AcquiredTokens, Consume, ConsumeReply};
use crate::table::slot::Tag;
use crate::table::{EntryPlace, KeyHash, LoadedSlot};
use crate::{NEXT_TO_STORE, RuleIndex};
use weir_protocol::messages::Report;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyValue;
use weir_rules::matching::Bits;
use weir_rules::request::Values;

/// Kind of a decision. All but the first and the last answer the client in place of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    Allow,
    Limit,
    /// A rule fails closed while the POP is offline.
    Deny,
    /// The request is on the rule set's `deny` list.
    Block,
    /// A strict rule's tokens must be acquired before the request is decided again.
    Wait,
}

/// The decision for a request, with everything the host needs to carry it out.
#[derive(Debug)]
pub enum Decision {
    Allow {
        /// The strictest of the rules that counted the request, if any, and its quota status.
        strictest: Option<(RuleIndex, BucketStatus)>,
        /// The quota status for the client; `None` if no rule publishes its status.
        status: Option<Box<QuotaStatus>>,
        /// Rules in shadow that would have refused the request.
        shadow: Box<[RuleIndex]>,
        /// Nanoseconds to hold the request until its turn in a leaky bucket.
        hold_ns: u64,
        /// Actions for the end of the request, each to be done once.
        afterwards: Vec<EndAction>,
    },
    /// A rule refuses the request: answer in place of the upstream.
    Refuse {
        reason: LimitReason,
        /// The refusing rule and the quota status for the client.
        status: QuotaStatus,
        /// Seconds to add to `Retry-After`, so that refused clients do not all return at once.
        jitter_s: u32,
    },
    /// The request is on the `deny` list: answer in place of the upstream.
    Block,
    /// A strict rule's tokens must be acquired first. Send this report to weir-sync, pass its reply to
    /// [`crate::limiter::Limiter::acquired`] (or a failure to `acquire_failed`), and decide again.
    Wait(Box<Report>),
    /// A strict rule's tokens must be consumed first. Pass the budget's reply to the engine, which decides again.
    Take(Box<Consume>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The strictest rule.
    pub rule: RuleIndex,
    /// The status of the client's bucket under that rule.
    pub bucket: BucketStatus,
    /// Contents beyond that rule's own policy; mostly `None`.
    pub beside: Option<Box<Beside>>,
}

impl QuotaStatus {
    pub fn partition(&self) -> &[u8] {
        self.beside.as_ref().map_or(&[], |beside| &beside.partition)
    }

    pub fn others(&self) -> &[Policy] {
        self.beside.as_ref().map_or(&[], |beside| &beside.others)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The part of the request's key that may be published; empty if there is none.
    pub partition: Vec<u8>,
    /// The other rules that counted the request and publish their policies, in rule order.
    pub others: Vec<Policy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub rule: RuleIndex,
    /// The part of its key that may be published, which is the part that a rule with `log_key` logs; may be empty.
    pub partition: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReason {
    Limit,
    /// A penalty or an operator has banned the key.
    Ban,
    Deny,
}

impl Decision {
    pub fn outcome(&self) -> DecisionKind {
        match self {
            Self::Allow { .. } => DecisionKind::Allow,
            Self::Refuse { reason: LimitReason::Limit | LimitReason::Ban, .. } => DecisionKind::Limit,
            Self::Refuse { reason: LimitReason::Deny, .. } => DecisionKind::Deny,
            Self::Block => DecisionKind::Block,
            Self::Wait(_) | Self::Take(_) => DecisionKind::Wait,
        }
    }

    /// The rule that decided, if any, and the client's quota status under it.
    pub fn strictest(&self) -> Option<(RuleIndex, BucketStatus)> {
        match self {
            Self::Allow { strictest, .. } => *strictest,
            Self::Refuse { status, .. } => Some((status.rule, status.bucket)),
            Self::Block | Self::Wait(_) | Self::Take(_) => None,
        }
    }
}

/// A decision before its quota status is made. The steps pass it by value, so it is small.
#[derive(Clone, Copy)]
pub(crate) enum PendingDecision {
    Allow { strictest: Option<(RuleIndex, BucketStatus)>, hold_ns: u64 },
    Refuse(LimitReason, RuleIndex, BucketStatus),
    Block,
    Wait,
}

impl PendingDecision {
    pub(crate) const UNCOUNTED: Self = Self::Allow { strictest: None, hold_ns: 0 };
}

/// An action to be done once, when an admitted request ends. It works even if the rules were replaced since.
#[derive(Debug)]
pub struct EndAction {
    pub(crate) what: EndActionKind,
    pub(crate) algorithm: Algorithm,
    pub(crate) place: EntryPlace,
    pub(crate) value: KeyValue,
    /// Salt of the rule, which identifies it in any rule set.
    pub(crate) salt: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndActionKind {
    /// Release `cost` places, by [`crate::limiter::Limiter::release`].
    Release { receipt: Receipt, cost: u32 },
    /// Charge the request's cost, by [`crate::limiter::Limiter::charge`].
    Charge {
        /// Source of the cost in the response; `None` if the host states the cost.
        after: Option<Arc<After>>,
        reserved: ReservedTokens,
    },
}

/// Tokens that a request holds until its cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReservedTokens {
    pub(crate) tokens: u32,
    /// Rate divisor at the time: the bucket was charged this many times `tokens`.
    pub(crate) divisor: u32,
    /// Receipt to give the tokens back with; without one they stay taken.
    pub(crate) receipt: Option<Receipt>,
    /// Epoch under which a strict rule's request acquired the tokens for itself alone.
    pub(crate) epoch: Option<u32>,
}

impl ReservedTokens {
    pub(crate) const NOTHING: Self = Self { tokens: 0, divisor: 1, receipt: None, epoch: None };
}

/// The request being checked, or the last one.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub(crate) struct CurrentRequest {
    pub(crate) connectivity: ConnectivityReading,
    /// Tokens that the last call acquired for its own request.
    pub(crate) acquired: Vec<AcquiredTokens>,
    /// Keys for which the store did not answer the last call. The request treats them as offline.
    pub(crate) in_vain: Vec<Tag>,
    /// Tag of the key whose tokens the request consumes, and the budget's reply; `None` if it consumes none.
    pub(crate) consumed: Option<(Tag, ConsumeReply)>,
    /// True if the request can be held until its turn.
    pub(crate) may_hold: bool,
    /// True for a peek: its refusal is not counted, and rules in shadow are not evaluated.
    pub(crate) only_asks: bool,
    /// True while past requests are booked: their refusals are not counted.
    pub(crate) is_booking: bool,
    /// True if the request reserves the tokens it takes, because the host states its cost later.
    pub(crate) is_reserving: bool,
    /// True if any request may reserve tokens. A refused key may then have tokens again at any time.
    pub(crate) may_reserve: bool,
    pub(crate) afterwards: Vec<EndAction>,
    pub(crate) would_refuse: Vec<RuleIndex>,
}

impl CurrentRequest {
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

    /// The epoch that the request acquired for itself under the key `tag`.
    pub(crate) fn acquired_for(&self, tag: Tag) -> Option<u32> {
        let own = self.acquired.iter().find(|tokens| tokens.tag == tag && tokens.tokens > 0);
        own.map(|acquired| acquired.reported.epoch)
    }

    pub(crate) fn taken_for(&self, tag: Tag) -> Option<ConsumeReply> {
        self.consumed.filter(|(of, _)| NEXT_TO_STORE && *of == tag).map(|(_, taken)| taken)
    }
}

/// Progress of acquiring tokens for the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireState {
    NotYet,
    /// The lease had ended when the reply arrived; the request acquires again.
    Over,
    Answered,
    /// weir-sync did not reply, or has no store.
    InVain,
}

/// The POP's connectivity, read once in each decision that reads the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectivityReading {
    /// True if bounded rules apply their `on_sync_loss`.
    pub(crate) is_lost: bool,
    /// True if strict rules apply their `on_sync_loss`.
    pub(crate) is_lost_for_strict: bool,
    pub(crate) acquired: AcquireState,
}

impl ConnectivityReading {
    pub(crate) fn may_acquire(self) -> bool {
        matches!(self.acquired, AcquireState::NotYet | AcquireState::Over)
    }
}

/// Buffers reused for every request.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) values: Values,
    pub(crate) conditions: Bits,
    pub(crate) met: Vec<u16>,
    /// Matching rules that are tiers without a limit.
    pub(crate) unlimited: Vec<RuleIndex>,
    pub(crate) hits: Vec<Hit>,
    /// Hits of rules that are not enforced for the request's key.
    pub(crate) shadow: Vec<Hit>,
    pub(crate) loaded: Vec<LoadedSlot>,
}

/// A rule that counts the request, and the place of the key's bucket.
pub(crate) struct Hit {
    pub(crate) rule: RuleIndex,
    pub(crate) key: KeyId,
    pub(crate) tag: Tag,
    pub(crate) slot: u32,
    pub(crate) cost: u32,
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
            slot: hash.slot(slot_count),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitDecision {
    /// Enough tokens; contains the quota status without them.
    Fits(BucketStatus),
    Short {
        wait_ns: u64,
    },
    /// The key's admit ratio refuses this request.
    Thinned {
        wait_ns: u64,
    },
    /// The key is banned by the rule's penalty or an operator.
    Banned {
        wait_ns: u64,
    },
    /// The rule is strict, and the POP holds too few debited tokens.
    Unpaid,
    /// The rule fails closed, and the POP is offline.
    Denied,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HitResult {
    pub(crate) decision: HitDecision,
    /// Tag of the bucket or cells: the key's own, or that of an overflow cell.
    pub(crate) tag: Tag,
    /// True if other keys' debts or requests count against this bucket or cell.
    pub(crate) is_shared: bool,
    /// Number of spent entries dropped to make room.
    pub(crate) evicted: u32,
    /// Record of the tokens taken, if these are in cells or reserved.
    pub(crate) taken: Option<Admitted>,
}

impl HitResult {
    pub(crate) const NOT_YET: Self = Self::refused(HitDecision::Unpaid, Tag::of_key(0, 0));

    pub(crate) const fn refused(decision: HitDecision, tag: Tag) -> Self {
        Self { decision, tag, is_shared: false, evicted: 0, taken: None }
    }
}
