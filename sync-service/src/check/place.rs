//! Positions of places in a file: line and column, and the rule that contains them.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::document::steps;
use crate::yaml::budget;

/// A rule file with the position of each value. JSON is parsed as YAML, of which it is a subset.
pub(super) struct Places<'a> {
    root: Option<Spanned<Node>>,
    /// Prefix of each place: the place of the rules in the file.
    prefix: &'a str,
}

/// Part of a file: a place in one of its documents.
#[derive(Clone, Copy, Default)]
pub(super) struct FilePart<'a> {
    /// Index of the document, from 0.
    pub(super) document: usize,
    /// The place.
    pub(super) place: &'a str,
}

/// A value, with the structure that places refer to.
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Text(String),
    Other,
}

impl<'a> Places<'a> {
    /// The places of a file; without positions if it cannot be read.
    #[cfg(test)]
    fn of(bytes: &[u8]) -> Self {
        Self::within(bytes, FilePart::default())
    }

    /// Positions of a part of a file; empty if it cannot be parsed.
    pub(super) fn within(bytes: &[u8], part: FilePart<'a>) -> Self {
        let options = serde_saphyr::options! { budget: budget() };
        let text = str::from_utf8(bytes).ok();
        let read = text.and_then(|text| serde_saphyr::from_multiple_with_options(text, options).ok());
        let root = read.and_then(|documents: Vec<_>| documents.into_iter().nth(part.document));
        Self { root, prefix: part.place }
    }

    /// Line and column of `place`, such as `rules[0].rate`, or of its innermost part that exists; none for the
    /// whole file.
    pub(super) fn position(&self, place: &str) -> Option<(u64, u64)> {
        let mut at = self.root.as_ref().filter(|_| !place.is_empty() || !self.prefix.is_empty())?;
        for step in steps(self.prefix).chain(steps(place)) {
            let Some(next) = at.value.within(step) else { break };
            at = next;
        }
        let at = at.referenced;
        Some((at.line(), at.column())).filter(|(line, _)| *line > 0)
    }

    /// Name of the rule that contains `place`.
    pub(super) fn rule(&self, place: &str) -> Option<&str> {
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
                // An error about `path` may be about a list of one, and `methods` may be written `method`.
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

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Node::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_its_position_and_its_rule() {
        let yaml = "# rules\nrules:\n- name: api\n  key: [client_address]\n  match:\n    path: /x\n- {name: login,\n   rate: 5}\n";
        let places = Places::of(yaml.as_bytes());
        for (place, position, rule) in [
            ("rules[0].match.path", (6, 11), Some("api")),
            ("rules[0].key[0]", (4, 9), Some("api")),
            ("rules[1].rate", (8, 10), Some("login")),
            ("rules[1].key", (7, 3), Some("login")),
            ("allow[0]", (2, 1), None),
        ] {
            assert_eq!((places.position(place), places.rule(place)), (Some(position), rule), "{place}");
        }
        let of_list = Places::of(b"deny:\n- paths: [{exact: /a}]\n");
        assert_eq!(of_list.position("deny[0].path"), Some((2, 10)));
        assert_eq!(places.position(""), None, "it is about the whole file");
        assert_eq!(Places::of(b"a: [").position("a"), None);
    }

    #[test]
    fn places_of_json_are_found_however_it_is_written() {
        for (json, position) in [
            (
                "{\"rules\": [\n{\"name\": \"a\",\n \"rate\": null, \"burst\": 1.5, \"strict\": true}]}",
                (3, 10),
            ),
            ("{\n\t\"rules\": [\n\t\t{\"name\": \"a\",\t\"rate\":7}\n\t]\n}", (3, 24)),
            (
                "{\"\\ud83d\\ude00\\/\": \"\\u0000\", \"rules\":[{\"rate\":\r\n\"\u{e9}\",\"name\":\"a\"}]}",
                (2, 1),
            ),
            ("\u{feff}{\"rules\": [{\"n\u{e9}\": 1, \"rate\": 5, \"name\": \"a\"}]}", (1, 30)),
        ] {
            let places = Places::of(json.as_bytes());
            assert_eq!(
                (places.position("rules[0].rate"), places.rule("rules[0]")),
                (Some(position), Some("a")),
                "{json}"
            );
        }
    }

    #[test]
    fn what_an_alias_stands_for_is_where_the_alias_is() {
        let places = Places::of(b"rules:\n- &a {name: a,\n   rate: 5}\n- *a\n");
        assert_eq!(places.position("rules[0].rate"), Some((3, 10)));
        assert_eq!(places.position("rules[1]"), Some((4, 3)));
    }
}
