//! Rules for the limits of an envoyproxy/ratelimit configuration.
//!
//! A request's descriptor is looked up entry by entry: at each depth first the value itself, then the wildcards in
//! written order, then the key without a value; there is no backtracking. So a limit counts the descriptors with the
//! keys on its path whose values match it, unless a sibling has precedence.
//!
//! Request data that only a gateway has is in claims under `ratelimit`: `domain`, `entries` (the keys of the request's
//! descriptor), `entry` and a key (the value of that entry), `beside` (the request's other descriptors).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use weir_protocol::messages::RULES_MAX;
use weir_rules::reading::ConfigError;

use super::config::{Amount, DescriptorNode, Domain, ImportedLimit, Value};
use crate::document::{Document, Form};

const NAME_BYTES_MAX: usize = 64;
/// Regular expression for any key or value in `beside`.
const ANY_BESIDE: &str = "(?:[^%,;=]|%..)*";
/// Claim that no request has, because no entry has this name under `ratelimit`.
const NOTHING: &str = "[ratelimit, nothing]";

/// Writes the rules for `domains`. An error has one line for each thing that rules cannot express.
pub(super) fn write(domains: &[Domain]) -> Result<String, String> {
    let text = "# Made from a configuration of envoyproxy/ratelimit by `weir-sync import ratelimit`.\nrules:\n";
    let mut written = Written { text: text.into(), places: Vec::new(), names: BTreeSet::new() };
    let mut errors = Vec::new();
    for domain in domains {
        let limits = limits(domain).map_err(|error| errors.push(error)).unwrap_or_default();
        write_lost(&domain.nodes, &mut written.text);
        for limit in &limits {
            written.rule(domain, limit);
        }
    }
    if errors.is_empty() && written.places.is_empty() {
        errors.push("expected a rate_limit: there is nothing to write a rule for".into());
    }
    if errors.is_empty() {
        let read = Document::read(written.text.as_bytes(), Form::Yaml);
        let message = |error: &ConfigError| {
            let ConfigError { place, problem } = error;
            let number = place.strip_prefix("rules[").and_then(|rest| rest.split(']').next()?.parse::<usize>().ok());
            match number.and_then(|number| written.places.get(number)) {
                Some(limit) => format!("{limit}: the rule for it cannot be written: {place}: {problem}"),
                None => format!("the rules cannot be written: {place}: {problem}"),
            }
        };
        errors.extend(read.err().iter().flatten().map(message));
    }
    if errors.is_empty() { Ok(written.text) } else { Err(errors.join("\n")) }
}

fn write_lost(nodes: &[DescriptorNode], text: &mut String) {
    for node in nodes {
        for what in &node.lost {
            let _ = writeln!(text, "# warning: {}: {what}", node.place);
        }
        write_lost(&node.nodes, text);
    }
}

struct Written {
    text: String,
    /// Place of each rule's limit.
    places: Vec<String>,
    names: BTreeSet<String>,
}

impl Written {
    fn rule(&mut self, domain: &Domain, counted: &CountedLimit<'_>) {
        let CountedLimit { limit, way, .. } = counted;
        let entries: Vec<_> = way.iter().map(|node| in_words(node)).collect();
        let _ = writeln!(self.text, "# {}: {}", limit.place, entries.join(", "));
        let Amount::Limited(count, length) = limit.amount else {
            self.text.push_str("# It is unlimited, so no rule counts it.\n");
            return;
        };
        self.places.push(limit.place.clone());
        let name = named(&self.name(domain, counted));
        let _ = writeln!(self.text, "- name: {name}");
        if limit.is_in_shadow {
            self.text.push_str("  mode: shadow\n");
        }
        self.text.push_str("  match:\n    claims:\n");
        for test in tests(domain, way) {
            let _ = writeln!(self.text, "    - {test}");
        }
        self.except(counted);
        if count == 0 {
            // A request that lacks a part of its key is limited at once, and every request lacks this part.
            let _ = writeln!(self.text, "  key: [{{jwt_claim: {NOTHING}}}]\n  missing: limit\n  rate: 1/d");
            return;
        }
        let parts: Vec<_> = way.iter().filter_map(|node| part(node)).collect();
        let key = if parts.is_empty() { "all".into() } else { parts.join(", ") };
        let _ =
            writeln!(self.text, "  key: [{key}]\n  algorithm: fixed_window\n  strict: true\n  rate: {count}/{length}");
    }

