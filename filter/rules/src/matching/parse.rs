//! Parser of conditions in configuration.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use super::addresses::{AddressSet, Range};
use super::condition::{Clause, Condition, End, Test};
use super::glob::GLOB_BYTES_MAX;
use super::hosts::Hosts;
use super::path::{PathMatch, Written};
use super::value::{PATTERN_BYTES_MAX, PROGRAMS_BYTES_MAX, Pattern, Texts, ValueTest};
use crate::reading::{Fields, Item, Reader, meant};
use crate::request::{
    Duplicates, Folding, HOST_BYTES_MAX, Source, ValueKind, ValueOf, duplicates, header, normalise_credentials, source,
};

pub const CONDITIONS_MAX: usize = 100;
/// Maximum number of wildcards in all globs of a rule set together.
const WILDCARDS_MAX: usize = 4_096;
const METHOD_BYTES_MAX: usize = 32;
const OVERRIDES_MAX: usize = 8;
const PATH_BYTES_MAX: usize = 1_024;
/// Latest end of a condition, the end of the year 9999, in milliseconds since 1970.
const UNTIL_MS_MAX: u64 = 253_402_300_799_999;
const NETWORK_BYTES_MAX: usize = 64;

/// Maximum number of items of a list that has no limit of its own.
const LIST_MAX: usize = 100;
/// Maximum number of networks, and of values, in one list.
const LONG_LIST_MAX: usize = 10_000;
/// Longest name of a route, a header, a cookie or a query parameter, in bytes.
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 1_024;

pub(crate) fn conditions(fields: &mut Fields<'_>, name: &'static str, reader: &mut Reader) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for item in fields.list(name, CONDITIONS_MAX) {
        record_if_empty(&item);
        conditions.extend(condition(&item, reader));
    }
    conditions
}

/// Records an error for an empty condition, which is most likely a mistake.
fn record_if_empty(item: &Item<'_>) {
    if item.value().as_object().is_some_and(serde_json::Map::is_empty) {
        item.record("empty: expected a condition, as in {path: {prefix: /api}}");
    }
}

pub(crate) fn condition(item: &Item<'_>, reader: &mut Reader) -> Option<Condition> {
    let mut fields = item.fields()?;
    let all = clause(&mut fields, reader);
    let any = fields.list("any", LIST_MAX).filter_map(|item| lone_clause(&item, reader)).collect();
    let not = fields.take("not").and_then(|item| lone_clause(&item, reader));
    let end = fields.take("until_ms").map_or_else(End::default, |item| end(&item));
    fields.finish_with(meant::of_condition);
    Some(Condition { all, any, not: not.map(Box::new), end })
}

fn end(item: &Item<'_>) -> End {
    let end_ms = item.whole().filter(|ms| (1..=UNTIL_MS_MAX).contains(ms));
    if end_ms.is_none() {
        item.record_unexpected(format_args!("milliseconds since 1970, from 1 to {UNTIL_MS_MAX}"));
    }
    end_ms.map_or_else(End::default, End::at)
}

/// Reads a condition within another, which may not contain conditions itself.
fn lone_clause(item: &Item<'_>, reader: &mut Reader) -> Option<Clause> {
    let mut fields = item.fields()?;
    record_if_empty(item);
    let clause = clause(&mut fields, reader);
    fields.finish_with(meant::of_condition);
    Some(clause)
}

fn clause(fields: &mut Fields<'_>, reader: &mut Reader) -> Clause {
    let mut clause = Clause::default();
    clause.add(method_test(fields, reader));
    clause.add(paths(fields, reader).map(Test::Paths));
    clause.add(hosts(fields).map(Test::Hosts));
    clause.add(texts(fields, "routes", "routes", NAME_BYTES_MAX).map(Test::Routes));
    clause.add(addresses(fields).map(Test::Addresses));
    value_tests(fields, reader, &mut clause);
    clause
}

fn method_test(fields: &mut Fields<'_>, reader: &mut Reader) -> Option<Test> {
    let methods = methods(fields);
    let overrides = fields.take("method_override");
    if let (Some(item), None) = (&overrides, &methods) {
        item.record("expected only beside methods");
    }
    let items = fields.list("method_override", OVERRIDES_MAX);
    let headers: Vec<_> = items.filter_map(|item| header(&item, &mut reader.attributes)).collect();
    let methods = methods?;
    Some(if overrides.is_some() { Test::OverriddenMethods(methods, headers) } else { Test::Methods(methods) })
}

