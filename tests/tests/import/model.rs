//! A model of how envoyproxy/ratelimit looks a descriptor up, beside the rules that the import writes.

use std::fmt::Write as _;

use proptest::prelude::*;
use weir_cli::document::{Document, Form};
use weir_cli::import::ratelimit;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::KeyValue;
use weir_rules::matching::Bits;
use weir_rules::request::{Attribute, Fetched, Request, Values};

/// A descriptor of the configuration.
#[derive(Clone, Debug)]
struct Node {
    key: String,
    value: Option<String>,
    is_shared: bool,
    limit: Option<Limit>,
    nodes: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Unlimited,
    Limited,
}

/// The limit of a request's descriptor: its number, and the key of its count.
type Found = Option<(u32, Vec<String>)>;

impl Node {
    fn is_wildcard(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.contains('*'))
    }

    /// As YAML, numbering limits by the requests that they allow.
    fn write(&self, depth: usize, number: &mut u32, text: &mut String) {
        let indent = "  ".repeat(depth);
        let _ = writeln!(text, "{indent}- key: {}", self.key);
        if let Some(value) = &self.value {
            let _ = writeln!(text, "{indent}  value: '{value}'");
        }
        if self.is_shared && self.is_wildcard() {
            let _ = writeln!(text, "{indent}  share_threshold: true");
        }
        *number += 1;
        match self.limit {
            Some(Limit::Unlimited) => {
                let _ = writeln!(text, "{indent}  rate_limit: {{unlimited: true}}");
            }
            Some(Limit::Limited) => {
                let _ = writeln!(text, "{indent}  rate_limit: {{unit: hour, requests_per_unit: {number}}}");
            }
            None => {}
        }
        if !self.nodes.is_empty() {
            let _ = writeln!(text, "{indent}  descriptors:");
        }
        self.nodes.iter().for_each(|node| node.write(depth + 1, number, text));
    }

    /// The number of limits that it and those below it have.
    fn count(&self) -> u32 {
        1 + self.nodes.iter().map(Self::count).sum::<u32>()
    }
}

fn matches(wildcard: &str, value: &str) -> bool {
    match wildcard.split_once('*') {
        None => wildcard == value,
        Some((head, rest)) => value
            .strip_prefix(head)
            .is_some_and(|left| (0..=left.len()).any(|at| left.is_char_boundary(at) && matches(rest, &left[at..]))),
    }
}

/// Level by level: the value, then wildcards in order, then the key alone; no way back.
fn look_up(nodes: &[Node], before: u32, entries: &[(String, String)], counted_by: &mut Vec<String>) -> Found {
    let ((key, value), rest) = entries.split_first()?;
    let of_key = || nodes.iter().enumerate().filter(|(_, node)| node.key == *key);
    let exact = of_key().find(|(_, node)| node.value.as_ref() == Some(value) && !node.is_wildcard());
    let is_like = |node: &Node| node.value.as_ref().is_some_and(|wildcard| matches(wildcard, value));
    let wildcard = || of_key().find(|(_, node)| node.is_wildcard() && is_like(node));
    let (place, node) = exact.or_else(wildcard).or_else(|| of_key().find(|(_, node)| node.value.is_none()))?;
    let number = before + nodes[..place].iter().map(Node::count).sum::<u32>() + 1;
    counted_by.push(if node.is_shared && node.is_wildcard() { node.value.clone()? } else { value.clone() });
    if rest.is_empty() {
        return (node.limit == Some(Limit::Limited)).then(|| (number, counted_by.clone()));
    }
    look_up(&node.nodes, number, rest, counted_by)
}

/// A request of the rate limit service, as the gateway hands it to the rules.
struct Asked<'a>(&'a [(String, String)]);

impl Request for Asked<'_> {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let Attribute::Claim(names) = attribute else { return None };
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let text = match names[..] {
            ["ratelimit", "domain"] => "d".to_owned(),
            ["ratelimit", "entries"] => self.0.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(","),
            ["ratelimit", "entry", key] => self.0.iter().find(|(known, _)| known == key)?.1.clone(),
            _ => return None,
        };
        Some(text.into_bytes())
    }
}