    fn except(&mut self, counted: &CountedLimit<'_>) {
        let tests = counted.first.iter().chain(&counted.replaced_by);
        let clauses: Vec<_> = tests.map(|test| format!("{{claims: [{test}]}}")).collect();
        match clauses.as_slice() {
            [] => {}
            [only] => {
                let _ = writeln!(self.text, "    not: {only}");
            }
            several => {
                self.text.push_str("  tiers:\n  - name: others\n    unlimited: true\n    when:\n      any:\n");
                for clause in several {
                    let _ = writeln!(self.text, "      - {clause}");
                }
            }
        }
    }

    /// Name for the rule: the limit's own, or one from its path.
    fn name(&mut self, domain: &Domain, counted: &CountedLimit<'_>) -> String {
        let entries = counted.way.iter().map(|node| match &node.value {
            Value::Any => node.key.clone(),
            Value::Is(value) | Value::Like(value) => format!("{}-{value}", node.key),
        });
        let of_way = || std::iter::once(domain.name.clone()).chain(entries).collect::<Vec<_>>().join("_");
        let text = counted.limit.name.clone().unwrap_or_else(of_way);
        let fits = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
        let text: String = text.to_lowercase().chars().map(|c| if fits(c) { c } else { '-' }).collect();
        let numbered = |number: usize| {
            let end = if number == 1 { String::new() } else { format!("-{number}") };
            let begin = text.get(..NAME_BYTES_MAX - end.len()).unwrap_or(&text);
            format!("{begin}{end}")
        };
        let name = (1..=RULES_MAX).map(numbered).find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(name.clone());
        name
    }
}

struct CountedLimit<'a> {
    limit: &'a ImportedLimit,
    /// Path to the limit: one descriptor per depth.
    way: Vec<&'a DescriptorNode>,
    /// Tests for the exceptions: siblings of the path's descriptors that have precedence.
    first: Vec<String>,
    replaced_by: Vec<String>,
}

/// The limits of a domain, in order. An error has one line for each thing that rules cannot express.
fn limits(domain: &Domain) -> Result<Vec<CountedLimit<'_>>, String> {
    let mut limits = Vec::new();
    walk(&domain.nodes, &mut Vec::new(), &[], &mut limits);
    let mut replacing: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, limit) in limits.iter().enumerate() {
        limit.limit.replaces.iter().for_each(|name| replacing.entry(name).or_default().push(place));
    }
    let mut errors = Vec::new();
    for limit in &limits {
        let keys: BTreeSet<_> = limit.way.iter().map(|node| &node.key).collect();
        if keys.len() < limit.way.len() {
            errors.push(format!(
                "{}: a key comes twice on the way to this rate_limit, and rules know an entry by its key: give one of \
                 them another key, in the proxy's configuration too",
                limit.limit.place
            ));
        }
    }
    for place in 0..limits.len() {
        let name = limits[place].limit.name.as_deref();
        for by in name.and_then(|name| replacing.get(name)).into_iter().flatten() {
            let by = &limits[*by];
            if by.first.is_empty() {
                let replaced = test("beside", &format!("regex: {}", quoted(&beside(&by.way))));
                limits[place].replaced_by.push(replaced);
            } else {
                errors.push(format!(
                    "{}: replaces: a sibling with a value of its own takes some of these descriptors, and rules \
                     cannot express that for another descriptor: write the values that are to replace one \
                     by one",
                    by.limit.place
                ));
            }
        }
    }
    errors.dedup();
    if errors.is_empty() { Ok(limits) } else { Err(errors.join("\n")) }
}

fn walk<'a>(
    nodes: &'a [DescriptorNode],
    way: &mut Vec<&'a DescriptorNode>,
    first: &[String],
    limits: &mut Vec<CountedLimit<'a>>,
) {
    for (place, node) in nodes.iter().enumerate() {
        let first = [first, &before(place, nodes)].concat();
        way.push(node);
        if let Some(limit) = &node.limit {
            limits.push(CountedLimit { limit, way: way.clone(), first: first.clone(), replaced_by: Vec::new() });
        }
        walk(&node.nodes, way, &first, limits);
        way.pop();
    }
}

