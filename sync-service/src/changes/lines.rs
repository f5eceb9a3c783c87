//! Differences between two rule sets as text: a line per rule and field, with the values.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Differences, RuleDifference};

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
        let new = json!({"rules": [rule("api", "1/s"), login, rule("search", "1/s")], "deny": [{"hosts": ["h".repeat(200)]}]});
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