/// Reads the field `name`, a list of texts; errors state its full name, `full_name`.
fn texts(fields: &mut Fields<'_>, name: &'static str, full_name: &str, bytes_max: usize) -> Option<Vec<String>> {
    fields.take(name)?;
    let texts = fields.list_as(name, full_name, LIST_MAX).filter_map(|item| item.text(bytes_max));
    Some(texts.map(ToOwned::to_owned).collect())
}

fn methods(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let (one, many) = (fields.take("method"), fields.take("methods"));
    if let (Some(_), Some(many)) = (&one, &many) {
        many.record("expected either method or methods");
    }
    texts(fields, if one.is_some() { "method" } else { "methods" }, "methods", METHOD_BYTES_MAX)
}

fn hosts(fields: &mut Fields<'_>) -> Option<Hosts> {
    fields.take("hosts")?;
    let mut hosts = Hosts::default();
    for item in fields.list("hosts", LIST_MAX) {
        if item.text(HOST_BYTES_MAX).is_some_and(|host| !hosts.add(host)) {
            item.record_unexpected("a host without its port, as in api.example.com or *.example.com");
        }
    }
    Some(hosts)
}

fn paths(fields: &mut Fields<'_>, reader: &mut Reader) -> Option<Vec<PathMatch>> {
    let (one, many) = (fields.take("path"), fields.take("paths"));
    if let (Some(_), Some(many)) = (&one, &many) {
        many.record("expected either path or paths");
    }
    let is_asked = one.is_some() || many.is_some();
    let items = one.into_iter().chain(fields.list("paths", LIST_MAX));
    let paths = items.filter_map(|item| path(&item, reader)).collect();
    is_asked.then_some(paths)
}

fn path(item: &Item<'_>, reader: &mut Reader) -> Option<PathMatch> {
    let (written, (sure, open)) = written_path(item)?;
    if !written.text().starts_with('/') {
        item.record("expected a path that begins with /");
    }
    if let Written::Glob(glob) = &written {
        reader.wildcards += glob.bytes().filter(|b| *b == b'*').count();
    }
    if reader.wildcards > WILDCARDS_MAX {
        item.record(format_args!("expected at most {WILDCARDS_MAX} wildcards of globs in all"));
    }
    PathMatch::new(written, sure, open)
}

/// Reads a path, the differences to ignore, and those left open.
fn written_path(item: &Item<'_>) -> Option<(Written, (Folding, Folding))> {
    if let Some(text) = item.value().as_str() {
        // A path with a wildcard is a glob.
        let is_glob = text.contains('*');
        let (kind, bytes_max) = if is_glob { ("glob", GLOB_BYTES_MAX) } else { ("exact", PATH_BYTES_MAX) };
        let text = item.text(bytes_max)?.to_owned();
        item.is_short_for(|| Value::Object([(kind.to_owned(), text.clone().into())].into_iter().collect()));
        let folding = folding(&text, None);
        return Some((if is_glob { Written::Glob(text) } else { Written::Exact(text) }, folding));
    }
    let mut fields = item.fields()?;
    let exact = fields.text("exact", PATH_BYTES_MAX);
    let prefix = fields.text("prefix", PATH_BYTES_MAX);
    let glob = fields.text("glob", GLOB_BYTES_MAX);
    let Some(given) = fields.only(&["exact", "prefix", "glob"]) else {
        item.record("expected exact, prefix or glob, as in {prefix: /api}");
        fields.finish();
        return None;
    };
    let text = exact.or(prefix).or(glob);
    let folding = folding(text.unwrap_or_default(), Some(&mut fields));
    fields.finish();
    let text = text?.to_owned();
    let written = match given {
        "exact" => Written::Exact(text),
        "prefix" => Written::Prefix(text),
        _ => Written::Glob(text),
    };
    Some((written, folding))
}

/// Reads the differences between paths to ignore, and those that the rule leaves open.
fn folding(path: &str, fields: Option<&mut Fields<'_>>) -> (Folding, Folding) {
    let (mut sure, mut open) = (Folding::NONE, Folding::ALL);
    // A path written with parameters is not meant to match paths without them.
    if path.as_bytes().contains(&b';') {
        open = open.without(Folding::PARAMETERS);
    }
    let Some(fields) = fields else { return (sure, open) };
    for &(name, folding) in &Folding::NAMES {
        match fields.choice(name, &[("exact", false), ("ignore", true)]) {
            Some(true) => sure = sure.with(folding),
            Some(false) => open = open.without(folding),
            None => {}
        }
    }
    if sure.has(Folding::PARAMETERS) && path.as_bytes().contains(&b';') {
        fields.record_at("parameters", "expected exact: the path has parameters");
    }
    (sure, open)
}

