//! Requests with text fields that are not valid UTF-8.
//!
//! A header may have any bytes, and Envoy copies them into a descriptor. If that made the request invalid, a
//! client could evade its limit wherever Envoy lets through what could not be checked. So invalid bytes are
//! replaced by question marks.

use prost::Message;

use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use crate::gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// [`RateLimitRequest`] with values as bytes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RawDescriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct RawDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<RawEntry>,
    #[prost(message, optional, tag = "2")]
    limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RawEntry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl RawRequest {
    /// Converts the values to text.
    pub(super) fn read(self) -> RateLimitRequest {
        let entry = |RawEntry { key, value }| Entry { key, value: text(&value) };
        let descriptor = |RawDescriptor { entries, limit, hits_addend, is_negative_hits }| {
            let entries = entries.into_iter().map(entry).collect();
            RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
        };
        let Self { domain, descriptors, hits_addend } = self;
        let descriptors = descriptors.into_iter().map(descriptor).collect();
        RateLimitRequest { domain, descriptors, hits_addend }
    }
}

/// Text with each invalid byte replaced, so that it is no longer than `bytes`.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_question_marks_and_all_else_is_as_it_was() {
        let entry = |value: &str| Entry { key: "x-user".into(), value: value.into() };
        let limit = Some(RateLimitOverride { requests_per_unit: 3, unit: 1, unit_multiplier: Some(10) });
        let asked = |value| RateLimitRequest {
            domain: "shop".into(),
            descriptors: vec![
                RateLimitDescriptor {
                    entries: vec![entry(value)],
                    limit,
                    hits_addend: Some(0),
                    is_negative_hits: true,
                },
                RateLimitDescriptor { entries: vec![entry("ada")], ..RateLimitDescriptor::default() },
            ],
            hits_addend: 7,
        };
        let mut bytes = asked("a\u{e9}$$").encode_to_vec();
        let at = bytes.windows(2).position(|pair| pair == b"$$").expect("the value");
        bytes[at..at + 2].copy_from_slice(&[0xff, 0xc3]);
        assert!(RateLimitRequest::decode(&bytes[..]).is_err());
        let read = RawRequest::decode(&bytes[..]).expect("a request").read();
        assert_eq!(read, asked("a\u{e9}??"));
    }
}
