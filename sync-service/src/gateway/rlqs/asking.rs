//! Usage reports of quota clients: each bucket becomes a descriptor with the same pairs.

use std::time::Duration;

use tonic::Status;

use crate::gateway::CheckRequest;
use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::gateway::proto::envoy::service::rate_limit_quota::v3::BucketId;
use crate::gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::gateway::rls::asking::{self, Check};

pub(super) use crate::gateway::rls::asking::name;

/// Pairs of a bucket, sorted by key.
pub(super) type Pairs = Vec<(String, String)>;

/// Requests of a client in one bucket.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Usage {
    /// Pairs that identify the bucket.
    pub(super) pairs: Pairs,
    /// Time since the previous report, by the client's clock.
    pub(super) elapsed: Duration,
    /// Requests that the client allowed, and those that it refused.
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// Usage at `index` of a message. Fails if it is invalid.
pub(super) fn usage(index: usize, usage: BucketQuotaUsage) -> Result<Usage, Status> {
    let BucketQuotaUsage { bucket_id, time_elapsed, num_requests_allowed, num_requests_denied } = usage;
    let pairs = bucket_id.unwrap_or_default().bucket;
    if pairs.is_empty() {
        let expected = "expected a bucket with at least one pair";
        return Err(Status::invalid_argument(format!("bucket_quota_usages[{index}].bucket_id: {expected}")));
    }
    let mut pairs: Pairs = pairs.into_iter().collect();
    pairs.sort_unstable();
    let elapsed = time_elapsed.unwrap_or_default();
    let elapsed = Duration::try_from(elapsed).map_err(|_| {
        let expected = format!("expected no time before now, found {} s", elapsed.seconds);
        Status::invalid_argument(format!("bucket_quota_usages[{index}].time_elapsed: {expected}"))
    })?;
    Ok(Usage { pairs, elapsed, admitted: num_requests_allowed, refused: num_requests_denied })
}

/// Check for a request of the bucket: that of a descriptor with the same entries. Fails if it is invalid.
pub(super) fn ask(domain: &str, index: usize, pairs: &Pairs) -> Result<CheckRequest, Status> {
    let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
    let entries = pairs.iter().map(entry).collect();
    let descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: domain.into(), descriptors: vec![descriptor], hits_addend: 0 };
    let checks = asking::checks(request).map_err(|status| {
        let place = format!(
            "bucket_quota_usages[{index}].bucket_id, its pairs as entries in the order of their keys"
        );
        Status::new(status.code(), format!("{place}: {}", status.message()))
    })?;
    let ask =
        checks.into_iter().find_map(|check| if let Check::Rules(ask) = check { Some(*ask) } else { None });
    Ok(ask.unwrap_or_default())
}

/// Identifier of the bucket in the protocol.
pub(super) fn id(pairs: &Pairs) -> BucketId {
    BucketId { bucket: pairs.iter().cloned().collect() }
}
