//! Parser of keys in configuration.

use alloc::string::String;
use alloc::vec::Vec;

use super::{KeySpec, PARTS_MAX, Part, SEGMENTS_MAX};
use crate::reading::{Fields, Item, meant};
use crate::request::address::{IPV4_BITS, IPV6_BITS, Prefixes};
use crate::request::{
    Attribute, AttributeId, Attributes, CLAIM_NAMES_MAX, Duplicates, NAME_BYTES_MAX, Source, ValueKind, ValueOf,
    duplicates, source,
};

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
/// Parts that name a value which may occur several times in a request.
const NAMED: [(&str, ValueKind); 3] =
    [("header", ValueKind::Header), ("cookie", ValueKind::Cookie), ("query", ValueKind::Query)];

pub(crate) fn key(fields: &mut Fields<'_>, attributes: &mut Attributes) -> Option<KeySpec> {
    let list = fields.require("key", "a list, as in [client_address]")?;
    let (mut spec, mut descriptions, mut is_all) = (KeySpec::default(), Vec::new(), false);
    let items = fields.list("key", PARTS_MAX);
    let are_several = items.len() > 1;
    for item in items {
        match part(&item, attributes) {
            Some(Read::ClientAddress(prefixes)) => {
                if spec.address.replace(prefixes).is_some() {
                    item.record("expected client_address once: also_by_prefix counts by more prefixes of it");
                }
                spec.address_at = spec.others.len();
            }
            Some(Read::Other(part)) => {
                let description = description(&part, attributes);
                if descriptions.contains(&description) {
                    item.record("expected each part once");
                }
                descriptions.push(description);
                spec.others.push(part);
            }
            Some(Read::All) => is_all = true,
            None => {}
        }
    }
    if is_all && are_several {
        list.record("expected all to be the only part: it is one bucket for every request");
    }
    spec.description = descriptions.concat();
    // Errors of a key without parts were recorded above.
    (is_all || !spec.is_all()).then_some(spec)
}

/// Reads prefix lengths; absent ones are taken from `default`.
pub(crate) fn prefixes(fields: &mut Fields<'_>, default: Prefixes) -> Prefixes {
    let mut bits = |name, most: u8, default| {
        let bits = fields.number(name, 1..=u32::from(most));
        bits.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(default)
    };
    Prefixes { ipv4: bits("ipv4", IPV4_BITS, default.ipv4), ipv6: bits("ipv6", IPV6_BITS, default.ipv6) }
}

fn part(item: &Item<'_>, attributes: &mut Attributes) -> Option<Read> {
    if let Some(text) = item.value().as_str() {
        let is_known = PLAIN.iter().any(|(name, _)| *name == text);
        if let Some(meant) = meant::of_key(text).filter(|_| !is_known) {
            item.record(format_args!("unknown part: did you mean {meant}?"));
            return None;
        }
        return item.choice(&PLAIN).map(|read| read());
    }
    let mut fields = item.fields()?;
    let parts = item.value().as_object().into_iter().flatten().filter(|(name, _)| *name != "duplicates");
    if parts.count() != 1 {
        item.record("expected one part, as in {header: x-api-key}");
    }
    let part = field(&mut fields, attributes);
    fields.finish_with(|_, name, _| meant::of_key(name));
    part
}

fn field(fields: &mut Fields<'_>, attributes: &mut Attributes) -> Option<Read> {
    for &name in &FIELDS {
        fields.take(name);
    }
    if let Some(item) = fields.take("client_address") {
        let mut fields = item.fields()?;
        let prefixes = prefixes(&mut fields, Prefixes::default());
        fields.finish();
        return Some(Read::ClientAddress(prefixes));
    }
    for &(name, kind) in &NAMED {
        if fields.has(name) {
            let source = source(kind, (name, NAME_BYTES_MAX), fields, attributes);
            let duplicates = duplicates(fields);
            return Some(Read::Other(Part::Value(ValueOf { source: source?, duplicates })));
        }
    }
    let segments = fields.number("path_segments", 1..=u32::from(SEGMENTS_MAX));
    if let Some(segments) = segments.and_then(|n| u8::try_from(n).ok()) {
        return Some(Read::Other(Part::PathSegments(segments)));
    }
    let source = source(ValueKind::Claim, ("jwt_claim", NAME_BYTES_MAX), fields, attributes)?;
    Some(Read::Other(Part::Value(ValueOf { source, duplicates: Duplicates::Unset })))
}

/// Encodes a part as bytes unique to it: the number of names, then each name after its length.
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
                    let mut all = alloc::vec!["jwt_claim".as_bytes()];
                    all.extend(names.iter().map(String::as_bytes));
                    return all;
                }
                Some(Attribute::Method) => ("method", None),
                _ => ("route", None),
            },
        },
    };
    let mut names = alloc::vec![kind.as_bytes()];
    names.extend(name);
    names
}

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(CLAIM_NAMES_MAX < u8::MAX as usize);
