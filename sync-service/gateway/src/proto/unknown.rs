//! Detection of fields that a message's proto does not have. A decoder skips such fields. But they can change
//! the meaning of a message from a newer caller, so the message is refused instead.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::field_descriptor_proto::Label;
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::Status;

use super::DESCRIPTORS;

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::read);

#[derive(Default)]
struct Schema {
    messages: Vec<Vec<Field>>,
    /// Index of each message by its qualified name.
    places: HashMap<String, usize>,
}

struct Field {
    number: u32,
    name: String,
    is_repeated: bool,
    /// Index of the field's message type, or `None` for a scalar.
    message: Option<usize>,
}

/// Refuses `bytes`, a message of type `name`, if it has a field that is not in the protos, at any depth.
/// Invalid messages pass: their decoder reports the error.
pub fn refuse(name: &str, bytes: &[u8]) -> Result<(), Status> {
    let schema = &*SCHEMA;
    let found = schema.places.get(name).and_then(|place| schema.find(*place, bytes));
    let Some((place, number)) = found else { return Ok(()) };
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    Err(Status::invalid_argument(format!("{place}expected the fields of Envoy 1.40, found number {number}")))
}

impl Schema {
    fn read() -> Self {
        let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default().file;
        let mut all = Vec::new();
        for file in &files {
            collect(&format!(".{}", file.package()), &file.message_type, &mut all);
        }
        let places: HashMap<_, _> = all.iter().map(|(name, _)| name.clone()).zip(0..).collect();
        let fields = |(_, message): &(String, &DescriptorProto)| {
            let field = |field: &prost_types::FieldDescriptorProto| Field {
                number: field.number().cast_unsigned(),
                name: field.name().to_owned(),
                is_repeated: field.label() == Label::Repeated,
                message: places.get(field.type_name()).copied(),
            };
            message.field.iter().map(field).collect()
        };
        Self { messages: all.iter().map(fields).collect(), places }
    }

    /// Path and number of the first unknown field in a message.
    fn find(&self, message: usize, bytes: &[u8]) -> Option<(String, u32)> {
        let fields = self.messages.get(message)?;
        for (at, (number, content)) in (Fields { rest: bytes }).enumerate() {
            let Some(field) = fields.iter().find(|field| field.number == number) else {
                return Some((String::new(), number));
            };
            let inner = field.message.zip(content);
            let Some((within, unknown)) = inner.and_then(|(message, content)| self.find(message, content)) else {
                continue;
            };
            let before = Fields { rest: bytes }.take(at).filter(|(other, _)| *other == number).count();
            let index = if field.is_repeated { format!("[{before}]") } else { String::new() };
            let dot = if within.is_empty() { "" } else { "." };
            return Some((format!("{}{index}{dot}{within}", field.name), unknown));
        }
        None
    }
}

/// Collects the messages of a file, including nested ones, with their names.
fn collect<'a>(scope: &str, messages: &'a [DescriptorProto], all: &mut Vec<(String, &'a DescriptorProto)>) {
    for message in messages {
        let name = format!("{scope}.{}", message.name());
        collect(&name, &message.nested_type, all);
        all.push((name, message));
    }
}

/// Fields of an encoded message: their numbers, and the bytes of length-delimited ones. Ends early if the
/// encoding is invalid.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (number, kind) = decode_key(&mut self.rest).ok()?;
        let bytes = match kind {
            WireType::Varint => {
                decode_varint(&mut self.rest).ok()?;
                return Some((number, None));
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut self.rest).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => 0,
        };
        let (content, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some((number, (kind == WireType::LengthDelimited).then_some(content)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    const REQUEST: &str = ".envoy.service.ratelimit.v3.RateLimitRequest";

    /// A field after those in `bytes`, of each type that a reader can skip.
    fn with(mut bytes: Vec<u8>, number: u32, kind: WireType) -> Vec<u8> {
        prost::encoding::encode_key(number, kind, &mut bytes);
        bytes.extend_from_slice(match kind {
            WireType::Varint => &[1],
            WireType::LengthDelimited => &[2, 0xff, 0xff],
            WireType::SixtyFourBit => &[7; 8],
            _ => &[7; 4],
        });
        bytes
    }

    /// The bytes as a field of a message around them.
    fn within(around: &impl prost::Message, number: u32, bytes: &[u8]) -> Vec<u8> {
        let mut all = around.encode_to_vec();
        prost::encoding::bytes::encode(number, &bytes.to_vec(), &mut all);
        all
    }

    fn refused(bytes: &[u8]) -> Option<String> {
        refuse(REQUEST, bytes).err().map(|status| status.message().to_owned())
    }

    #[test]
    fn unknown_fields_are_refused_at_every_depth() {
        let entry = Entry { key: "a".into(), value: "b".into() };
        let limit = RateLimitOverride { requests_per_unit: 5, unit: 2, unit_multiplier: Some(10) };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry.clone()],
            limit: Some(limit),
            hits_addend: Some(7),
            is_negative_hits: true,
        };
        let request = RateLimitRequest { domain: "shop".into(), descriptors: vec![descriptor.clone()], hits_addend: 3 };
        assert_eq!(refused(&request.encode_to_vec()), None);
        let expected = |place: &str| Some(format!("{place}expected the fields of Envoy 1.40, found number 15"));
        for kind in [WireType::Varint, WireType::LengthDelimited, WireType::SixtyFourBit, WireType::ThirtyTwoBit] {
            assert_eq!(refused(&with(request.encode_to_vec(), 15, kind)), expected(""));
            let second = with(descriptor.encode_to_vec(), 15, kind);
            assert_eq!(refused(&within(&request, 2, &second)), expected("descriptors[1]: "));
            let deep = within(&descriptor, 1, &with(entry.encode_to_vec(), 15, kind));
            assert_eq!(refused(&within(&request, 2, &deep)), expected("descriptors[1].entries[1]: "));
            let deep = within(&RateLimitDescriptor::default(), 2, &with(limit.encode_to_vec(), 15, kind));
            assert_eq!(refused(&within(&request, 2, &deep)), expected("descriptors[1].limit: "));
            // In a message that wraps a number.
            let deep = within(&RateLimitDescriptor::default(), 3, &with(vec![8, 7], 15, kind));
            assert_eq!(refused(&within(&request, 2, &deep)), expected("descriptors[1].hits_addend: "));
        }
    }

    /// A field of a newer proto is read before it is added here, or refused by its name.
    #[test]
    fn weir_reads_every_field_of_a_request() {
        let read = [
            (".envoy.service.ratelimit.v3.RateLimitRequest", "domain descriptors hits_addend"),
            (".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", "entries limit hits_addend is_negative_hits"),
            (".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry", "key value"),
            (
                ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride",
                "requests_per_unit unit unit_multiplier",
            ),
            (".envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports", "domain bucket_quota_usages"),
            (
                ".envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports.BucketQuotaUsage",
                "bucket_id time_elapsed num_requests_allowed num_requests_denied",
            ),
            (".envoy.service.rate_limit_quota.v3.BucketId", "bucket"),
        ];
        for (message, fields) in read {
            let known = &SCHEMA.messages[SCHEMA.places[message]];
            let names: Vec<_> = known.iter().map(|field| field.name.as_str()).collect();
            assert_eq!(names.join(" "), fields, "{message}");
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_left_to_the_decoder() {
        for bytes in [&[0x0a, 200][..], &[0xff; 12], &[0x12, 1, 0x0a]] {
            assert!(RateLimitRequest::decode(bytes).is_err(), "{bytes:?}");
            let _ = refused(bytes);
        }
    }
}
