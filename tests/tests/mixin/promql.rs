//! The metrics and labels in an expression of Prometheus.

use std::collections::BTreeSet;

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Metrics, and what rules record.
    pub(crate) metrics: BTreeSet<String>,
    /// Labels, in braces and in the lists of `by`, `on` and the like.
    pub(crate) labels: BTreeSet<String>,
}

/// Words that a list of labels follows.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Other words of the language.
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// The names in `expression`.
pub(crate) fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '"' => after.split_once('"').map_or("", |(_, rest)| rest),
            '[' => after.split_once(']').map_or("", |(_, rest)| rest),
            '{' => labels(after, &mut named),
            // A number or a duration.
            '0'..='9' => after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.'),
            c if is_name(c) => word(rest, &mut named),
            _ => after,
        };
    }
    named
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Takes the word that `rest` begins with, and the labels after it; gives what follows.
fn word<'a>(rest: &'a str, named: &mut Named) -> &'a str {
    let (word, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
    let opened = after.trim_start().strip_prefix('(');
    if BEFORE_LABELS.contains(&word) {
        let (list, after) = opened.and_then(|rest| rest.split_once(')')).unwrap_or_default();
        named.labels.extend(list.split(',').map(|label| label.trim().to_owned()));
        return after;
    }
    let is_aggregation = BEFORE_LABELS.iter().any(|by| after.trim_start().starts_with(&format!("{by} (")));
    if opened.is_none() && !is_aggregation && !WORDS.contains(&word) {
        named.metrics.insert(word.to_owned());
    }
    after
}

/// Takes the labels up to the closing brace; gives what follows it.
fn labels<'a>(rest: &'a str, named: &mut Named) -> &'a str {
    let mut rest = rest;
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return after;
        }
        let Some((label, value)) = rest.split_once('"') else { return "" };
        named.labels.insert(label.trim_end_matches(['=', '~', '!']).to_owned());
        rest = value.split_once('"').map_or("", |(_, rest)| rest);
    }
}
