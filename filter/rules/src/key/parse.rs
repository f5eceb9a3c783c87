//! Reads keys from configuration.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use super::spec::{KeySpec, PARTS_MAX, Part, SEGMENTS_MAX};
use crate::reading::{Errors, Fields, choice};
use crate::request::address::{IPV4_BITS, IPV6_BITS, Prefixes};
use crate::request::{
    Attribute, AttributeId, Attributes, CLAIM_NAMES_MAX, Duplicates, Kind, NAME_BYTES_MAX, Source, ValueOf,
    duplicates, source,
};

/// A part as it is read.
enum Read {
    ClientAddress(Prefixes),
    Other(Part),
    All,
}

type MakePart = fn() -> Read;

/// Parts that are written as a name alone.
const PLAIN: [(&str, MakePart); 6] = [
    ("client_address", || Read::ClientAddress(Prefixes::default())),
    ("host", || Read::Other(Part::Host)),
    ("method", || Read::Other(Part::Value(ValueOf::attribute(AttributeId::METHOD)))),
    ("path", || Read::Other(Part::Path)),
    ("route", || Read::Other(Part::Value(ValueOf::attribute(AttributeId::ROUTE)))),
    ("all", || Read::All),
];

/// Parts that are written as an object with one field.
const FIELDS: [&str; 6] = ["client_address", "header", "cookie", "query", "path_segments", "jwt_claim"];
/// Those among them that name a value of which there may be several.
const NAMED: [(&str, Kind); 3] = [("header", Kind::Header), ("cookie", Kind::Cookie), ("query", Kind::Query)];

/// Reads the field `key`: a list of parts.
pub(crate) fn key(
    fields: &mut Fields<'_>,
    attributes: &mut Attributes,
    errors: &mut Errors,
) -> Option<KeySpec> {
    let place = fields.place("key");
    let written = fields.require("key", "a list, as in [client_address]", errors)?;
    if let Some(part) = written.as_str() {
        errors.note(&place, format!("expected a list: did you mean [{part}]?"));
        return None;
    }
    let items: Vec<_> = fields.list("key", PARTS_MAX, errors).collect();
    let (mut spec, mut descriptions, mut is_all) = (KeySpec::default(), Vec::new(), false);
    for (place, item) in &items {
        match part(item, place, attributes, errors) {
            Some(Read::ClientAddress(prefixes)) => {
                if spec.address.replace(prefixes).is_some() {
                    errors.note(place, "expected client_address once: wider counts by more prefixes of it");
                }
                spec.address_at = spec.others.len();
            }
            Some(Read::Other(part)) => {
                let description = description(&part, attributes);
                if descriptions.contains(&description) {
                    errors.note(place, "expected each part once");
                }
                descriptions.push(description);
                spec.others.push(part);
            }
            Some(Read::All) => is_all = true,
            None => {}
        }
    }
    if is_all && items.len() > 1 {
        errors.note(&place, "expected all to be the only part: it is one bucket for every request");
    }
    spec.description = descriptions.concat();
    // The errors of a key without parts were noted above.
    (is_all || !spec.is_all()).then_some(spec)
}

/// Reads prefix lengths; those that are not written are as in `default`.
pub(crate) fn prefixes(fields: &mut Fields<'_>, default: Prefixes, errors: &mut Errors) -> Prefixes {
    let bits = |n: Option<u32>, default: u8| n.and_then(|n| u8::try_from(n).ok()).unwrap_or(default);
    Prefixes {
        ipv4: bits(fields.number("ipv4", 1..=u32::from(IPV4_BITS), errors), default.ipv4),
        ipv6: bits(fields.number("ipv6", 1..=u32::from(IPV6_BITS), errors), default.ipv6),
    }
}

fn part(value: &Value, place: &str, attributes: &mut Attributes, errors: &mut Errors) -> Option<Read> {
    if value.is_string() {
        return choice(value, place, &PLAIN, errors).map(|read| read());
    }
    let mut fields = Fields::of(value, place, errors)?;
    let parts = value.as_object().into_iter().flatten().filter(|(name, _)| *name != "duplicates");
    if parts.count() != 1 {
        errors.note(place, "expected one part, as in {header: x-api-key}");
    }
    let part = field(&mut fields, attributes, errors);
    fields.finish(errors);
    part
}

fn field(fields: &mut Fields<'_>, attributes: &mut Attributes, errors: &mut Errors) -> Option<Read> {
    for name in FIELDS {
        fields.take(name);
    }
    let address_place = fields.place("client_address");
    if let Some(value) = fields.take("client_address") {
        let mut fields = Fields::of(value, &address_place, errors)?;
        let prefixes = prefixes(&mut fields, Prefixes::default(), errors);
        fields.finish(errors);
        return Some(Read::ClientAddress(prefixes));
    }
    for (name, kind) in NAMED {
        if fields.take(name).is_some() {
            let source = source(kind, (name, NAME_BYTES_MAX), fields, attributes, errors);
            let duplicates = duplicates(fields, errors);
            return Some(Read::Other(Part::Value(ValueOf { source: source?, duplicates })));
        }
    }
    let segments = fields.number("path_segments", 1..=u32::from(SEGMENTS_MAX), errors);
    if let Some(segments) = segments.and_then(|n| u8::try_from(n).ok()) {
        return Some(Read::Other(Part::PathSegments(segments)));
    }
    let source = source(Kind::Claim, ("jwt_claim", NAME_BYTES_MAX), fields, attributes, errors)?;
    Some(Read::Other(Part::Value(ValueOf { source, duplicates: Duplicates::Unsaid })))
}

/// Describes a part by bytes that no other part has: how many names it has, then each name after its length. Both are
/// bounded, so each fits a byte.
fn description(part: &Part, attributes: &Attributes) -> Vec<u8> {
    let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
    let names = names(part, attributes);
    let mut bytes = alloc::vec![byte(names.len())];
    for name in names {
        bytes.push(byte(name.len()));
        bytes.extend_from_slice(name);
    }
    bytes
}

/// A part's kind, and its names.
fn names<'a>(part: &'a Part, attributes: &'a Attributes) -> Vec<&'a [u8]> {
    let (kind, name) = match part {
        Part::Host => ("host", None),
        Part::Path => ("path", None),
        Part::PathSegments(segments) => ("path_segments", Some(core::slice::from_ref(segments))),
        Part::Value(ValueOf { source, .. }) => match source {
            Source::Cookie(_, name) => ("cookie", Some(name.as_bytes())),
            Source::Query(name) => ("query", Some(name.as_bytes())),
            Source::Attribute(id) => match attributes.get(*id) {
                Some(Attribute::Header(name)) => ("header", Some(name.as_bytes())),
                Some(Attribute::Claim(names)) => {
                    return core::iter::once("jwt_claim")
                        .chain(names.iter().map(String::as_str))
                        .map(str::as_bytes)
                        .collect();
                }
                Some(Attribute::Method) => ("method", None),
                _ => ("route", None),
            },
        },
    };
    core::iter::once(kind.as_bytes()).chain(name).collect()
}

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(CLAIM_NAMES_MAX < u8::MAX as usize);
