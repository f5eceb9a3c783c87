//! Reads tests of headers, cookies, query parameters and claims from configuration.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::matching::condition::Test;
use crate::matching::value::{PATTERN_BYTES_MAX, PROGRAMS_BYTES_MAX, Pattern, Texts, ValueTest};
use crate::reading::{Errors, Fields, Reader, text};
use crate::request::{Duplicates, Kind, Source, ValueOf, duplicates, normalise_credentials, source};

/// The most items of a list that has no limit of its own.
pub(super) const LIST_MAX: usize = 100;
/// The most networks, and the most values, in one list.
pub(super) const LONG_LIST_MAX: usize = 10_000;
/// The longest name of a route, a header, a cookie or a query parameter, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// The longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;

/// The fields that list tests of values, and what each value's name is.
const LISTS: [(&str, Kind, &str); 4] = [
    ("headers", Kind::Header, "the header's name"),
    ("cookies", Kind::Cookie, "the cookie's name"),
    ("query", Kind::Query, "the parameter's name"),
    ("claims", Kind::Claim, "the names that lead to the claim, as in [payload, plan]"),
];

/// Adds the tests of headers, cookies, query parameters and claims to `tests`.
pub(super) fn value_tests(
    fields: &mut Fields<'_>,
    reader: &mut Reader,
    errors: &mut Errors,
    tests: &mut Vec<Test>,
) {
    for (list, kind, name) in LISTS {
        for (place, item) in fields.list(list, LIST_MAX, errors) {
            let Some(mut fields) = Fields::of(item, &place, errors) else { continue };
            fields.require("name", name, errors);
            tests.extend(value_test(kind, &mut fields, reader, errors));
            fields.finish(errors);
        }
    }
}

fn value_test(kind: Kind, fields: &mut Fields<'_>, reader: &mut Reader, errors: &mut Errors) -> Option<Test> {
    let source = source(kind, ("name", NAME_BYTES_MAX), fields, &mut reader.attributes, errors);
    let is_of_credentials =
        matches!(&source, Some(Source::Attribute(id)) if reader.attributes.is_credentials(*id));
    let test = test(fields, is_of_credentials, reader, errors);
    let duplicates = match kind {
        Kind::Claim => Duplicates::Unsaid,
        _ => duplicates(fields, errors),
    };
    let (source, test) = (source?, test?);
    let duplicates = match (kind, duplicates) {
        // Else a client could cause as many searches as it likes.
        (Kind::Cookie | Kind::Query, Duplicates::Unsaid) if test.is_dear() => Duplicates::Limit,
        (_, duplicates) => duplicates,
    };
    Some(Test::Value(ValueOf { source, duplicates }, test))
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

/// What a value must be; credentials are normalised as those in requests are.
#[inline(never)]
fn test(
    fields: &mut Fields<'_>,
    is_of_credentials: bool,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Option<ValueTest> {
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
        return Some(ValueTest::In(texts(fields, "in", errors, as_requests_have)));
    }
    if let Some(equals) = fields.text("equals", VALUE_BYTES_MAX, errors) {
        return Some(ValueTest::In([as_requests_have(equals)].into_iter().collect()));
    }
    if let Some(prefix) = fields.text("prefix", VALUE_BYTES_MAX, errors) {
        return Some(if is_of_credentials {
            prefix_of_credentials(prefix, &as_requests_have)
        } else {
            ValueTest::Prefix(prefix.to_owned())
        });
    }
    if let Some(is_there) = fields.boolean("present", errors) {
        return Some(ValueTest::Present(is_there));
    }
    let regex = fields.text("regex", PATTERN_BYTES_MAX, errors)?;
    pattern(regex, &fields.place("regex"), is_of_credentials, reader, errors).map(ValueTest::Regex)
}

/// A prefix that ends within a scheme is compared in any case; blanks after a whole scheme count as one.
fn prefix_of_credentials(prefix: &str, as_requests_have: &impl Fn(&str) -> String) -> ValueTest {
    match prefix.trim_ascii_start().split_once([' ', '\t']) {
        None => ValueTest::PrefixInAnyCase(prefix.trim_ascii_start().to_owned()),
        Some((scheme, rest)) if rest.trim_ascii().is_empty() => {
            ValueTest::Prefix(scheme.to_ascii_lowercase() + " ")
        }
        Some(_) => ValueTest::Prefix(as_requests_have(prefix)),
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
