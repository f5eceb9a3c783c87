//! Descriptors that each limit counts.
//!
//! A request's descriptor is looked up entry by entry: at each depth first the value itself, then the wildcards
//! in the order in which they are written, then the key without a value; there is no backtracking. So a limit
//! counts the descriptors with the keys on its path whose values match it, unless a sibling with precedence
//! takes them.

use std::collections::{BTreeMap, BTreeSet};

use super::config::{DescriptorNode, Domain, ImportedLimit, Value};

/// A limit, with the descriptors that it counts.
pub(super) struct CountedLimit<'a> {
    pub(super) limit: &'a ImportedLimit,
    /// Path to it: a descriptor of each depth.
    pub(super) way: Vec<&'a DescriptorNode>,
    /// Exceptions: siblings of those on the path that have precedence.
    pub(super) first: Vec<First<'a>>,
    /// Paths to the limits that replace it.
    pub(super) replaced_by: Vec<Vec<&'a DescriptorNode>>,
}

/// Siblings with precedence; all have one key.
#[derive(Clone)]
pub(super) enum First<'a> {
    /// Key, and values.
    Values(&'a str, Vec<&'a str>),
    /// Key, and wildcard.
    Wildcard(&'a str, &'a str),
}

/// The limits of a domain, in the order in which they are written. An error has a line for each thing that
/// rules cannot express.
pub(super) fn of(domain: &Domain) -> Result<Vec<CountedLimit<'_>>, String> {
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
                let way = by.way.clone();
                limits[place].replaced_by.push(way);
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
    first: &[First<'a>],
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

/// Siblings of the node at the index `place` that have precedence.
fn before(place: usize, nodes: &[DescriptorNode]) -> Vec<First<'_>> {
    let node = &nodes[place];
    let of_key = |(_, other): &(usize, &DescriptorNode)| other.key == node.key;
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

/// True if `value` matches `wildcard`.
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
