//! Reads keys from configuration.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use super::spec::{CLAIM_NAMES_MAX, KeySpec, PART_NAME_BYTES_MAX, PARTS_MAX, Part, SEGMENTS_MAX};
use crate::address::{IPV4_BITS, IPV6_BITS, Prefixes};
use crate::matching::Duplicates;
use crate::reading::{Errors, Fields, choice, text};
use crate::request::{Attribute, AttributeId, Attributes};

/// Parts that are written as a name alone.
const PLAIN: [(&str, Plain); 6] = [
    ("client_address", Plain::ClientAddress),
    ("host", Plain::Part("host", Part::Host)),
    ("method", Plain::Part("method", Part::Attribute(AttributeId::METHOD, Duplicates::Unsaid))),
    ("path", Plain::Part("path", Part::Path)),
    ("route", Plain::Part("route", Part::Attribute(AttributeId::ROUTE, Duplicates::Unsaid))),
    ("all", Plain::All),
];

enum Plain {
    ClientAddress,
    Part(&'static str, Part),
    All,
}

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
    let mut reader = Reader { spec: KeySpec::default(), described: Vec::new(), is_all: false, attributes };
    for (place, item) in &items {
        reader.part(item, place, errors);
    }
    let Reader { mut spec, described, is_all, .. } = reader;
    if is_all && items.len() > 1 {
        errors.note(&place, "expected all to be the only part: it is one bucket for every request");
    }
    // Errors were noted above; an empty key would pass for `all`.
    if items.is_empty() || (!is_all && spec.address.is_none() && spec.others.is_empty()) {
        return None;
    }
    spec.description = described.concat();
    Some(spec)
}

/// Reads prefix lengths; those that are not written are as in `default`.
pub(crate) fn prefixes(fields: &mut Fields<'_>, default: Prefixes, errors: &mut Errors) -> Prefixes {
    let bits = |n: Option<u32>, default: u8| n.and_then(|n| u8::try_from(n).ok()).unwrap_or(default);
    Prefixes {
        ipv4: bits(fields.number("ipv4", 1..=u32::from(IPV4_BITS), errors), default.ipv4),
        ipv6: bits(fields.number("ipv6", 1..=u32::from(IPV6_BITS), errors), default.ipv6),
    }
}

struct Reader<'a> {
    spec: KeySpec,
    /// A description of each of the other parts: how many names it has, then each name after its length.
    described: Vec<Vec<u8>>,
    is_all: bool,
    attributes: &'a mut Attributes,
}

