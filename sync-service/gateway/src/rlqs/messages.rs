//! Messages of the quota service. In reports of clients, each bucket becomes a descriptor with the same pairs.
//! Assignments are expressed in the strategies that Envoy's filter `rate_limit_quota` understands. It handles fill
//! intervals and times to live in whole seconds. When a token bucket replaces a different token bucket, it starts with
//! the same fraction filled. When it replaces another strategy, it starts full.

use std::time::Duration;

use bytes::Buf as _;
use prost::{DecodeError, Message as _};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::CheckRequest;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Action, QuotaAssignmentAction,
};
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use crate::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use crate::proto::unknown::{self, Fields};
use crate::rls::{self, Check, make_text};

/// Pairs of a bucket, sorted by key.
pub(super) type Pairs = Vec<(String, String)>;

/// Pairs of the bucket in the usage at `index` of a message, and the time since the client's previous report.
pub(super) fn bucket(index: usize, usage: BucketQuotaUsage) -> Result<(Pairs, Duration), Status> {
    let pairs = usage.bucket_id.unwrap_or_default().bucket;
    if pairs.is_empty() {
        let expected = "expected a bucket with at least one pair";
        return Err(Status::invalid_argument(format!("bucket_quota_usages[{index}].bucket_id: {expected}")));
    }
    let mut pairs: Pairs = pairs.into_iter().collect();
    pairs.sort_unstable();
    let elapsed = usage.time_elapsed.unwrap_or_default();
    let elapsed = Duration::try_from(elapsed).map_err(|_| {
        let expected = format!("expected no time before now, found {} s", elapsed.seconds);
        Status::invalid_argument(format!("bucket_quota_usages[{index}].time_elapsed: {expected}"))
    })?;
    Ok((pairs, elapsed))
}

/// Check for a request of the bucket: that of a descriptor with the same entries. Fails if it is invalid.
pub(super) fn ask(domain: &str, index: usize, pairs: &Pairs) -> Result<CheckRequest, Status> {
    let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
    let entries = pairs.iter().map(entry).collect();
    let descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: domain.into(), descriptors: vec![descriptor], hits_addend: 0 };
    let checks = rls::checks(request).map_err(|status| {
        let place = format!("bucket_quota_usages[{index}].bucket_id, its pairs as entries in the order of their keys");
        Status::new(status.code(), format!("{place}: {}", status.message()))
    })?;
    let ask = checks.into_iter().find_map(|check| if let Check::Rules(ask) = check { Some(*ask) } else { None });
    Ok(ask.unwrap_or_default())
}

pub(super) fn id(pairs: &Pairs) -> BucketId {
    BucketId { bucket: pairs.iter().cloned().collect() }
}

const REPORTS: &str = ".envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports";

/// Codec that skips buckets with values that are not valid UTF-8.
///
/// A header may have any bytes. Envoy copies them into a bucket and reports that bucket again and again. If
/// that ended the stream, any client of the proxy could deprive it of its quotas.
#[derive(Clone, Copy, Debug)]
pub(super) struct LenientCodec;

impl Codec for LenientCodec {
    type Encode = RateLimitQuotaResponse;
    type Decode = RateLimitQuotaUsageReports;
    type Encoder = ProstEncoder<RateLimitQuotaResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Self::Encode, Self::Decode>::default().encoder()
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for LenientCodec {
    type Item = RateLimitQuotaUsageReports;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let bytes = source.copy_to_bytes(source.remaining());
        let read = decode(&bytes).map_err(|wrong| Status::internal(wrong.to_string()))?;
        unknown::refuse(REPORTS, &bytes)?;
        Ok(Some(read))
    }
}

/// Decodes reports without the usages of buckets whose values are not text. Any other defect is an error.
fn decode(bytes: &[u8]) -> Result<RateLimitQuotaUsageReports, DecodeError> {
    RateLimitQuotaUsageReports::decode(bytes).or_else(|wrong| {
        let mut text = bytes.to_vec();
        make_text(&mut text, &[USAGES, 1, 1, 2]);
        let mut read = RateLimitQuotaUsageReports::decode(&*text).map_err(|_| wrong)?;
        let mut is_text = usages(bytes).zip(usages(&text)).map(|(before, after)| before == after);
        read.bucket_quota_usages.retain(|_| is_text.next() == Some(true));
        Ok(read)
    })
}

/// Number of the field `bucket_quota_usages`. From there, `bucket_id`, `bucket` and `value` lead to a bucket's values.
const USAGES: u32 = 2;

fn usages(reports: &[u8]) -> impl Iterator<Item = &[u8]> {
    Fields { rest: reports }.filter_map(|(number, content)| content.filter(|_| number == USAGES))
}

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

/// Rounds down, but to at least 1, because a client may interpret 0 in another way.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within 1 and the most")]
pub(super) fn whole(figure: f64) -> u32 {
    figure.clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_is_no_text_is_passed_over() {
        let usage = |value: &str| BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: [("x-user".to_owned(), value.to_owned())].into() }),
            time_elapsed: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
            num_requests_allowed: 3,
            num_requests_denied: 4,
        };
        let of = |usages: &[BucketQuotaUsage]| RateLimitQuotaUsageReports {
            domain: "edge".into(),
            bucket_quota_usages: usages.to_vec(),
        };
        let mut bytes = of(&[usage("ada"), usage("$$"), usage("bob")]).encode_to_vec();
        let at = bytes.windows(2).position(|pair| pair == b"$$").expect("the value");
        bytes[at] = 0xff;
        assert!(RateLimitQuotaUsageReports::decode(&bytes[..]).is_err());
        assert_eq!(decode(&bytes), Ok(of(&[usage("ada"), usage("bob")])));
        // The last byte is the number of refused requests.
        let cut = usage("cut").encode_to_vec();
        bytes.extend([0x12, u8::try_from(cut.len() - 1).expect("a length")]);
        bytes.extend(&cut[..cut.len() - 1]);
        decode(&bytes).expect_err("a usage that ends early");
    }
}
