//! Which descriptors each limit counts.
//!
//! A request's descriptor is looked up entry by entry: at each depth first the value itself, then the wildcards in the
//! order they are written, then the key without a value; there is no way back. So a limit counts the descriptors with
//! the keys on its way whose values meet it, unless one of the siblings that come first takes them.

use std::collections::{BTreeMap, BTreeSet};

use super::config::{Domain, Limit, Node, Value};

/// A limit, and what it counts.
pub(super) struct Counted<'a> {
    pub(super) limit: &'a Limit,
    /// The way to it: a descriptor of each depth.
    pub(super) way: Vec<&'a Node>,
    /// What it does not count: siblings of those on the way that come first.
    pub(super) first: Vec<First<'a>>,
    /// The ways to the limits that replace it.
    pub(super) replaced_by: Vec<Vec<&'a Node>>,
}

/// Siblings that come first; all have one key.
#[derive(Clone)]
pub(super) enum First<'a> {
    /// Those with these values.
    Values(&'a str, Vec<&'a str>),
    /// That with this wildcard.
    Wildcard(&'a str, &'a str),
}

/// The limits of a domain, in the order they are written. An error is a line for each thing that rules cannot say.
pub(super) fn of(domain: &Domain) -> Result<Vec<Counted<'_>>, String> {
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
                "{}: a key comes twice on the way to this rate_limit, and rules know an entry by its key: give one of them \
                 another key, in the proxy's configuration too",
                limit.limit.place
            ));
        }
    }
    for place in 0..limits.len() {
        let name = limits[place].limit.name.as_deref();
        for by in name.and_then(|name| replacing.get(name)).into_iter().flatten() {
            let by = &limits[*by];
            if by.first.is_empty() {
                let way = by.way.clone();
                limits[place].replaced_by.push(way);
            } else {
                errors.push(format!(
                    "{}: replaces: a sibling with a value of its own takes some of these descriptors, and rules cannot say \
                     that of another descriptor of the request: write the values that are to replace one by one",
                    by.limit.place
                ));
            }
        }
    }
    errors.dedup();
    if errors.is_empty() { Ok(limits) } else { Err(errors.join("\n")) }
}

fn walk<'a>(nodes: &'a [Node], way: &mut Vec<&'a Node>, first: &[First<'a>], limits: &mut Vec<Counted<'a>>) {
    for (place, node) in nodes.iter().enumerate() {
        let first = [first, &before(place, nodes)].concat();
        way.push(node);
        if let Some(limit) = &node.limit {
            limits.push(Counted { limit, way: way.clone(), first: first.clone(), replaced_by: Vec::new() });
        }
        walk(&node.nodes, way, &first, limits);
        way.pop();
    }
}

/// The siblings of the node at `place` that come before it.
fn before(place: usize, nodes: &[Node]) -> Vec<First<'_>> {
    let node = &nodes[place];
    let of_key = |(_, other): &(usize, &Node)| other.key == node.key;
    let mut values = Vec::new();
    let mut wildcards = Vec::new();
    for (at, other) in nodes.iter().enumerate().filter(of_key) {
        match (&other.value, &node.value) {
            (Value::Is(value), Value::Any) => values.push(value.as_str()),
            (Value::Is(value), Value::Like(like)) if matches(like, value) => values.push(value),
            (Value::Like(other), Value::Any) => wildcards.push(First::Wildcard(&node.key, other)),
            (Value::Like(other), Value::Like(like)) if at < place && overlap(other, like) => {
                wildcards.push(First::Wildcard(&node.key, other));
            }
            _ => {}
        }
    }
    let values = (!values.is_empty()).then_some(First::Values(&node.key, values));
    values.into_iter().chain(wildcards).collect()
}

/// Whether `value` matches `wildcard`.
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

/// Whether a value can match both wildcards: surely not if they begin otherwise.
fn overlap(one: &str, other: &str) -> bool {
    let head = |wildcard: &str| wildcard.split('*').next().unwrap_or_default().to_owned();
    let (one, other) = (head(one), head(other));
    one.starts_with(&other) || other.starts_with(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (wildcard, value, expected) in [
            ("a*", "a", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*", "", true),
            ("/a/*/b", "/a/x/b", true),
            ("/a/*/b", "/a/b", false),
            ("/a*/b", "/a/b", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("a**c", "ac", true),
        ] {
            assert_eq!(matches(wildcard, value), expected, "{wildcard} {value}");
        }
    }

    #[test]
    fn wildcards_that_begin_otherwise_share_no_value() {
        assert!(overlap("a*", "ab*") && overlap("*b", "a*") && overlap("a*", "a"));
        assert!(!overlap("a*", "b*"));
    }
}