/// The number of the one rule that counts the request, and its key.
fn counted(document: &Document, entries: &[(String, String)]) -> Option<(u32, KeyValue)> {
    let (rules, mut asked) = (document.rules(), Asked(entries));
    let (mut values, mut room, mut met) = (Values::default(), Bits::default(), Vec::new());
    let mut fetched = Fetched::new(&mut asked, rules.attributes(), &mut values);
    let met = rules.find_matches(&mut fetched, &mut room, &mut met).to_vec();
    let met = met.iter().map(|place| &rules.rules()[usize::from(*place)]);
    let met: Vec<_> = met.filter(|rule| !rule.variant.is_unlimited()).collect();
    assert!(met.len() <= 1, "{met:?}");
    let rule = met.first()?;
    Some((rule.quota.burst(), rule.key.value(&mut fetched, &FleetSecret::UNKEYED).unwrap()))
}

fn any_node() -> impl Strategy<Value = Node> {
    let value = || prop::option::weighted(0.7, prop_oneof!["[xy]{1,2}", "[xy]\\*", "\\*[xy]?", "[xy]?\\*[xy]\\*?"]);
    let limit = || prop::option::weighted(0.7, prop_oneof![4 => Just(Limit::Limited), 1 => Just(Limit::Unlimited)]);
    let leaf = ("[ab]", value(), any::<bool>(), limit()).prop_map(|(key, value, is_shared, limit)| Node {
        key,
        value,
        is_shared,
        limit,
        nodes: Vec::new(),
    });
    leaf.prop_recursive(2, 24, 4, |inner| {
        (
            "[ab]",
            prop::option::weighted(0.5, "[xy]{1,2}|[xy]?\\*[xy]?"),
            any::<bool>(),
            prop::collection::vec(inner, 0..4),
        )
            .prop_map(|(key, value, is_shared, nodes)| Node { key, value, is_shared, limit: None, nodes })
    })
}

/// Leaves out what the import refuses: a key and value that come twice, and a key that comes again below itself.
fn accepted(nodes: Vec<Node>, above: &[String]) -> Vec<Node> {
    let mut kept: Vec<Node> = Vec::new();
    for mut node in nodes {
        let is_twice = kept.iter().any(|known| known.key == node.key && known.value == node.value);
        if is_twice || above.contains(&node.key) {
            continue;
        }
        node.nodes = accepted(node.nodes, &[above, std::slice::from_ref(&node.key)].concat());
        kept.push(node);
    }
    kept
}

proptest! {
    #[test]
    fn imported_rules_count_the_same_requests(
        nodes in prop::collection::vec(any_node(), 1..6),
        asked in prop::collection::vec(prop::collection::vec(("[abc]", "[xyz]{0,3}"), 1..4), 12),
    ) {
        let nodes = accepted(nodes, &[]);
        let mut yaml = "domain: d\ndescriptors:\n".to_owned();
        let mut number = 0;
        for node in &nodes {
            node.write(0, &mut number, &mut yaml);
        }
        let rules = match ratelimit(&[("config.yaml", &yaml)]) {
            Ok(rules) => rules,
            Err(error) => {
                prop_assert!(error.contains("nothing to write a rule for"), "{}\n{}", error, yaml);
                return Ok(());
            }
        };
        let document = Document::read(rules.as_bytes(), Form::Yaml).unwrap();
        let mut keys: Vec<(Found, KeyValue)> = Vec::new();
        for entries in &asked {
            let expected = look_up(&nodes, 0, entries, &mut Vec::new());
            let found = counted(&document, entries);
            let numbers = (expected.as_ref().map(|(number, _)| *number), found.map(|(number, _)| number));
            prop_assert_eq!(numbers.0, numbers.1, "{:?}\n{}\n{}", entries, yaml, rules);
            let Some((_, key)) = found else { continue };
            for (other, known) in &keys {
                let is_same = *other == expected;
                let [one, two] = [other, &expected].map(|found| found.as_ref().map(|(number, _)| *number));
                let has_one_rule = one == two;
                prop_assert!(!has_one_rule || (*known == key) == is_same, "{:?}\n{}\n{}", entries, yaml, rules);
            }
            keys.push((expected, key));
        }
    }
}
