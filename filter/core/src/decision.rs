//! The outcome for a request, and what the client may be told of it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bucket::Bucket;
use crate::limiter::Afterwards;
use weir_wire::messages::Report;
use weir_wire::quota::Quota;
use weir_wire::time::Time;

/// The outcome for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Let it through.
    Allow,
    /// Answer for the upstream: a rule has no token for it.
    Limit,
    /// Answer for the upstream: the POP is out of touch with weir-sync, and a rule fails closed.
    Deny,
    /// Answer for the upstream: the request meets the rule set's list of those to refuse.
    Block,
    /// A strict rule has to be paid for first: ask weir-sync, and decide again.
    Wait,
}

/// The outcome for a request, and all that follows from it.
#[derive(Debug)]
pub enum Decision {
    /// Let it through.
    Allow {
        /// The strictest of the rules that counted the request, and how its client stands with it; none if no rule did.
        strictest: Option<(u16, Standing)>,
        /// For how long to hold it until its turn in a leaky bucket, in nanoseconds.
        hold_ns: u64,
        /// What is to be done when it ends, each once.
        afterwards: Vec<Afterwards>,
    },
    /// Answer for the upstream: a rule refuses it.
    Refuse {
        /// Why.
        reason: Reason,
        /// The rule.
        rule: u16,
        /// How its client stands with that.
        standing: Standing,
        /// By how many seconds to raise its `Retry-After`, so that not all refused clients return at once.
        jitter_s: u32,
    },
    /// Answer for the upstream: the request meets the rule set's list of those to refuse.
    Block,
    /// A strict rule has to be paid for first: send this report to weir-sync, take in what comes of it by
    /// [`crate::limiter::Limiter::drawn`] or one of the others there, and decide again.
    Wait(Box<Report>),
}

/// Why a rule refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has no token for it.
    Limit,
    /// The POP is out of touch with weir-sync, and the rule fails closed.
    Deny,
}

impl Decision {
    /// The outcome alone.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Allow { .. } => Outcome::Allow,
            Self::Refuse { reason: Reason::Limit, .. } => Outcome::Limit,
            Self::Refuse { reason: Reason::Deny, .. } => Outcome::Deny,
            Self::Block => Outcome::Block,
            Self::Wait(_) => Outcome::Wait,
        }
    }

    /// The rule that the client is told of, and how it stands with that; none where no rule made the decision.
    pub fn strictest(&self) -> Option<(u16, Standing)> {
        match self {
            Self::Allow { strictest, .. } => *strictest,
            Self::Refuse { rule, standing, .. } => Some((*rule, *standing)),
            Self::Block | Self::Wait(_) => None,
        }
    }
}

/// How a client stands with a rule after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whole tokens left.
    pub remaining: u32,
    /// Nanoseconds until there is one more token than now; zero when the bucket is full.
    pub more_ns: u64,
    /// Nanoseconds until the bucket is full.
    pub full_ns: u64,
}

impl Standing {
    /// After a request that was let through.
    pub(crate) fn allowed(bucket: Bucket, quota: &Quota, now: Time) -> Self {
        let full_ns = bucket.fill_ns(now);
        let more_ns = match full_ns % quota.token_ns() {
            0 => full_ns.min(quota.token_ns()),
            part => part,
        };
        Self { remaining: bucket.tokens(quota, now), more_ns, full_ns }
    }

    /// After a request that was refused: nothing before `wait_ns` have passed.
    pub(crate) fn refused(wait_ns: u64, full_ns: u64) -> Self {
        Self { remaining: 0, more_ns: wait_ns, full_ns: full_ns.max(wait_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Take;
    use weir_wire::quota::{Period, Rate};

    #[test]
    fn the_next_token_is_told_to_the_nanosecond() {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 3).unwrap();
        let t0 = Time::from_nanos(1_000);
        let Take::Taken(bucket) = Bucket::FULL.take(&quota, 1, t0) else { panic!("full") };
        let standing = Standing::allowed(bucket, &quota, t0);
        assert_eq!(standing, Standing { remaining: 2, more_ns: 100_000_000, full_ns: 100_000_000 });
        let standing = Standing::allowed(bucket, &quota, t0 + 30_000_000);
        assert_eq!(standing, Standing { remaining: 2, more_ns: 70_000_000, full_ns: 70_000_000 });
        let full = Standing::allowed(bucket, &quota, t0 + 100_000_000);
        assert_eq!(full, Standing { remaining: 3, more_ns: 0, full_ns: 0 });
    }
}
