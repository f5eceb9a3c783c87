//! Reads tests of headers, cookies, query parameters and claims from configuration.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::reader::Reader;
use crate::key_spec::{claim_names, duplicates};
use crate::matching::{
    AttributeTest, CookieTest, Duplicates, PATTERN_BYTES_MAX, PROGRAMS_BYTES_MAX, Pattern, QueryTest, Test,
    Texts,
};
use crate::reading::{Errors, Fields, text};
use crate::request::{ATTRIBUTES_MAX, Attribute, AttributeId, normalise_credentials};

/// The most items of a list that has no limit of its own.
pub(super) const LIST_MAX: usize = 100;
/// The most networks, and the most values, in one list.
pub(super) const LONG_LIST_MAX: usize = 10_000;
/// The longest name of a route, a header, a cookie or a query parameter, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// The longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;

/// The header that a request's cookies are in (RFC 6265, 4.2).
const COOKIE: &str = "cookie";

pub(super) fn headers(
    fields: &mut Fields<'_>,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Vec<AttributeTest> {
    each(fields, "headers", errors, |fields, errors| {
        let name = test_name(fields, "the header's name", errors).map(str::to_ascii_lowercase);
        let name = name.and_then(|name| token(name, "header", "x-api-key", fields, errors));
        let attribute = name.and_then(|name| attribute(Attribute::Header(name), fields, reader, errors));
        let is_of_credentials = attribute.is_some_and(|id| reader.attributes.is_credentials(id));
        let test = test(fields, is_of_credentials, reader, errors);
        let duplicates = duplicates(fields, errors);
        Some(AttributeTest { attribute: attribute?, duplicates, test: test? })
    })
}

pub(super) fn cookies(fields: &mut Fields<'_>, reader: &mut Reader, errors: &mut Errors) -> Vec<CookieTest> {
    each(fields, "cookies", errors, |fields, errors| {
        let name = test_name(fields, "the cookie's name", errors).map(ToOwned::to_owned);
        let (test, duplicates) = test_of_several(fields, reader, errors);
        let name = token(name?, "cookie", "sid", fields, errors)?;
        let header = attribute(Attribute::Header(COOKIE.to_owned()), fields, reader, errors);
        Some(CookieTest { header: header?, name, duplicates, test: test? })
    })
}

pub(super) fn query(fields: &mut Fields<'_>, reader: &mut Reader, errors: &mut Errors) -> Vec<QueryTest> {
    each(fields, "query", errors, |fields, errors| {
        let name = test_name(fields, "the parameter's name", errors).map(ToOwned::to_owned);
        let (test, duplicates) = test_of_several(fields, reader, errors);
        Some(QueryTest { name: name?, duplicates, test: test? })
    })
}

pub(super) fn claims(
    fields: &mut Fields<'_>,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Vec<AttributeTest> {
    each(fields, "claims", errors, |fields, errors| {
        fields.require("name", "the names that lead to the claim, as in [payload, plan]", errors);
        let names = claim_names(fields, "name", errors);
        let test = test(fields, false, reader, errors);
        let attribute = attribute(Attribute::Claim(names?), fields, reader, errors);
        Some(AttributeTest { attribute: attribute?, duplicates: Duplicates::Unsaid, test: test? })
    })
}

/// Reads the items of the list `name`.
fn each<T>(
    fields: &mut Fields<'_>,
    name: &'static str,
    errors: &mut Errors,
    mut read: impl FnMut(&mut Fields<'_>, &mut Errors) -> Option<T>,
) -> Vec<T> {
    let mut all = Vec::new();
    each_item(fields, name, errors, &mut |fields, errors| all.extend(read(fields, errors)));
    all
}

// Not generic, so it is compiled once for every kind of item.
#[inline(never)]
fn each_item(
    fields: &mut Fields<'_>,
    name: &'static str,
    errors: &mut Errors,
    read: &mut dyn FnMut(&mut Fields<'_>, &mut Errors),
) {
    let items: Vec<_> = fields.list(name, LIST_MAX, errors).collect();
    for (place, item) in items {
        if let Some(mut fields) = Fields::of(item, &place, errors) {
            read(&mut fields, errors);
            fields.finish(errors);
        }
    }
}

fn test_name<'a>(fields: &mut Fields<'a>, expected: &str, errors: &mut Errors) -> Option<&'a str> {
    fields.require("name", expected, errors)?;
    fields.text("name", NAME_BYTES_MAX, errors)
}

