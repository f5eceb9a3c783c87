//! The decision for a request, with the quota status for its client.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::RuleIndex;
use crate::algorithms::{BucketStatus, Receipt};
use crate::sync::Consume;
use crate::table::EntryPlace;
use weir_protocol::messages::Report;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyValue;

/// The kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// Let the request through.
    Allow,
    /// Answer in place of the upstream: a rule has no tokens for it.
    Limit,
    /// Answer in place of the upstream: the POP is offline, and a rule fails closed.
    Deny,
    /// Answer in place of the upstream: the request is on the rule set's `deny` list.
    Block,
    /// Acquire a strict rule's tokens from weir-sync first, then decide again.
    Wait,
}

/// The decision for a request, with everything the host needs to carry it out.
#[derive(Debug)]
pub enum Decision {
    /// Let the request through.
    Allow {
        /// The strictest of the rules that counted the request, and its quota status; none if no rule counted
        /// it.
        strictest: Option<(RuleIndex, BucketStatus)>,
        /// The quota status for the client; none if no rule asks for it.
        status: Option<Box<QuotaStatus>>,
        /// Rules in shadow that would have refused the request.
        shadow: Box<[RuleIndex]>,
        /// Nanoseconds to hold the request until its turn in a leaky bucket.
        hold_ns: u64,
        /// Actions for the end of the request; each is to be done once.
        afterwards: Vec<EndAction>,
    },
    /// Answer in place of the upstream: a rule refuses the request.
    Refuse {
        /// The reason for the refusal.
        reason: LimitReason,
        /// The refusing rule and the quota status for the client.
        status: QuotaStatus,
        /// Seconds to add to `Retry-After`, so that refused clients do not all return at once.
        jitter_s: u32,
    },
    /// Answer in place of the upstream: the request is on the rule set's `deny` list.
    Block,
    /// A strict rule's tokens must be acquired first. Send this report to weir-sync, pass its reply to
    /// [`crate::limiter::Limiter::acquired`] (or a failure to `acquire_failed`), and decide again.
    Wait(Box<Report>),
    /// A strict rule's tokens must be consumed from the budget first. Pass the budget's answer to the engine,
    /// which decides again.
    Take(Box<Consume>),
}

/// The quota status that is sent to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The strictest rule.
    pub rule: RuleIndex,
    /// The status of the client's bucket under that rule.
    pub bucket: BucketStatus,
    /// Contents besides that rule's own policy; none in most cases.
    pub beside: Option<Box<Beside>>,
}

impl QuotaStatus {
    /// The part of the request's key that may be published; empty if there is none.
    pub fn partition(&self) -> &[u8] {
        self.beside.as_ref().map_or(&[], |beside| &beside.partition)
    }

    /// The other rules that counted the request and publish their policies, in rule order.
    pub fn others(&self) -> &[Policy] {
        self.beside.as_ref().map_or(&[], |beside| &beside.others)
    }
}

/// The rare parts of a quota status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The part of the request's key that may be published; empty if there is none.
    pub partition: Vec<u8>,
    /// The other rules that counted the request and publish their policies, in rule order.
    pub others: Vec<Policy>,
}

/// A rule that counted a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The rule.
    pub rule: RuleIndex,
    /// The part of the request's key that may be disclosed: the part that a rule with `log_key` logs. Empty
    /// if there is none.
    pub partition: Vec<u8>,
}

/// The reason why a rule refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReason {
    /// The rule has no tokens for it.
    Limit,
    /// A penalty or an operator has banned the key.
    Ban,
    /// The POP is offline, and the rule fails closed.
    Deny,
}

impl Decision {
    /// The kind of this decision.
    pub fn outcome(&self) -> DecisionKind {
        match self {
            Self::Allow { .. } => DecisionKind::Allow,
            Self::Refuse { reason: LimitReason::Limit | LimitReason::Ban, .. } => DecisionKind::Limit,
            Self::Refuse { reason: LimitReason::Deny, .. } => DecisionKind::Deny,
            Self::Block => DecisionKind::Block,
            Self::Wait(_) | Self::Take(_) => DecisionKind::Wait,
        }
    }

    /// The rule that decided, and the client's quota status under it. None if no rule decided, and none while
    /// tokens are being acquired.
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
    /// As in [`Decision::Allow`].
    Allow {
        strictest: Option<(RuleIndex, BucketStatus)>,
        hold_ns: u64,
    },
    Refuse(LimitReason, RuleIndex, BucketStatus),
    Block,
    /// Acquire a strict rule's tokens first.
    Wait,
}

impl PendingDecision {
    /// Allows a request that no rule counted.
    pub(crate) const UNCOUNTED: Self = Self::Allow { strictest: None, hold_ns: 0 };
}

/// An action to be done once, when a request that was let through ends.
///
/// It carries its own bucket and algorithm, so it works even if the rule set has been replaced since.
#[derive(Debug)]
pub struct EndAction {
    /// The action.
    pub what: EndActionKind,
    pub(crate) algorithm: Algorithm,
    pub(crate) place: EntryPlace,
    pub(crate) value: KeyValue,
    /// Salt of the rule, which identifies it in any rule set.
    pub(crate) salt: u64,
}

/// The action at the end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndActionKind {
    /// Release what the request holds, by [`crate::limiter::Limiter::release`].
    Release {
        /// Receipt of what was acquired.
        receipt: Receipt,
        /// The number acquired.
        cost: u32,
    },
    /// Charge what the request cost, by [`crate::limiter::Limiter::charge`].
    Charge {
        /// The source of the cost in the response; none if the host states the cost.
        after: Option<Arc<After>>,
        /// Tokens that the request reserved beforehand.
        reserved: ReservedTokens,
    },
}

/// Tokens that a request holds until its cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedTokens {
    /// The number of tokens.
    pub tokens: u32,
    /// Rate divisor at the time: the bucket was charged this many times `tokens`.
    pub(crate) divisor: u32,
    /// Receipt to give them back with; without one they stay taken.
    pub(crate) receipt: Option<Receipt>,
    /// Epoch under which a strict rule's request acquired them for itself alone.
    pub(crate) epoch: Option<u32>,
}

impl ReservedTokens {
    /// No reservation.
    pub(crate) const NOTHING: Self = Self { tokens: 0, divisor: 1, receipt: None, epoch: None };
}
