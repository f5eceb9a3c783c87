//! Values that a request has under a name: a header's, a cookie's, a query parameter's, a claim's.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::attribute::{ATTRIBUTES_MAX, Attribute, AttributeId, Attributes};
use super::cookie::cookies;
use super::duplicates::{Duplicates, OneOf, Repeated, of_header};
use super::fetched::Fetched;
use super::lines::Lines;
use super::query::parameters;
use crate::reading::{Fields, Item, is_token};

/// The most names in the path to a claim.
pub const CLAIM_NAMES_MAX: usize = 8;
/// The longest name in a key or in the path to a claim, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The header that a request's cookies are in (RFC 6265, 4.2).
const COOKIE: &str = "cookie";

/// Where in a request a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// All of an attribute: a header, a claim, the method, the route.
    Attribute(AttributeId),
    /// The cookie of this name, undecoded; the attribute is the header that cookies are in.
    Cookie(AttributeId, String),
    /// The query parameter of this name, decoded.
    Query(String),
}

/// A value of a request, of which there may be several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueOf {
    /// Where it is.
    pub source: Source,
    /// Which of several counts.
    pub duplicates: Duplicates,
}

impl ValueOf {
    /// All of an attribute.
    pub(crate) const fn attribute(id: AttributeId) -> Self {
        Self { source: Source::Attribute(id), duplicates: Duplicates::Unsaid }
    }

    /// Hands the request's value to `put`; false if there is none.
    pub(crate) fn put(&self, request: &mut Fetched<'_>, put: impl FnOnce(&[u8])) -> Result<bool, Repeated> {
        let value = match (&self.source, self.duplicates) {
            (Source::Attribute(id), Duplicates::Unsaid) => return Ok(request.get(*id).map(put).is_some()),
            (_, duplicates) => self.each(request, usize::MAX, |values| {
                Ok(duplicates.pick(values)?.flatten().map(|value| put(&value)))
            }),
        };
        value.map(|value| value.is_some())
    }

    /// Hands all of the request's values to `read`; what is between commas in a header is a value, too.
    pub(crate) fn each<R>(
        &self,
        request: &mut Fetched<'_>,
        query_bytes_max: usize,
        read: impl FnOnce(&mut dyn Iterator<Item = OneOf<'_>>) -> R,
    ) -> R {
        match &self.source {
            Source::Attribute(id) => {
                let are_credentials = request.attributes().is_credentials(*id);
                let joined = request.get(*id).into_iter();
                read(&mut joined.flat_map(|joined| of_header(joined, are_credentials)))
            }
            Source::Cookie(header, name) => {
                let lines = request.lines(*header).into_iter().flat_map(Lines::iter);
                read(&mut lines.flat_map(|line| cookies(line, name.as_bytes())))
            }
            Source::Query(name) => read(&mut parameters(
                request.get(AttributeId::PATH).unwrap_or_default(),
                name,
                query_bytes_max,
            )),
        }
    }
}

/// The kinds of values that configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Header,
    Cookie,
    Query,
    Claim,
}

/// Reads the field `field`: the name, of at most `bytes_max` bytes, of a value of this kind.
pub(crate) fn source(
    kind: Kind,
    (field, bytes_max): (&'static str, usize),
    fields: &mut Fields<'_>,
    attributes: &mut Attributes,
) -> Option<Source> {
    let item = fields.take(field)?;
    Some(match kind {
        Kind::Query => Source::Query(item.text(bytes_max)?.to_owned()),
        Kind::Claim => {
            Source::Attribute(interned(&item, attributes, Attribute::Claim(names(field, fields)?))?)
        }
        Kind::Header => {
            let name = token(&item, bytes_max, "a header's name, as in x-api-key")?;
            Source::Attribute(interned(&item, attributes, Attribute::Header(name.to_ascii_lowercase()))?)
        }
        Kind::Cookie => {
            let name = token(&item, bytes_max, "a cookie's name, as in sid")?;
            let header = interned(&item, attributes, Attribute::Header(COOKIE.to_owned()))?;
            Source::Cookie(header, name.to_owned())
        }
    })
}

/// The header that `item` names.
pub(crate) fn header(item: &Item<'_>, attributes: &mut Attributes) -> Option<AttributeId> {
    let name = token(item, NAME_BYTES_MAX, "a header's name, as in x-http-method-override")?;
    interned(item, attributes, Attribute::Header(name.to_ascii_lowercase()))
}

fn interned(item: &Item<'_>, attributes: &mut Attributes, attribute: Attribute) -> Option<AttributeId> {
    let id = attributes.intern(attribute);
    if id.is_none() {
        item.note(format_args!("expected at most {ATTRIBUTES_MAX} headers and claims in all rules together"));
    }
    id
}

fn token<'a>(item: &'a Item<'_>, bytes_max: usize, expected: &str) -> Option<&'a str> {
    let name = item.text(bytes_max)?;
    let is_token = is_token(name);
    if !is_token {
        item.note(format_args!("expected {expected}, found {name:?}"));
    }
    is_token.then_some(name)
}

/// The field `field`: the names that lead to a claim, or to metadata. None may have a NUL, which hosts put between them.
pub(crate) fn names(field: &'static str, fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in fields.list(field, CLAIM_NAMES_MAX) {
        let Some(name) = item.text(NAME_BYTES_MAX) else { continue };
        if name.as_bytes().contains(&0) {
            item.note("expected a name without NUL");
        }
        names.push(name.to_owned());
    }
    (!names.is_empty()).then_some(names)
}

/// The field `duplicates`: which of several values of one name counts.
pub(crate) fn duplicates(fields: &mut Fields<'_>) -> Duplicates {
    fields.choice("duplicates", &Duplicates::NAMES).unwrap_or_default()
}
