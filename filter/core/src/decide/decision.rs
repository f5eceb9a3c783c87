//! The outcome for a request, and what the client may be told about it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::afterwards::Afterwards;
use crate::RuleIndex;
use crate::buckets::Standing;
#[cfg(feature = "takes")]
use crate::fleet::Take;
use weir_wire::messages::Report;

/// The outcome for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Let it through.
    Allow,
    /// Answer in place of the upstream: a rule has no token for it.
    Limit,
    /// Answer in place of the upstream: the POP is out of touch with weir-sync, and a rule fails closed.
    Deny,
    /// Answer in place of the upstream: the request is on the rule set's `deny` list.
    Block,
    /// A strict rule's tokens must be paid for first: ask weir-sync, and decide again.
    Wait,
}

/// The outcome for a request, and all that follows from it.
#[derive(Debug)]
pub enum Decision {
    /// Let it through.
    Allow {
        /// The strictest of the rules that counted the request, and how its client stands with it; none if no rule did.
        strictest: Option<(RuleIndex, Standing)>,
        /// What its client is told, if a rule says so.
        told: Option<QuotaStatus>,
        /// Rules in shadow that would have refused it.
        shadow: Vec<RuleIndex>,
        /// How long to hold it until its turn in a leaky bucket, in nanoseconds.
        hold_ns: u64,
        /// What to do when it ends, each once.
        afterwards: Vec<Afterwards>,
    },
    /// Answer in place of the upstream: a rule refuses it.
    Refuse {
        /// Why.
        reason: Reason,
        /// The rule, and what the client is told.
        status: QuotaStatus,
        /// Seconds to add to its `Retry-After`, so that refused clients do not all return at once.
        jitter_s: u32,
    },
    /// Answer in place of the upstream: the request is on the rule set's `deny` list.
    Block,
    /// A strict rule's tokens must be paid for first: send this report to weir-sync, give its answer to
    /// [`crate::limiter::Limiter::drawn`] (or a failure to `draw_failed`), and decide again.
    Wait(Box<Report>),
    /// A strict rule's tokens must be taken first: have the budget give them, say so to the edge, which decides again.
    #[cfg(feature = "takes")]
    Take(Box<Take>),
}

/// The quota status that a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The rule.
    pub of: Policy,
    /// How the client stands with it.
    pub standing: Standing,
    /// The other rules that counted the request and tell their policies, in their order.
    pub others: Vec<Policy>,
}

/// A rule that counted a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The rule.
    pub rule: RuleIndex,
    /// The part of the request's key that may be told: what a rule with `log_key` logs; empty if there is none.
    pub partition: Vec<u8>,
}

/// Why a rule refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has no token for it.
    Limit,
    /// A penalty, or an operator, has banned the key.
    Ban,
    /// The POP is out of touch with weir-sync, and the rule fails closed.
    Deny,
}

impl Decision {
    /// The outcome alone.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Allow { .. } => Outcome::Allow,
            Self::Refuse { reason: Reason::Limit | Reason::Ban, .. } => Outcome::Limit,
            Self::Refuse { reason: Reason::Deny, .. } => Outcome::Deny,
            Self::Block => Outcome::Block,
            Self::Wait(_) => Outcome::Wait,
            #[cfg(feature = "takes")]
            Self::Take(_) => Outcome::Wait,
        }
    }

    /// The rule that the client is told about, and how it stands with that; none if no rule made the decision.
    pub fn strictest(&self) -> Option<(RuleIndex, Standing)> {
        match self {
            Self::Allow { strictest, .. } => *strictest,
            Self::Refuse { status, .. } => Some((status.of.rule, status.standing)),
            Self::Block | Self::Wait(_) => None,
            #[cfg(feature = "takes")]
            Self::Take(_) => None,
        }
    }
}