impl Reader<'_> {
    fn part(&mut self, value: &Value, place: &str, errors: &mut Errors) {
        if value.is_string() {
            let choices: Vec<_> = PLAIN.iter().map(|(name, plain)| (*name, plain)).collect();
            match choice(value, place, &choices, errors) {
                Some(Plain::ClientAddress) => self.address(Prefixes::default(), place, errors),
                Some(Plain::Part(name, part)) => {
                    self.other(part.clone(), &[name.as_bytes()], place, errors);
                }
                Some(Plain::All) => self.is_all = true,
                None => {}
            }
            return;
        }
        let Some(mut fields) = Fields::of(value, place, errors) else { return };
        let parts = value.as_object().into_iter().flatten().filter(|(name, _)| *name != "duplicates");
        if parts.count() != 1 {
            errors.note(place, "expected one part, as in {header: x-api-key}");
        }
        self.field(&mut fields, place, errors);
        fields.finish(errors);
    }

    fn field(&mut self, fields: &mut Fields<'_>, place: &str, errors: &mut Errors) {
        let address_place = fields.place("client_address");
        if let Some(value) = fields.take("client_address")
            && let Some(mut fields) = Fields::of(value, &address_place, errors)
        {
            let prefixes = prefixes(&mut fields, Prefixes::default(), errors);
            fields.finish(errors);
            self.address(prefixes, place, errors);
        }
        if let Some(name) = token(fields, "header", errors) {
            let (name, duplicates) = (name.to_ascii_lowercase(), duplicates(fields, errors));
            let part = self.attribute(Attribute::Header(name.clone()), place, errors);
            let part = part.map(|id| Part::Attribute(id, duplicates));
            self.named(part, "header", &name, place, errors);
        }
        if let Some(name) = token(fields, "cookie", errors) {
            let header = self.attribute(Attribute::Header("cookie".to_owned()), place, errors);
            let duplicates = duplicates(fields, errors);
            let part = header.map(|header| Part::Cookie(header, name.to_owned(), duplicates));
            self.named(part, "cookie", name, place, errors);
        }
        if let Some(name) = fields.text("query", PART_NAME_BYTES_MAX, errors) {
            let part = Part::Query(name.to_owned(), duplicates(fields, errors));
            self.named(Some(part), "query", name, place, errors);
        }
        let segments = fields.number("path_segments", 1..=u32::from(SEGMENTS_MAX), errors);
        if let Some(segments) = segments.and_then(|n| u8::try_from(n).ok()) {
            self.other(Part::PathSegments(segments), &[b"path_segments", &[segments]], place, errors);
        }
        if let Some(names) = claim_names(fields, "jwt_claim", errors) {
            let part = self.attribute(Attribute::Claim(names.clone()), place, errors);
            let part = part.map(|id| Part::Attribute(id, Duplicates::Unsaid));
            let names = names.iter().map(String::as_bytes);
            let names: Vec<_> = core::iter::once(&b"jwt_claim"[..]).chain(names).collect();
            if let Some(part) = part {
                self.other(part, &names, place, errors);
            }
        }
    }

    fn attribute(&mut self, attribute: Attribute, place: &str, errors: &mut Errors) -> Option<AttributeId> {
        let id = self.attributes.intern(attribute);
        if id.is_none() {
            errors.note(place, "expected fewer different headers and claims in all rules together");
        }
        id
    }

    fn address(&mut self, prefixes: Prefixes, place: &str, errors: &mut Errors) {
        if self.spec.address.replace(prefixes).is_some() {
            errors.note(place, "expected client_address once: wider counts by more prefixes of it");
        }
    }

    fn named(&mut self, part: Option<Part>, kind: &str, name: &str, place: &str, errors: &mut Errors) {
        if let Some(part) = part {
            self.other(part, &[kind.as_bytes(), name.as_bytes()], place, errors);
        }
    }

    fn other(&mut self, part: Part, names: &[&[u8]], place: &str, errors: &mut Errors) {
        let description = described(names);
        if self.described.contains(&description) {
            errors.note(place, "expected each part once");
        }
        self.described.push(description);
        self.spec.others.push(part);
    }
}

/// The field `duplicates`: which of several values of one name counts.
#[inline(never)]
pub(crate) fn duplicates(fields: &mut Fields<'_>, errors: &mut Errors) -> Duplicates {
    fields.choice("duplicates", &Duplicates::NAMES, errors).unwrap_or_default()
}

/// The description of a part with these names. Counts and lengths are bounded, so each fits a byte.
fn described(names: &[&[u8]]) -> Vec<u8> {
    let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
    let mut bytes = alloc::vec![byte(names.len())];
    for name in names {
        bytes.push(byte(name.len()));
        bytes.extend_from_slice(name);
    }
    bytes
}

const _: () = assert!(PART_NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(CLAIM_NAMES_MAX < u8::MAX as usize);

/// The field `name` as a token (RFC 9110, 5.6.2), as the names of headers and cookies are.
pub(crate) fn token<'a>(fields: &mut Fields<'a>, name: &'static str, errors: &mut Errors) -> Option<&'a str> {
    let text = fields.text(name, PART_NAME_BYTES_MAX, errors)?;
    let is_token = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !is_token {
        errors.note(&fields.place(name), format!("expected a {name}'s name, found {text:?}"));
    }
    is_token.then_some(text)
}

/// The field `field`: the names that lead to a claim. None may have a NUL, which hosts put between them.
pub(crate) fn claim_names(
    fields: &mut Fields<'_>,
    field: &'static str,
    errors: &mut Errors,
) -> Option<Vec<String>> {
    let items: Vec<_> = fields.list(field, CLAIM_NAMES_MAX, errors).collect();
    let mut names = Vec::with_capacity(items.len());
    for (place, item) in &items {
        let Some(name) = text(item, place, PART_NAME_BYTES_MAX, errors) else { continue };
        if name.contains('\0') {
            errors.note(place, "expected a name without NUL");
        }
        names.push(name.to_owned());
    }
    (!names.is_empty()).then_some(names)
}
