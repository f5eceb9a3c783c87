//! Reads conditions from configuration.

#[cfg(test)]
mod tests;
mod values;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use super::addresses::{AddressSet, Range};
use super::condition::{Clause, Condition, Test};
use super::glob::GLOB_BYTES_MAX;
use super::hosts::Hosts;
use super::path::{PathMatch, Written};
use crate::reading::{Errors, Fields, Reader, shown, text};
use crate::request::{Folding, HOST_BYTES_MAX};
pub(crate) use values::texts as long_texts;
use values::{LIST_MAX, LONG_LIST_MAX, NAME_BYTES_MAX, value_tests};

/// The most conditions in one list.
pub const CONDITIONS_MAX: usize = 100;
/// The most wildcards in all globs of one rule set.
const WILDCARDS_MAX: usize = 4_096;
/// The longest method, in bytes.
const METHOD_BYTES_MAX: usize = 32;
/// The longest path in a rule, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// The longest network as it is written, in bytes.
const NETWORK_BYTES_MAX: usize = 64;

/// The list `name`, of conditions.
pub(crate) fn conditions(
    fields: &mut Fields<'_>,
    name: &'static str,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (place, item) in fields.list(name, CONDITIONS_MAX, errors) {
        note_if_empty(item, &place, errors);
        conditions.extend(condition(item, &place, reader, errors));
    }
    conditions
}

/// Notes an empty condition where it is most likely a slip: it would hold for every request.
fn note_if_empty(value: &Value, place: &str, errors: &mut Errors) {
    if value.as_object().is_some_and(serde_json::Map::is_empty) {
        errors.note(place, "empty: expected a condition, as in {path: {prefix: /api}}");
    }
}

/// A condition.
pub(crate) fn condition(
    value: &Value,
    place: &str,
    reader: &mut Reader,
    errors: &mut Errors,
) -> Option<Condition> {
    let mut fields = Fields::of(value, place, errors)?;
    let all = clause(&mut fields, reader, errors);
    let items: Vec<_> = fields.list("any", LIST_MAX, errors).collect();
    let any = items.iter().filter_map(|(place, item)| lone_clause(item, place, reader, errors)).collect();
    let not_place = fields.place("not");
    let not = fields.take("not").and_then(|value| lone_clause(value, &not_place, reader, errors));
    fields.finish(errors);
    Some(Condition { all, any, not: not.map(Box::new) })
}

/// A condition within a condition; it may not have conditions of its own.
fn lone_clause(value: &Value, place: &str, reader: &mut Reader, errors: &mut Errors) -> Option<Clause> {
    let mut fields = Fields::of(value, place, errors)?;
    note_if_empty(value, place, errors);
    let clause = clause(&mut fields, reader, errors);
    fields.finish(errors);
    Some(clause)
}

fn clause(fields: &mut Fields<'_>, reader: &mut Reader, errors: &mut Errors) -> Clause {
    let mut tests = Vec::new();
    tests.extend(texts(fields, "methods", METHOD_BYTES_MAX, errors).map(Test::Methods));
    tests.extend(paths(fields, reader, errors).map(Test::Paths));
    tests.extend(hosts(fields, errors).map(Test::Hosts));
    tests.extend(texts(fields, "routes", NAME_BYTES_MAX, errors).map(Test::Routes));
    tests.extend(addresses(fields, errors).map(Test::Addresses));
    value_tests(fields, reader, errors, &mut tests);
    Clause { tests }
}

/// The list `name`, of texts.
fn texts(
    fields: &mut Fields<'_>,
    name: &'static str,
    bytes_max: usize,
    errors: &mut Errors,
) -> Option<Vec<String>> {
    fields.take(name)?;
    let items: Vec<_> = fields.list(name, LIST_MAX, errors).collect();
    let texts = items.iter().filter_map(|(place, item)| text(item, place, bytes_max, errors));
    Some(texts.map(ToOwned::to_owned).collect())
}