/// `name`, if it is a token (RFC 9110, 5.6.2), as the names of headers and cookies are.
fn token(
    name: String,
    what: &str,
    example: &str,
    fields: &Fields<'_>,
    errors: &mut Errors,
) -> Option<String> {
    let is_token = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !is_token {
        let expected = format!("expected a {what}'s name, as in {example}, found {name:?}");
        errors.note(&fields.place("name"), expected);
    }
    is_token.then_some(name)
}

fn attribute(
    attribute: Attribute,
    fields: &Fields<'_>,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Option<AttributeId> {
    let id = reader.attributes.intern(attribute);
    if id.is_none() {
        let expected = format!("expected at most {ATTRIBUTES_MAX} headers and the like in all");
        errors.note(&fields.place("name"), expected);
    }
    id
}

/// The list `name`, of values.
pub(crate) fn texts(
    fields: &mut Fields<'_>,
    name: &'static str,
    errors: &mut Errors,
    as_it_is: impl Fn(&str) -> String,
) -> Texts {
    let items = fields.list(name, LONG_LIST_MAX, errors);
    items.filter_map(|(place, item)| text(item, &place, VALUE_BYTES_MAX, errors)).map(as_it_is).collect()
}

/// What a cookie or a parameter must be; a request may have several of one name.
#[inline(never)]
fn test_of_several(
    fields: &mut Fields<'_>,
    reader: &mut Reader,
    errors: &mut Errors,
) -> (Option<Test>, Duplicates) {
    let test = test(fields, false, reader, errors);
    match duplicates(fields, errors) {
        // Else a client could cause as many searches as it likes.
        Duplicates::Unsaid if test.as_ref().is_some_and(Test::is_dear) => (test, Duplicates::Limit),
        duplicates => (test, duplicates),
    }
}

/// What a value must be; credentials are normalised as those in requests are.
#[inline(never)]
fn test(
    fields: &mut Fields<'_>,
    is_of_credentials: bool,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Option<Test> {
    let as_requests_have = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        if is_of_credentials {
            normalise_credentials(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let given = ["equals", "in", "prefix", "regex", "present"].map(|name| fields.take(name).is_some());
    if given.into_iter().filter(|is_given| *is_given).count() != 1 {
        let (place, expected) = (fields.place(""), "expected one of equals, in, prefix, regex and present");
        errors.note(place.trim_end_matches('.'), expected);
        return None;
    }
    if fields.take("in").is_some() {
        return Some(Test::In(texts(fields, "in", errors, as_requests_have)));
    }
    if let Some(equals) = fields.text("equals", VALUE_BYTES_MAX, errors) {
        return Some(Test::In([as_requests_have(equals)].into_iter().collect()));
    }
    if let Some(prefix) = fields.text("prefix", VALUE_BYTES_MAX, errors) {
        return Some(if is_of_credentials {
            prefix_of_credentials(prefix, &as_requests_have)
        } else {
            Test::Prefix(prefix.to_owned())
        });
    }
    if let Some(is_there) = fields.boolean("present", errors) {
        return Some(Test::Present(is_there));
    }
    let regex = fields.text("regex", PATTERN_BYTES_MAX, errors)?;
    pattern(regex, &fields.place("regex"), is_of_credentials, reader, errors).map(Test::Regex)
}

/// A prefix that ends within a scheme is compared in any case; blanks after a whole scheme count as one.
fn prefix_of_credentials(prefix: &str, as_requests_have: &impl Fn(&str) -> String) -> Test {
    match prefix.trim_ascii_start().split_once([' ', '\t']) {
        None => Test::PrefixInAnyCase(prefix.trim_ascii_start().to_owned()),
        Some((scheme, rest)) if rest.trim_ascii().is_empty() => {
            Test::Prefix(scheme.to_ascii_lowercase() + " ")
        }
        Some(_) => Test::Prefix(as_requests_have(prefix)),
    }
}

fn pattern(
    regex: &str,
    place: &str,
    is_of_credentials: bool,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Option<Pattern> {
    let compiled = Pattern::new(regex, is_of_credentials);
    match &compiled {
        Err(error) => {
            let expected = format!("expected a regular expression within bounds: {error}, found {regex:?}");
            errors.note(place, expected);
        }
        Ok(pattern) => {
            let takes = pattern.program_bytes();
            reader.programs_bytes += takes;
            let all = reader.programs_bytes;
            if all > PROGRAMS_BYTES_MAX {
                let expected = format!(
                    "expected regular expressions that take at most {PROGRAMS_BYTES_MAX} bytes in all, compiled; this \
                     one takes {takes}, which makes {all}: a request would cost too much"
                );
                errors.note(place, expected);
            }
        }
    }
    compiled.ok()
}
