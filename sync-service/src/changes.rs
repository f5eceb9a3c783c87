//! Differences between two rule sets.

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

/// Maximum number of characters shown of a value.
const VALUE_CHARS_MAX: usize = 100;

impl Differences {
    /// Renders the changes between `old` and `new`, one line per rule and field. Names are as they were
    /// submitted.
    pub fn lines(&self, old: &Value, new: &Value) -> Vec<String> {
        let Self { added, removed, changed, is_reordered, fields } = self;
        let mut lines: Vec<_> = added.iter().map(|rule| format!("+ rule {rule}")).collect();
        lines.extend(removed.iter().map(|rule| format!("- rule {rule}")));
        let (old_rules, new_rules) = (by_name(old), by_name(new));
        for RuleDifference { rule, fields } in changed {
            lines.push(format!("~ rule {rule}"));
            let (old, new) = (old_rules.get(rule.as_str()), new_rules.get(rule.as_str()));
            let moved = |field: &String| format!("    {}", moved(field, old.copied(), new.copied()));
            lines.extend(fields.iter().map(moved));
        }
        if *is_reordered {
            lines.push("~ the order of the rules".into());
        }
        lines.extend(fields.iter().map(|field| format!("~ {}", moved(field, Some(old), Some(new)))));
        lines
    }
}

fn by_name(document: &Value) -> BTreeMap<&str, &Value> {
    let rules = document["rules"].as_array().into_iter().flatten();
    rules.filter_map(|rule| Some((rule["name"].as_str()?, rule))).collect()
}

/// Renders a field with its old and its new value.
fn moved(field: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    let value = |of: Option<&Value>| match of.and_then(|of| of.get(field)) {
        None => "nothing".to_owned(),
        Some(value) => short(&value.to_string()),
    };
    format!("{field}: {} -> {}", value(old), value(new))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(old: &Value, new: &Value) -> Vec<String> {
        Differences::between(old, new).lines(old, new)
    }

    #[test]
    fn each_change_is_a_line_with_what_was_and_what_is() {
        let rule = |name: &str, rate: &str| json!({"name": name, "key": ["all"], "rate": rate});
        let mut login = rule("login", "10/m");
        login["strict"] = json!(true);
        let old = json!({"rules": [rule("old", "1/s"), rule("login", "5/m"), rule("api", "1/s")]});
        let deny = json!([{"hosts": ["h".repeat(200)]}]);
        let new = json!({"rules": [rule("api", "1/s"), login, rule("search", "1/s")], "deny": deny});
        let long = format!("~ deny: nothing -> [{{\"hosts\":[\"{}...", "h".repeat(88));
        let expected = [
            "+ rule search",
            "- rule old",
            "~ rule login",
            "    rate: \"5/m\" -> \"10/m\"",
            "    strict: nothing -> true",
            "~ the order of the rules",
            &long,
        ];
        assert_eq!(lines(&old, &new), expected);
        assert_eq!(lines(&old, &old), [""; 0]);
        assert_eq!(lines(&Value::Null, &old).len(), 3);
    }
}
