//! Differences between two rule sets.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

const VALUE_CHARS_MAX: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<RuleDifference>,
    pub is_reordered: bool,
    /// Fields outside `rules` that differ.
    pub fields: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleDifference {
    pub rule: String,
    pub fields: Vec<String>,
}

impl Differences {
    /// Computes the changes from `old` to `new`; a document that is no object has no rules.
    pub(crate) fn between(old: &Value, new: &Value) -> Self {
        let (old_rules, new_rules) = (rules(old), rules(new));
        let only = |rules: &[Named<'_>], others: &[Named<'_>]| {
            let is_only = |(name, _): &&Named<'_>| find(others, name).is_none();
            rules.iter().filter(is_only).map(|(name, _)| (*name).to_owned()).collect()
        };
        let changed = new_rules.iter().filter_map(|(name, rule)| {
            let fields = differing(find(&old_rules, name)?, rule);
            (!fields.is_empty()).then(|| RuleDifference { rule: (*name).to_owned(), fields })
        });
        let was = old_rules.iter().map(|(name, _)| name).filter(|name| find(&new_rules, name).is_some());
        let is = new_rules.iter().map(|(name, _)| name).filter(|name| find(&old_rules, name).is_some());
        let mut fields = differing(old, new);
        fields.retain(|field| field != "rules");
        Self {
            added: only(&new_rules, &old_rules),
            removed: only(&old_rules, &new_rules),
            changed: changed.collect(),
            is_reordered: was.ne(is),
            fields,
        }
    }

    pub(crate) fn lines(&self, old: &Value, new: &Value) -> Vec<String> {
        let Self { added, removed, changed, is_reordered, fields } = self;
        let mut lines: Vec<_> = added.iter().map(|rule| format!("+ rule {rule}")).collect();
        lines.extend(removed.iter().map(|rule| format!("- rule {rule}")));
        let (old_rules, new_rules) = (rules(old), rules(new));
        for RuleDifference { rule, fields } in changed {
            lines.push(format!("~ rule {rule}"));
            let (old, new) = (find(&old_rules, rule), find(&new_rules, rule));
            lines.extend(fields.iter().map(|field| format!("    {}", moved(field, old, new))));
        }
        if *is_reordered {
            lines.push("~ the order of the rules".into());
        }
        lines.extend(fields.iter().map(|field| format!("~ {}", moved(field, Some(old), Some(new)))));
        lines
    }
}

type Named<'a> = (&'a str, &'a Value);

fn rules(document: &Value) -> Vec<Named<'_>> {
    let rules = document["rules"].as_array().into_iter().flatten();
    rules.filter_map(|rule| Some((rule["name"].as_str()?, rule))).collect()
}

fn find<'a>(rules: &[Named<'a>], name: &str) -> Option<&'a Value> {
    rules.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule)
}

fn differing(old: &Value, new: &Value) -> Vec<String> {
    let names = [old, new].into_iter().filter_map(Value::as_object).flat_map(Map::keys).collect::<BTreeSet<_>>();
    names.into_iter().filter(|name| old.get(*name) != new.get(*name)).cloned().collect()
}

fn moved(field: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    let value = |of: Option<&Value>| match of.and_then(|of| of.get(field)) {
        None => "nothing".to_owned(),
        Some(value) => short(value.to_string()),
    };
    format!("{field}: {} -> {}", value(old), value(new))
}

fn short(text: String) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
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