/// Tests for the siblings of the node at the index `place` that have precedence.
fn before(place: usize, nodes: &[DescriptorNode]) -> Vec<String> {
    let node = &nodes[place];
    let of_key = |(_, other): &(usize, &DescriptorNode)| other.key == node.key;
    let mut values = Vec::new();
    let mut wildcards = Vec::new();
    for (at, other) in nodes.iter().enumerate().filter(of_key) {
        match (&other.value, &node.value) {
            (Value::Is(value), Value::Any) => values.push(quoted(value)),
            (Value::Is(value), Value::Like(wildcard)) if matches(wildcard, value) => values.push(quoted(value)),
            (Value::Like(other), Value::Any) => wildcards.push(like(other)),
            (Value::Like(other), Value::Like(wildcard)) if at < place && overlap(other, wildcard) => {
                wildcards.push(like(other));
            }
            _ => {}
        }
    }
    let values = (!values.is_empty()).then(|| format!("in: [{}]", values.join(", ")));
    values.into_iter().chain(wildcards).map(|test| of_entry(&node.key, &test)).collect()
}

fn matches(wildcard: &str, value: &str) -> bool {
    let Some((head, rest)) = wildcard.split_once('*') else { return wildcard == value };
    let Some(mut left) = value.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').map_or((None, rest), |(middle, tail)| (Some(middle), tail));
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(tail)
}

/// True if a value may match both wildcards; certainly false if their beginnings differ.
fn overlap(one: &str, other: &str) -> bool {
    let head = |wildcard: &str| wildcard.split('*').next().unwrap_or_default().to_owned();
    let (one, other) = (head(one), head(other));
    one.starts_with(&other) || other.starts_with(&one)
}

fn in_words(node: &DescriptorNode) -> String {
    let key = node.key.escape_debug();
    match &node.value {
        Value::Any => format!("{key}"),
        Value::Is(value) | Value::Like(value) => format!("{key}={}", value.escape_debug()),
    }
}

/// Conditions of the rule: descriptors of this domain with these keys, whose values match the path.
fn tests(domain: &Domain, way: &[&DescriptorNode]) -> Vec<String> {
    let equals = |text: &str| format!("equals: {}", quoted(text));
    let keys: Vec<_> = way.iter().map(|node| encoded(&node.key)).collect();
    let mut tests = vec![test("domain", &equals(&domain.name)), test("entries", &equals(&keys.join(",")))];
    tests.extend(way.iter().filter_map(|node| match &node.value {
        Value::Any => None,
        Value::Is(value) => Some(of_entry(&node.key, &equals(value))),
        Value::Like(wildcard) => Some(of_entry(&node.key, &like(wildcard))),
    }));
    tests
}

/// Part of the rule's key for an entry whose values are counted separately.
fn part(node: &DescriptorNode) -> Option<String> {
    let is_apart = matches!(node.value, Value::Any | Value::Like(_)) && !node.is_shared;
    is_apart.then(|| format!("{{jwt_claim: [ratelimit, entry, {}]}}", quoted(&node.key)))
}

fn test(name: &str, condition: &str) -> String {
    format!("{{name: [ratelimit, {name}], {condition}}}")
}

fn of_entry(key: &str, condition: &str) -> String {
    test(&format!("entry, {}", quoted(key)), condition)
}

fn like(wildcard: &str) -> String {
    match wildcard.split_once('*') {
        Some(("", "")) => "present: true".into(),
        Some((prefix, "")) => format!("prefix: {}", quoted(prefix)),
        _ => {
            let parts: Vec<_> = wildcard.split('*').map(escaped).collect();
            format!("regex: {}", quoted(&format!("(?s)^{}$", parts.join(".*"))))
        }
    }
}

/// Regular expression for descriptors on this path, among the others of the request.
fn beside(way: &[&DescriptorNode]) -> String {
    let entries = way.iter().map(|node| {
        let value = match &node.value {
            Value::Any => ANY_BESIDE.to_owned(),
            Value::Is(value) | Value::Like(value) => {
                let parts: Vec<_> = value.split('*').map(|part| escaped(&encoded(part))).collect();
                parts.join(ANY_BESIDE)
            }
        };
        format!("{}={value}", escaped(&encoded(&node.key)))
    });
    format!(";{};", entries.collect::<Vec<_>>().join(","))
}

/// A key or a value as it is written in `entries` and `beside`, with the separators percent-encoded.
fn encoded(text: &str) -> String {
    text.replace('%', "%25").replace(',', "%2C").replace(';', "%3B").replace('=', "%3D")
}

fn escaped(text: &str) -> String {
    let is_special = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c);
    text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A rule's name in YAML: unquoted, unless it could be parsed as a number or another type.
fn named(name: &str) -> String {
    let is_word = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&name);
    let is_text = name.starts_with(|c: char| c.is_ascii_lowercase()) && !is_word;
    if is_text { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
