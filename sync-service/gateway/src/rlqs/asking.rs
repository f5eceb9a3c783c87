//! Usage reports of quota clients: each bucket becomes a descriptor with the same pairs.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Buf as _;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::CheckRequest;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::unknown;
use crate::rls::asking::{self, Check};

pub(super) use crate::rls::asking::name;

/// Pairs of a bucket, sorted by key.
pub(super) type Pairs = Vec<(String, String)>;

/// Requests of a client in one bucket.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Usage {
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

/// Codec that skips buckets with text fields that are not valid UTF-8.
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
        let read = RateLimitQuotaUsageReports::decode(bytes.clone())
            .or_else(|wrong| RawReports::decode(bytes.clone()).map(RawReports::read).map_err(|_| wrong));
        let read = read.map_err(|wrong| Status::internal(wrong.to_string()))?;
        unknown::refuse(REPORTS, &bytes)?;
        Ok(Some(read))
    }
}

/// [`RateLimitQuotaUsageReports`] with values as bytes.
#[derive(Clone, PartialEq, Message)]
struct RawReports {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    usages: Vec<RawUsage>,
}

#[derive(Clone, PartialEq, Message)]
struct RawUsage {
    #[prost(message, optional, tag = "1")]
    id: Option<RawId>,
    #[prost(message, optional, tag = "2")]
    elapsed: Option<prost_types::Duration>,
    #[prost(uint64, tag = "3")]
    admitted: u64,
    #[prost(uint64, tag = "4")]
    refused: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RawId {
    #[prost(map = "string, bytes", tag = "1")]
    pairs: HashMap<String, Vec<u8>>,
}

impl RawReports {
    /// Converts the report; buckets that are not text are omitted.
    fn read(self) -> RateLimitQuotaUsageReports {
        let bucket_quota_usages = self.usages.into_iter().filter_map(RawUsage::read).collect();
        RateLimitQuotaUsageReports { domain: self.domain, bucket_quota_usages }
    }
}

impl RawUsage {
    fn read(self) -> Option<BucketQuotaUsage> {
        let pair = |(key, value)| Some((key, String::from_utf8(value).ok()?));
        let pairs = self.id.unwrap_or_default().pairs.into_iter().map(pair).collect::<Option<_>>();
        Some(BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: pairs? }),
            time_elapsed: self.elapsed,
            num_requests_allowed: self.admitted,
            num_requests_denied: self.refused,
        })
    }
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
        let read = RawReports::decode(&bytes[..]).expect("reports").read();
        assert_eq!(read, of(&[usage("ada"), usage("bob")]));
    }
}
