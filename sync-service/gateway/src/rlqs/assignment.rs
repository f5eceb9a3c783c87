//! Assignments for clients, expressed in the strategies that Envoy's filter `rate_limit_quota` understands.
//!
//! The filter handles fill intervals and times to live in whole seconds. When a token bucket replaces a different token
//! bucket, it starts with the same fraction filled. When it replaces another strategy, it starts full.

use std::time::Duration;

use crate::proto::envoy::service::rate_limit_quota::v3::BucketId;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Action, QuotaAssignmentAction,
};
use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use crate::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};

/// Time for which an assignment is valid: four times as long as Envoy takes to report, or to reconnect.
pub(super) const TIME_TO_LIVE: Duration = Duration::from_secs(20);

/// Fill interval of a bucket in seconds. Rates are thus expressed in thousandths of a token per second.
const FILL_S: u32 = 1_000;
/// A year in seconds. Envoy fills no bucket more slowly than that.
const NEVER_S: u32 = 365 * 86_400;
/// Relative change of a bucket above which a new assignment is sent.
const CHANGE: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    Everything,
    Nothing,
    /// Allow requests by a token bucket.
    Refilling {
        most: u32,
        /// Tokens per thousand seconds.
        refill: u32,
    },
    /// Allow this number of requests. It replaces what is left of the previous assignment.
    Tokens(u32),
}

impl Assignment {
    /// Token bucket with `rate` requests per second and `burst` requests at once.
    pub(super) fn refilling(rate: f64, burst: f64) -> Self {
        Self::Refilling { most: whole(burst), refill: whole(rate * f64::from(FILL_S)) }
    }

    /// True if the difference from `last` is negligible.
    pub(super) fn is_like(&self, last: &Self) -> bool {
        let is_near = |a: u32, b: u32| f64::from(a.abs_diff(b)) <= CHANGE * f64::from(b);
        match (self, last) {
            (Self::Refilling { most, refill }, Self::Refilling { most: last_most, refill: last_refill }) => {
                is_near(*most, *last_most) && is_near(*refill, *last_refill)
            }
            (Self::Tokens(_), _) => false,
            _ => self == last,
        }
    }

    /// Protocol messages that assign it to the bucket of this name.
    pub(super) fn actions(self, bucket: &BucketId) -> Vec<BucketAction> {
        let blanket = |rule: BlanketRule| action(bucket, Strategy::BlanketRule(rule.into()));
        let filled = |most, refill, seconds| {
            let fill_interval = Some(prost_types::Duration { seconds: i64::from(seconds), nanos: 0 });
            let filled = TokenBucket { max_tokens: most, tokens_per_fill: Some(refill), fill_interval };
            action(bucket, Strategy::TokenBucket(filled))
        };
        match self {
            Self::Everything => vec![blanket(BlanketRule::AllowAll)],
            Self::Nothing => vec![blanket(BlanketRule::DenyAll)],
            Self::Refilling { most, refill } => vec![filled(most, refill, FILL_S)],
            // The first message discards tokens of the previous assignment, so that the bucket then starts full.
            Self::Tokens(tokens) => vec![blanket(BlanketRule::DenyAll), filled(tokens, 1, NEVER_S)],
        }
    }
}

/// Message that makes the client forget the bucket.
pub(super) fn abandon(bucket: &BucketId) -> BucketAction {
    let action = Action::AbandonAction(AbandonAction {});
    BucketAction { bucket_id: Some(bucket.clone()), bucket_action: Some(action) }
}

fn action(bucket: &BucketId, strategy: Strategy) -> BucketAction {
    let lives = prost_types::Duration { seconds: TIME_TO_LIVE.as_secs().cast_signed(), nanos: 0 };
    let assigned = QuotaAssignmentAction {
        assignment_time_to_live: Some(lives),
        rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
    };
    let action = Action::QuotaAssignmentAction(assigned);
    BucketAction { bucket_id: Some(bucket.clone()), bucket_action: Some(action) }
}

/// Rounds to at least 1, because a client could give 0 another meaning.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within 1 and the most")]
fn whole(figure: f64) -> u32 {
    figure.clamp(1.0, f64::from(u32::MAX)) as u32
}
