//! Differences between two rule sets.

mod lines;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// Differences between two documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Names of rules that only the new document has.
    pub added: Vec<String>,
    /// Names of rules that only the old document has.
    pub removed: Vec<String>,
    /// Rules of both documents that differ.
    pub changed: Vec<RuleDifference>,
    /// True if the rules of both documents are in another order.
    pub is_reordered: bool,
    /// Fields outside of the rules that differ.
    pub fields: Vec<String>,
}

/// A rule that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleDifference {
    /// Its name.
    pub rule: String,
    /// Its fields that differ.
    pub fields: Vec<String>,
}

impl Differences {
    /// Computes the changes from `old` to `new`; a document that is no object has no rules.
    pub fn between(old: &Value, new: &Value) -> Self {
        let (old_rules, new_rules) = (rules(old), rules(new));
        let (in_old, in_new): (ByName<'_>, ByName<'_>) =
            (old_rules.iter().copied().collect(), new_rules.iter().copied().collect());
        let changed = new_rules.iter().filter_map(|(name, fields)| {
            let fields = differing(in_old.get(name)?, fields);
            (!fields.is_empty()).then(|| RuleDifference { rule: (*name).to_owned(), fields })
        });
        let in_both = |(name, _): &&Named<'_>| in_old.contains_key(name) && in_new.contains_key(name);
        let (was, is) = (old_rules.iter().filter(in_both), new_rules.iter().filter(in_both));
        let is_reordered = was.map(|rule| rule.0).ne(is.map(|rule| rule.0));
        let empty = Map::new();
        let mut fields = differing(old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
        fields.retain(|field| field != "rules");
        Self {
            added: only(&new_rules, &in_old),
            removed: only(&old_rules, &in_new),
            changed: changed.collect(),
            is_reordered,
            fields,
        }
    }
}

/// A rule's name and its fields.
type Named<'a> = (&'a str, &'a Map<String, Value>);
type ByName<'a> = BTreeMap<&'a str, &'a Map<String, Value>>;

fn rules(document: &Value) -> Vec<Named<'_>> {
    let rules = document["rules"].as_array().into_iter().flatten().filter_map(Value::as_object);
    rules.filter_map(|rule| Some((rule.get("name")?.as_str()?, rule))).collect()
}

/// Names of the rules that are not among the others.
fn only(rules: &[Named<'_>], others: &ByName<'_>) -> Vec<String> {
    rules.iter().map(|(name, _)| *name).filter(|name| !others.contains_key(name)).map(str::to_owned).collect()
}

/// Fields that differ.
fn differing(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let gone = old.keys().filter(|field| !new.contains_key(*field));
    let others = new.iter().filter(|(field, value)| old.get(*field) != Some(value)).map(|(field, _)| field);
    let mut fields: Vec<_> = gone.chain(others).cloned().collect();
    fields.sort();
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn between(old: &Value, new: &Value) -> Value {
        serde_json::to_value(Differences::between(old, new)).unwrap()
    }

    #[test]
    fn rules_are_told_apart_by_their_names() {
        let (a, b) = (json!({"name": "a", "rate": "1/s"}), json!({"name": "b", "rate": "1/s", "burst": 2}));
        let c = json!({"name": "c", "rate": "1/s"});
        let slower = json!({"name": "b", "rate": "1/m", "strict": true});
        let same = json!({"added": [], "removed": [], "changed": [], "is_reordered": false, "fields": []});
        let with = |field: &str, value: Value| {
            let mut changes = same.clone();
            changes[field] = value;
            changes
        };
        let old = json!({"rules": [a, b], "deny": []});
        for (rules, expected) in [
            (json!([a, b]), same.clone()),
            (json!([a, b, c]), with("added", json!(["c"]))),
            (json!([c, a, b]), with("added", json!(["c"]))),
            (json!([b]), with("removed", json!(["a"]))),
            (
                json!([a, slower]),
                with("changed", json!([{"rule": "b", "fields": ["burst", "rate", "strict"]}])),
            ),
            (json!([b, a]), with("is_reordered", json!(true))),
        ] {
            assert_eq!(between(&old, &json!({"rules": rules, "deny": []})), expected, "{rules}");
        }
        let other = json!({"rules": [a, b], "allow": [], "deny": [{"methods": ["PUT"]}]});
        assert_eq!(between(&old, &other), with("fields", json!(["allow", "deny"])));
        assert_eq!(between(&json!({}), &old)["added"], json!(["a", "b"]));
    }
}
