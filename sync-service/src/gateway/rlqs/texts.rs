//! Decoder of reports with text fields that are not valid UTF-8.
//!
//! A header may have any bytes. Envoy copies them into a bucket and reports that bucket again and again. If
//! that ended the stream, any client of the proxy could deprive it of its quotas. So such buckets are skipped.

use std::collections::HashMap;

use bytes::Buf as _;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::gateway::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::gateway::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use crate::gateway::proto::unknown;

/// Type of the reports.
const REPORTS: &str = ".envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports";

/// Codec with this decoder.
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
