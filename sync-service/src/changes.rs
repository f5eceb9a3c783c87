//! What a new rule set changes.

mod lines;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// How one document differs from another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The names of rules that only the new one has.
    pub added: Vec<String>,
    /// The names of rules that only the old one has.
    pub removed: Vec<String>,
    /// The rules that both have, and that are not the same.
    pub changed: Vec<Changed>,
    /// Whether rules that both have stand in another order.
    pub is_reordered: bool,
    /// The fields beside the rules that are not the same.
    pub fields: Vec<String>,
}

/// A rule that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Its name.
    pub rule: String,
    /// Its fields that are not the same.
    pub fields: Vec<String>,
}

impl Changes {
    /// What `new` changes of `old`, two documents; a document that is no object has no rules.
    pub fn between(old: &Value, new: &Value) -> Self {
        let (old_rules, new_rules) = (rules(old), rules(new));
        let (in_old, in_new): (ByName<'_>, ByName<'_>) =
            (old_rules.iter().copied().collect(), new_rules.iter().copied().collect());
        let changed = new_rules.iter().filter_map(|(name, fields)| {
            let fields = differing(in_old.get(name)?, fields);
            (!fields.is_empty()).then(|| Changed { rule: (*name).to_owned(), fields })
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

/// The names of the rules that are not among the others.
fn only(rules: &[Named<'_>], others: &ByName<'_>) -> Vec<String> {
    rules.iter().map(|(name, _)| *name).filter(|name| !others.contains_key(name)).map(str::to_owned).collect()
}

/// The fields that are not the same in both.
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
        serde_json::to_value(Changes::between(old, new)).unwrap()
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
