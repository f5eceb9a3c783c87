//! What a client is told that a bucket may do, in what Envoy's filter `rate_limit_quota` understands.
//!
//! It counts fill intervals and times to live in whole seconds. A token bucket that differs from the one before begins as full,
//! in parts, as that was; one that is told after another strategy begins full.

use std::time::Duration;

use crate::gateway::proto::envoy::service::rate_limit_quota::v3::BucketId;
use crate::gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Action, QuotaAssignmentAction,
};
use crate::gateway::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use crate::gateway::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};

/// How long an assignment holds if nothing more is heard: four times what Envoy takes to report, and to come back.
pub(super) const TIME_TO_LIVE: Duration = Duration::from_secs(20);

/// In how many seconds a bucket gets what it is said to get: so a thousandth of a token a second can be said.
const FILL_S: u32 = 1_000;
/// A year: slower than that, Envoy fills no bucket.
const NEVER_S: u32 = 365 * 86_400;
/// A bucket is told anew if it changes by more than this part.
const CHANGE: f64 = 0.05;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    /// Let everything through.
    Everything,
    /// Refuse everything.
    Nothing,
    /// Let through what a bucket has, which refills.
    Refilling {
        /// The most that it holds.
        most: u32,
        /// What it gets in a thousand seconds.
        refill: u32,
    },
    /// Let so many more through, in place of what it was told before.
    Tokens(u32),
}

impl Assignment {
    /// So many requests a second, and at once.
    pub(super) fn refilling(rate: f64, burst: f64) -> Self {
        Self::Refilling { most: whole(burst), refill: whole(rate * f64::from(FILL_S)) }
    }

    /// Whether it is hardly another one than `told`.
    pub(super) fn is_like(&self, told: &Self) -> bool {
        let is_near = |a: u32, b: u32| f64::from(a.abs_diff(b)) <= CHANGE * f64::from(b);
        match (self, told) {
            (Self::Refilling { most, refill }, Self::Refilling { most: most_told, refill: refill_told }) => {
                is_near(*most, *most_told) && is_near(*refill, *refill_told)
            }
            (Self::Tokens(_), _) => false,
            _ => self == told,
        }
    }

    /// What tells it to a client, for the bucket of this name.
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
            // What is left of the tokens before goes with the first of the two; then the bucket begins full.
            Self::Tokens(tokens) => vec![blanket(BlanketRule::DenyAll), filled(tokens, 1, NEVER_S)],
        }
    }
}

/// The client is to forget the bucket.
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

/// At least 1: a client may take 0 for something else.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within 1 and the most")]
fn whole(figure: f64) -> u32 {
    figure.clamp(1.0, f64::from(u32::MAX)) as u32
}
