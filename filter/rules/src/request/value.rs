//! Named values of a request: headers, cookies, query parameters and claims.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;

use super::encodings::{Lines, OneOf, cookies, normalise_credentials, parameters};
use super::fetched::Fetched;
use super::{ATTRIBUTES_MAX, Attribute, AttributeId, Attributes};
use crate::reading::{Fields, Item, is_token};

pub const CLAIM_NAMES_MAX: usize = 8;
pub const NAME_BYTES_MAX: usize = 128;

/// The header with a request's cookies (RFC 6265, 4.2).
const COOKIE: &str = "cookie";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A whole attribute: a header, a claim, the method, the route.
    Attribute(AttributeId),
    /// The cookie of this name, undecoded. The attribute is the cookie header.
    Cookie(AttributeId, String),
    /// The query parameter of this name, decoded.
    Query(String),
}

/// The value that counts if there are several of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Not configured. A condition tests each value, or each line of a header and all lines joined. A key takes the
    /// first cookie or parameter, and the joined text of a header.
    #[default]
    Unset,
    First,
    Last,
    /// No value: the request has no key, and tests are unsure.
    Limit,
}

/// Error for a request with several values where only one is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

impl Duplicates {
    #[inline(never)]
    pub(crate) fn pick<'a>(self, values: &mut dyn Iterator<Item = OneOf<'a>>) -> Result<Option<OneOf<'a>>, Repeated> {
        let Some(first) = values.next() else { return Ok(None) };
        match self {
            Self::Last => Ok(values.last().or(Some(first))),
            Self::Limit if values.next().is_some() => Err(Repeated),
            _ => Ok(Some(first)),
        }
    }
}

/// The values in a header's lines, joined by commas (RFC 9110, 5.3). Credentials are normalised.
pub(crate) fn of_header(joined: &[u8], are_credentials: bool) -> impl Iterator<Item = OneOf<'_>> {
    joined.split(|&b| b == b',').map(move |value| {
        let mut value = Cow::Borrowed(value.trim_ascii());
        if are_credentials {
            normalise_credentials(value.to_mut());
        }
        Some(value)
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueOf {
    pub source: Source,
    pub duplicates: Duplicates,
}

impl ValueOf {
    pub(crate) const fn attribute(id: AttributeId) -> Self {
        Self { source: Source::Attribute(id), duplicates: Duplicates::Unset }
    }

    /// Passes the request's value to `put`; false if there is none.
    pub(crate) fn put(&self, request: &mut Fetched<'_>, put: impl FnOnce(&[u8])) -> Result<bool, Repeated> {
        let value = match (&self.source, self.duplicates) {
            (Source::Attribute(id), Duplicates::Unset) => return Ok(request.get(*id).map(put).is_some()),
            (_, duplicates) => {
                self.each(request, usize::MAX, |values| Ok(duplicates.pick(values)?.flatten().map(|value| put(&value))))
            }
        };
        value.map(|value| value.is_some())
    }

    /// Passes all values of the request to `read`. The parts of a header between commas are values, too.
    pub(crate) fn each<R>(
        &self,
        request: &mut Fetched<'_>,
        query_bytes_max: usize,
        read: impl FnOnce(&mut dyn Iterator<Item = OneOf<'_>>) -> R,
    ) -> R {
        match &self.source {
            Source::Attribute(id) => {
                let are_credentials = request.attributes.is_credentials(*id);
                let joined = request.get(*id).into_iter();
                read(&mut joined.flat_map(|joined| of_header(joined, are_credentials)))
            }
            Source::Cookie(header, name) => {
                let lines = request.lines(*header).into_iter().flat_map(Lines::iter);
                read(&mut lines.flat_map(|line| cookies(line, name.as_bytes())))
            }
            Source::Query(name) => {
                read(&mut parameters(request.get(AttributeId::PATH).unwrap_or_default(), name, query_bytes_max))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Header,
    Cookie,
    Query,
    Claim,
}

/// Reads the name of a value of this kind from the field `field`. A name has at most `bytes_max` bytes.
pub(crate) fn source(
    kind: ValueKind,
    (field, bytes_max): (&'static str, usize),
    fields: &mut Fields<'_>,
    attributes: &mut Attributes,
) -> Option<Source> {
    let item = fields.take(field)?;
    Some(match kind {
        ValueKind::Query => Source::Query(item.text(bytes_max)?.to_owned()),
        ValueKind::Claim => Source::Attribute(interned(&item, attributes, Attribute::Claim(names(field, fields)?))?),
        ValueKind::Header => {
            let name = token(&item, bytes_max, "a header's name, as in x-api-key")?;
            Source::Attribute(interned(&item, attributes, Attribute::Header(name.to_ascii_lowercase()))?)
        }
        ValueKind::Cookie => {
            let name = token(&item, bytes_max, "a cookie's name, as in sid")?;
            let header = interned(&item, attributes, Attribute::Header(COOKIE.to_owned()))?;
            Source::Cookie(header, name.to_owned())
        }
    })
}

pub(crate) fn header(item: &Item<'_>, attributes: &mut Attributes) -> Option<AttributeId> {
    let name = token(item, NAME_BYTES_MAX, "a header's name, as in x-http-method-override")?;
    interned(item, attributes, Attribute::Header(name.to_ascii_lowercase()))
}

/// Maximum number of headers and claims; five other attributes always exist.
const NAMED_MAX: usize = ATTRIBUTES_MAX - 5;

fn interned(item: &Item<'_>, attributes: &mut Attributes, attribute: Attribute) -> Option<AttributeId> {
    let id = attributes.intern(attribute);
    if id.is_none() {
        item.record(format_args!("expected at most {NAMED_MAX} headers and claims in all rules together"));
    }
    id
}

fn token<'a>(item: &'a Item<'_>, bytes_max: usize, expected: &str) -> Option<&'a str> {
    let name = item.text(bytes_max)?;
    let is_token = is_token(name);
    if !is_token {
        item.record(format_args!("expected {expected}, found {name:?}"));
    }
    is_token.then_some(name)
}

/// Reads the field `field`: the path of names to a claim or to metadata. Hosts separate them by NUL.
pub(crate) fn names(field: &'static str, fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in fields.list(field, CLAIM_NAMES_MAX) {
        let Some(name) = item.text(NAME_BYTES_MAX) else { continue };
        if name.as_bytes().contains(&0) {
            item.record("expected a name without NUL");
        }
        names.push(name.to_owned());
    }
    (!names.is_empty()).then_some(names)
}

pub(crate) fn duplicates(fields: &mut Fields<'_>) -> Duplicates {
    let choices = [("first", Duplicates::First), ("last", Duplicates::Last), ("limit", Duplicates::Limit)];
    fields.choice("duplicates", &choices).unwrap_or_default()
}
