//! Writes rules for limits.
//!
//! Data about a request that only a gateway has is in claims under `ratelimit`: `domain`, `entries` (the keys
//! of its descriptor), `entry` and a key (the value of that entry), `beside` (the other descriptors of the
//! request).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use weir_protocol::messages::RULES_MAX;
use weir_rules::reading::ConfigError;

use super::config::{Amount, DescriptorNode, Domain, Unit, Value};
use super::limits::{self, CountedLimit, First};
use crate::document::{Document, Form};

/// Maximum length of a rule's name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Regular expression for any key or value in `beside`.
const ANY_BESIDE: &str = "(?:[^%,;=]|%..)*";
/// Claim that no request has, because no entry has this name under `ratelimit`.
const NOTHING: &str = "[ratelimit, nothing]";

/// Writes the rules for `domains`. An error has a line for each thing that rules cannot express.
pub(super) fn write(domains: &[Domain]) -> Result<String, String> {
    let mut written = Written::default();
    let mut errors = Vec::new();
    for domain in domains {
        let limits = limits::of(domain).map_err(|error| errors.push(error)).unwrap_or_default();
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

/// Writes comments for fields that are dropped without harm.
fn write_lost(nodes: &[DescriptorNode], text: &mut String) {
    for node in nodes {
        for what in &node.lost {
            let _ = writeln!(text, "# warning: {}: {what}", node.place);
        }
        write_lost(&node.nodes, text);
    }
}

/// Output so far.
struct Written {
    text: String,
    /// Place of each rule's limit.
    places: Vec<String>,
    names: BTreeSet<String>,
}

impl Default for Written {
    fn default() -> Self {
        let text = "# Made from a configuration of envoyproxy/ratelimit by `weir-sync import ratelimit`.\nrules:\n";
        Self { text: text.into(), places: Vec::new(), names: BTreeSet::new() }
    }
}

impl Written {
    fn rule(&mut self, domain: &Domain, counted: &CountedLimit<'_>) {
        let CountedLimit { limit, way, .. } = counted;
        let entries: Vec<_> = way.iter().map(|node| in_words(node)).collect();
        let _ = writeln!(self.text, "# {}: {}", limit.place, entries.join(", "));
        let (count, unit) = match limit.amount {
            Amount::Unlimited => {
                self.text.push_str("# It is unlimited, so no rule counts it.\n");
                return;
            }
            Amount::Limited(count, unit) => (count, unit),
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
            // A request that lacks a part of its key is limited at once, and every request lacks this one.
            let _ = writeln!(self.text, "  key: [{{jwt_claim: {NOTHING}}}]\n  missing: limit\n  rate: 1/d");
            return;
        }
        let parts: Vec<_> = way.iter().filter_map(|node| part(node)).collect();
        let key = if parts.is_empty() { "all".into() } else { parts.join(", ") };
        let _ = writeln!(self.text, "  key: [{key}]\n  {}", amount(count, unit));
    }

    /// Writes the exceptions of the rule.
    fn except(&mut self, counted: &CountedLimit<'_>) {
        let replaced =
            counted.replaced_by.iter().map(|way| test("beside", &format!("regex: {}", quoted(&beside(way)))));
        let clauses = counted.first.iter().map(first).chain(replaced);
        let clauses: Vec<_> = clauses.map(|test| format!("{{claims: [{test}]}}")).collect();
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

/// An entry, for a comment.
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

fn first(first: &First<'_>) -> String {
    match first {
        First::Values(key, values) => {
            let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
            of_entry(key, &format!("in: [{}]", values.join(", ")))
        }
        First::Wildcard(key, wildcard) => of_entry(key, &like(wildcard)),
    }
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

/// A test of a value by a wildcard.
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
    let of = |c| match c {
        '%' => "%25".into(),
        ',' => "%2C".into(),
        ';' => "%3B".into(),
        '=' => "%3D".into(),
        c => String::from(c),
    };
    text.chars().map(of).collect()
}

/// Regular expression that matches this text.
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

/// A text in YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Rate of the rule: as many requests in each unit as envoyproxy/ratelimit allows, whose days are in UTC.
fn amount(count: u32, unit: Unit) -> String {
    let time = match unit {
        Unit::Second => "s",
        Unit::Minute => "m",
        Unit::Hour => "h",
        Unit::Day => "d",
        Unit::Week => "7d",
        Unit::Month => "30d",
        Unit::Year => "365d",
    };
    format!("algorithm: fixed_window\n  strict: true\n  rate: {count}/{time}")
}