fn hosts(fields: &mut Fields<'_>, errors: &mut Errors) -> Option<Hosts> {
    fields.take("hosts")?;
    let mut hosts = Hosts::default();
    for (place, item) in fields.list("hosts", LIST_MAX, errors) {
        if text(item, &place, HOST_BYTES_MAX, errors).is_some_and(|host| !hosts.add(host)) {
            let expected = "a host without its port, as in api.example.com or *.example.com";
            errors.note_found(&place, expected, item);
        }
    }
    Some(hosts)
}

fn paths(fields: &mut Fields<'_>, reader: &mut Reader, errors: &mut Errors) -> Option<Vec<PathMatch>> {
    let (one_place, many_place) = (fields.place("path"), fields.place("paths"));
    let (one, has_many) = (fields.take("path"), fields.take("paths").is_some());
    if one.is_some() && has_many {
        errors.note(&many_place, "expected either path or paths");
    }
    let items: Vec<_> = one
        .map(|value| (one_place, value))
        .into_iter()
        .chain(fields.list("paths", LIST_MAX, errors))
        .collect();
    let paths = items.iter().filter_map(|(place, item)| path(item, place, reader, errors)).collect();
    (one.is_some() || has_many).then_some(paths)
}

fn path(value: &Value, place: &str, reader: &mut Reader, errors: &mut Errors) -> Option<PathMatch> {
    if let Some(path) = value.as_str().filter(|path| path.starts_with('/')) {
        let problem = format!("expected an object: did you mean {{exact: {path}}} or {{prefix: {path}}}?");
        errors.note(place, problem);
        return None;
    }
    let mut fields = Fields::of(value, place, errors)?;
    let exact = fields.text("exact", PATH_BYTES_MAX, errors);
    let prefix = fields.text("prefix", PATH_BYTES_MAX, errors);
    let glob = fields.text("glob", GLOB_BYTES_MAX, errors);
    let given = ["exact", "prefix", "glob"].map(|name| fields.take(name).is_some());
    if given.into_iter().filter(|is_given| *is_given).count() != 1 {
        errors.note(place, "expected exact, prefix or glob, as in {prefix: /api}");
        fields.finish(errors);
        return None;
    }
    let text = exact.or(prefix).or(glob);
    if text.is_some_and(|text| !text.starts_with('/')) {
        errors.note(place, "expected a path that begins with /");
    }
    reader.wildcards += glob.map_or(0, |glob| glob.bytes().filter(|b| *b == b'*').count());
    if reader.wildcards > WILDCARDS_MAX {
        errors.note(place, format!("expected at most {WILDCARDS_MAX} wildcards of globs in all"));
    }
    let (sure, open) = folding(text.unwrap_or_default(), &mut fields, errors);
    fields.finish(errors);
    let text = text?.to_owned();
    let written = match given {
        [true, ..] => Written::Exact(text),
        [_, true, _] => Written::Prefix(text),
        _ => Written::Glob(text),
    };
    PathMatch::new(written, sure, open)
}

/// The differences between paths that are ignored, and those that are left open because the rule does not say.
fn folding(path: &str, fields: &mut Fields<'_>, errors: &mut Errors) -> (Folding, Folding) {
    let (mut sure, mut open) = (Folding::NONE, Folding::ALL);
    let parameters_place = fields.place("parameters");
    // A path written with parameters is not meant to match one without.
    if path.contains(';') {
        open = open.without(Folding::PARAMETERS);
    }
    for (name, folding) in Folding::NAMES {
        match fields.choice(name, &[("exact", false), ("ignore", true)], errors) {
            Some(true) => sure = sure.with(folding),
            Some(false) => open = open.without(folding),
            None => {}
        }
    }
    if sure.has(Folding::PARAMETERS) && path.contains(';') {
        errors.note(&parameters_place, "expected exact: the path has parameters");
    }
    (sure, open)
}

fn addresses(fields: &mut Fields<'_>, errors: &mut Errors) -> Option<AddressSet> {
    fields.take("addresses")?;
    let mut networks = Vec::new();
    for (place, item) in fields.list("addresses", LONG_LIST_MAX, errors) {
        let Some(text) = text(item, &place, NETWORK_BYTES_MAX, errors) else { continue };
        match Range::parse(text) {
            Ok(network) => networks.push(network),
            Err(error) => errors.note(&place, format!("{error}, found {}", shown(item))),
        }
    }
    Some(networks.into_iter().collect())
}