fn addresses(fields: &mut Fields<'_>) -> Option<AddressSet> {
    fields.take("addresses")?;
    let items = fields.list("addresses", LONG_LIST_MAX);
    let networks = items.filter(|item| item.text(NETWORK_BYTES_MAX).is_some());
    Some(networks.filter_map(|item| item.parsed::<Range>()).collect())
}

/// Fields that list tests of values, the kind of value, and the description of its name.
const LISTS: [(&str, ValueKind, &str); 4] = [
    ("headers", ValueKind::Header, "the header's name"),
    ("cookies", ValueKind::Cookie, "the cookie's name"),
    ("query", ValueKind::Query, "the parameter's name"),
    ("claims", ValueKind::Claim, "the names that lead to the claim, as in [payload, plan]"),
];

fn value_tests(fields: &mut Fields<'_>, reader: &mut Reader, clause: &mut Clause) {
    for &(list, kind, name) in &LISTS {
        for item in fields.list(list, LIST_MAX) {
            let Some(mut fields) = item.fields() else { continue };
            fields.require("name", name);
            clause.add(value_test(kind, &mut fields, reader));
            fields.finish();
        }
    }
}

fn value_test(kind: ValueKind, fields: &mut Fields<'_>, reader: &mut Reader) -> Option<Test> {
    let source = source(kind, ("name", NAME_BYTES_MAX), fields, &mut reader.attributes);
    let is_of_credentials = matches!(&source, Some(Source::Attribute(id)) if reader.attributes.is_credentials(*id));
    let test = test_of_value(fields, is_of_credentials, reader);
    let duplicates = match kind {
        ValueKind::Claim => Duplicates::Unset,
        _ => duplicates(fields),
    };
    let (source, test) = (source?, test?);
    let duplicates = match (kind, duplicates) {
        // Without a limit, a client could cause any number of searches.
        (ValueKind::Cookie | ValueKind::Query, Duplicates::Unset) if test.is_dear() => Duplicates::Limit,
        (_, duplicates) => duplicates,
    };
    Some(Test::Value(ValueOf { source, duplicates }, test))
}

pub(crate) fn long_texts(fields: &mut Fields<'_>, name: &'static str, as_it_is: &dyn Fn(&str) -> String) -> Texts {
    fields.list(name, LONG_LIST_MAX).filter_map(|item| item.text(VALUE_BYTES_MAX)).map(as_it_is).collect()
}

/// Reads the test of a value. Credentials are normalised like those in requests.
#[inline(never)]
fn test_of_value(fields: &mut Fields<'_>, is_of_credentials: bool, reader: &mut Reader) -> Option<ValueTest> {
    let as_requests_have = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        if is_of_credentials {
            normalise_credentials(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if fields.only(&["equals", "in", "prefix", "regex", "present"]).is_none() {
        fields.record("expected one of equals, in, prefix, regex and present");
        return None;
    }
    if fields.has("in") {
        return Some(ValueTest::In(long_texts(fields, "in", &as_requests_have)));
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

/// A prefix of credentials. The scheme is compared in any case; blanks after a whole scheme count as one.
fn prefix_of_credentials(prefix: &str, as_requests_have: &dyn Fn(&str) -> String) -> ValueTest {
    match prefix.trim_ascii_start().split_once([' ', '\t']) {
        None => ValueTest::PrefixInAnyCase(prefix.trim_ascii_start().to_owned()),
        Some((scheme, rest)) if rest.trim_ascii().is_empty() => ValueTest::Prefix(scheme.to_ascii_lowercase() + " "),
        Some(_) => ValueTest::Prefix(as_requests_have(prefix)),
    }
}

fn pattern(item: &Item<'_>, is_of_credentials: bool, reader: &mut Reader) -> Option<Pattern> {
    let regex = item.text(PATTERN_BYTES_MAX)?;
    let compiled = Pattern::new(regex, is_of_credentials);
    match &compiled {
        Err(error) => {
            item.record(format_args!("expected a regular expression within bounds: {error}, found {regex:?}"));
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
