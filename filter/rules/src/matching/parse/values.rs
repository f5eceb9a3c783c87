//! Parser of tests of headers, cookies, query parameters and claims.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::matching::condition::Test;
use crate::matching::value::{PATTERN_BYTES_MAX, PROGRAMS_BYTES_MAX, Pattern, Texts, ValueTest};
use crate::reading::{Fields, Item, Reader};
use crate::request::{Duplicates, Source, ValueKind, ValueOf, duplicates, normalise_credentials, source};

/// Maximum number of items of a list without a limit of its own.
pub(super) const LIST_MAX: usize = 100;
/// Maximum number of networks, and of values, in one list.
pub(super) const LONG_LIST_MAX: usize = 10_000;
/// Longest name of a route, a header, a cookie or a query parameter, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;

/// The fields that list tests of values, with the kind of value and the description of its name.
const LISTS: [(&str, ValueKind, &str); 4] = [
    ("headers", ValueKind::Header, "the header's name"),
    ("cookies", ValueKind::Cookie, "the cookie's name"),
    ("query", ValueKind::Query, "the parameter's name"),
    ("claims", ValueKind::Claim, "the names that lead to the claim, as in [payload, plan]"),
];

/// Adds the tests of headers, cookies, query parameters and claims to `tests`.
pub(super) fn value_tests(fields: &mut Fields<'_>, reader: &mut Reader, tests: &mut Vec<Test>) {
    for (list, kind, name) in LISTS {
        for item in fields.list(list, LIST_MAX) {
            let Some(mut fields) = item.fields() else { continue };
            fields.require("name", name);
            tests.extend(value_test(kind, &mut fields, reader));
            fields.finish();
        }
    }
}

fn value_test(kind: ValueKind, fields: &mut Fields<'_>, reader: &mut Reader) -> Option<Test> {
    let source = source(kind, ("name", NAME_BYTES_MAX), fields, &mut reader.attributes);
    let is_of_credentials =
        matches!(&source, Some(Source::Attribute(id)) if reader.attributes.is_credentials(*id));
    let test = test(fields, is_of_credentials, reader);
    let duplicates = match kind {
        ValueKind::Claim => Duplicates::Unsaid,
        _ => duplicates(fields),
    };
    let (source, test) = (source?, test?);
    let duplicates = match (kind, duplicates) {
        // Otherwise a client could cause an unlimited number of searches.
        (ValueKind::Cookie | ValueKind::Query, Duplicates::Unsaid) if test.is_dear() => Duplicates::Limit,
        (_, duplicates) => duplicates,
    };
    Some(Test::Value(ValueOf { source, duplicates }, test))
}

/// Reads the field `name`, a list of values.
pub(crate) fn texts(fields: &mut Fields<'_>, name: &'static str, as_it_is: impl Fn(&str) -> String) -> Texts {
    fields.list(name, LONG_LIST_MAX).filter_map(|item| item.text(VALUE_BYTES_MAX)).map(as_it_is).collect()
}

/// Reads the test of a value. Credentials are normalised like those in requests.
#[inline(never)]
fn test(fields: &mut Fields<'_>, is_of_credentials: bool, reader: &mut Reader) -> Option<ValueTest> {
    let as_requests_have = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        if is_of_credentials {
            normalise_credentials(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let given = ["equals", "in", "prefix", "regex", "present"].map(|name| fields.has(name));
    if given.into_iter().filter(|is_given| *is_given).count() != 1 {
        fields.record("expected one of equals, in, prefix, regex and present");
        return None;
    }
    if fields.has("in") {
        return Some(ValueTest::In(texts(fields, "in", as_requests_have)));
    }
    if let Some(equals) = fields.text("equals", VALUE_BYTES_MAX) {
        return Some(ValueTest::In([as_requests_have(equals)].into_iter().collect()));
    }
    if let Some(prefix) = fields.text("prefix", VALUE_BYTES_MAX) {
        return Some(if is_of_credentials {
            prefix_of_credentials(prefix, &as_requests_have)
        } else {
            ValueTest::Prefix(prefix.to_owned())
        });
    }
    if let Some(is_there) = fields.boolean("present") {
        return Some(ValueTest::Present(is_there));
    }
    fields.take("regex").and_then(|item| pattern(&item, is_of_credentials, reader)).map(ValueTest::Regex)
}

/// Reads a prefix of credentials. A prefix that ends within the scheme is compared in any case; blanks after
/// a whole scheme count as one.
fn prefix_of_credentials(prefix: &str, as_requests_have: &impl Fn(&str) -> String) -> ValueTest {
    match prefix.trim_ascii_start().split_once([' ', '\t']) {
        None => ValueTest::PrefixInAnyCase(prefix.trim_ascii_start().to_owned()),
        Some((scheme, rest)) if rest.trim_ascii().is_empty() => {
            ValueTest::Prefix(scheme.to_ascii_lowercase() + " ")
        }
        Some(_) => ValueTest::Prefix(as_requests_have(prefix)),
    }
}

fn pattern(item: &Item<'_>, is_of_credentials: bool, reader: &mut Reader) -> Option<Pattern> {
    let regex = item.text(PATTERN_BYTES_MAX)?;
    let compiled = Pattern::new(regex, is_of_credentials);
    match &compiled {
        Err(error) => {
            item.record(format_args!(
                "expected a regular expression within bounds: {error}, found {regex:?}"
            ));
        }
        Ok(pattern) => {
            let takes = pattern.program_bytes();
            reader.programs_bytes += takes;
            let all = reader.programs_bytes;
            if all > PROGRAMS_BYTES_MAX {
                item.record(format_args!(
                    "expected regular expressions that take at most {PROGRAMS_BYTES_MAX} bytes in all, compiled; this \
                     one takes {takes}, which makes {all}"
                ));
            }
        }
    }
    compiled.ok()
}
