//! What a rule set changes of another, for people: as `weir-sync` tells it, with the values where both are known.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::changes::{Changed, Changes};
use crate::cli::table::shown;

/// The most characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 100;

/// How one document differs from another.
pub(super) struct Differences<'a> {
    changes: Changes,
    old: &'a Value,
    new: &'a Value,
}

impl<'a> Differences<'a> {
    /// What `new` changes of `old`, of which there may be none.
    pub(super) fn between(old: Option<&'a Value>, new: &'a Value) -> Self {
        let old = old.unwrap_or(&Value::Null);
        Self { changes: Changes::between(old, new), old, new }
    }

    /// Whether both say the same.
    pub(super) fn is_same(&self) -> bool {
        self.changes == Changes::default()
    }

    /// For programs, as in the answer to a dry run.
    pub(super) fn told(&self) -> Value {
        // Texts alone, which can always be written.
        serde_json::to_value(&self.changes).unwrap_or_default()
    }

    /// A line for each rule and each field.
    pub(super) fn page(&self) -> String {
        let Changes { added, removed, changed, is_reordered, fields } = &self.changes;
        let mut page = String::new();
        let mut line = |text: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "{text}");
        };
        for (sign, rules) in [('+', added), ('-', removed)] {
            for rule in rules {
                line(&format!("{sign} rule {}", shown(rule)));
            }
        }
        let (old, new) = (rules(self.old), rules(self.new));
        for Changed { rule, fields } in changed {
            line(&format!("~ rule {}", shown(rule)));
            let (old, new) = (old.get(rule.as_str()), new.get(rule.as_str()));
            for field in fields {
                line(&format!("    {}", moved(field, old.copied(), new.copied())));
            }
        }
        if *is_reordered {
            line("~ the order of the rules");
        }
        for field in fields {
            line(&format!("~ {}", moved(field, Some(self.old), Some(self.new))));
        }
        page
    }
}

fn rules(document: &Value) -> BTreeMap<&str, &Value> {
    let rules = document["rules"].as_array().into_iter().flatten();
    rules.filter_map(|rule| Some((rule["name"].as_str()?, rule))).collect()
}

/// A field, with what it was and what it is.
fn moved(field: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    let value = |of: Option<&Value>| match of.and_then(|of| of.get(field)) {
        None => "nothing".to_owned(),
        Some(value) => short(&shown(&value.to_string())),
    };
    format!("{}: {} -> {}", shown(field), value(old), value(new))
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

    #[test]
    fn each_change_is_a_line_with_what_was_and_what_is() {
        let rule = |name: &str, rate: &str| json!({"name": name, "key": ["all"], "rate": rate});
        let mut login = rule("login", "10/m");
        login["strict"] = json!(true);
        let old = json!({"rules": [rule("old\u{1b}", "1/s"), rule("login", "5/m"), rule("api", "1/s")]});
        let new = json!({"rules": [rule("api", "1/s"), login, rule("search", "1/s")], "deny": [{"hosts": ["h".repeat(200)]}]});
        let expected = format!(
            "+ rule search\n- rule old\u{fffd}\n~ rule login\n    rate: \"5/m\" -> \"10/m\"\n    strict: nothing -> true\n\
             ~ the order of the rules\n~ deny: nothing -> [{{\"hosts\":[\"{}...\n",
            "h".repeat(88)
        );
        assert_eq!(Differences::between(Some(&old), &new).page(), expected);
        assert!(Differences::between(Some(&old), &old).is_same());
        assert_eq!(Differences::between(None, &old).page().lines().count(), 3);
    }
}
