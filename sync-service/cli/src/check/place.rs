//! Errors and warnings of a file, with their positions: line, column, and the rule that contains them.

use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;
use weir_rules::reading::ConfigError;

use super::warn::Warning;
use crate::document::source::budget;
use crate::document::{DocumentError, steps};

/// A rule file with the position of each value. JSON is parsed as YAML, of which it is a subset.
struct Places<'a> {
    root: Option<Spanned<Node>>,
    /// Prefix of each place: the place of the rules in the file.
    prefix: &'a str,
}

/// Part of a file: a place in one of its documents.
#[derive(Clone, Copy, Default)]
pub(super) struct FilePart<'a> {
    /// Index of the document, from 0.
    pub(super) document: usize,
    pub(super) place: &'a str,
}

/// A parsed value, of which only what a place can refer to is kept.
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Text(String),
    Other,
}

impl<'a> Places<'a> {
    /// Positions of a part of a file; empty if it cannot be parsed.
    fn within(bytes: &[u8], part: FilePart<'a>) -> Self {
        let options = serde_saphyr::options! { budget: budget() };
        let text = str::from_utf8(bytes).ok();
        let read = text.and_then(|text| serde_saphyr::from_multiple_with_options(text, options).ok());
        let root = read.and_then(|documents: Vec<_>| documents.into_iter().nth(part.document));
        Self { root, prefix: part.place }
    }

    /// Line and column of the innermost part of `place` that exists, or `None` for the whole file.
    fn position(&self, place: &str) -> Option<(u64, u64)> {
        let mut at = self.root.as_ref().filter(|_| !place.is_empty() || !self.prefix.is_empty())?;
        for step in steps(self.prefix).chain(steps(place)) {
            let Some(next) = at.value.within(step) else { break };
            at = next;
        }
        let at = at.referenced;
        Some((at.line(), at.column())).filter(|(line, _)| *line > 0)
    }

    fn rule(&self, place: &str) -> Option<&str> {
        let number = place.strip_prefix("rules[")?.split(']').next()?;
        let root = steps(self.prefix).try_fold(self.root.as_ref()?, |at, step| at.value.within(step))?;
        let rule = root.value.within("rules")?.value.within(number)?;
        match &rule.value.within("name")?.value {
            Node::Text(name) => Some(name),
            _ => None,
        }
    }
}

impl Node {
    fn within(&self, step: &str) -> Option<&Spanned<Self>> {
        match self {
            Self::Map(fields) => {
                let find = |step: &str| fields.iter().find(|(name, _)| name == step).map(|(_, value)| value);
                // An error may name `path` where the file has `paths`, and `methods` where it has `method`.
                let other = if step == "path" { "paths" } else { "method" };
                find(step).or_else(|| find(other).filter(|_| matches!(step, "path" | "methods")))
            }
            Self::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Error,
    /// The file is accepted, but contains something that cannot be intended.
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// Line, from 1; `None` for the whole file.
    pub(super) line: Option<u64>,
    /// Column in characters, from 1.
    pub(super) column: Option<u64>,
    /// Field, such as `rules[0].rate`; empty for the whole file.
    pub(super) place: String,
    /// Name of the rule that contains the field, if any.
    pub(super) rule: Option<String>,
    pub(super) problem: String,
}

impl Finding {
    /// Error about a file as a whole.
    pub(super) fn of_file(problem: String) -> Self {
        Self { severity: Severity::Error, line: None, column: None, place: String::new(), rule: None, problem }
    }

    pub(super) fn errors(fault: DocumentError, bytes: &[u8], part: FilePart<'_>) -> Vec<Self> {
        match fault {
            DocumentError::Text(misread) => {
                let (line, column) = misread.at.unzip();
                vec![Self { line, column, ..Self::of_file(misread.problem) }]
            }
            DocumentError::Fields(errors) => {
                let places = Places::within(bytes, part);
                let finding = |ConfigError { place, problem }| {
                    let (line, column) = places.position(&place).unzip();
                    let rule = places.rule(&place).map(str::to_owned);
                    Self { line, column, place, rule, ..Self::of_file(problem) }
                };
                errors.into_iter().map(finding).collect()
            }
        }
    }

    pub(super) fn warnings(warnings: Vec<Warning>, bytes: &[u8], part: FilePart<'_>) -> Vec<Self> {
        if warnings.is_empty() {
            return Vec::new();
        }
        let places = Places::within(bytes, part);
        let finding = |Warning { place, rule, problem }| {
            let (line, column) = places.position(&place).unzip();
            Self { severity: Severity::Warning, line, column, place, rule, problem }
        };
        warnings.into_iter().map(finding).collect()
    }

    /// One-line message in the form that editors parse.
    pub(super) fn line(&self, file: &str) -> String {
        let Self { severity, line, column, place, rule, problem } = self;
        let at = [line, column].into_iter().flatten().map(|number| format!(":{number}"));
        let at = at.collect::<String>();
        let warning = if *severity == Severity::Warning { "warning: " } else { "" };
        let rule = rule.as_ref().map_or_else(String::new, |rule| format!(" ({rule})"));
        let place = if place.is_empty() { String::new() } else { format!("{place}{rule}: ") };
        format!("{file}{at}: {warning}{place}{problem}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_json_are_found_however_it_is_written() {
        for (json, position) in [
            ("{\"rules\": [\n{\"name\": \"a\",\n \"rate\": null, \"burst\": 1.5, \"strict\": true}]}", (3, 10)),
            ("{\n\t\"rules\": [\n\t\t{\"name\": \"a\",\t\"rate\":7}\n\t]\n}", (3, 24)),
            ("{\"\\ud83d\\ude00\\/\": \"\\u0000\", \"rules\":[{\"rate\":\r\n\"\u{e9}\",\"name\":\"a\"}]}", (2, 1)),
            ("\u{feff}{\"rules\": [{\"n\u{e9}\": 1, \"rate\": 5, \"name\": \"a\"}]}", (1, 30)),
        ] {
            let places = Places::within(json.as_bytes(), FilePart::default());
            assert_eq!(
                (places.position("rules[0].rate"), places.rule("rules[0]")),
                (Some(position), Some("a")),
                "{json}"
            );
        }
    }
}
