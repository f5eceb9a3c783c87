//! Conditions that no request can meet, as far as their text tells.

use serde_json::Value;

use weir_rules::matching::Folding;

use crate::check::explain::condition::plain;

/// Why no request meets both `condition` and `also`; none where one might.
pub(super) fn of(condition: &Value, also: Option<&Value>) -> Option<String> {
    let base: Vec<&Value> = [Some(condition), also].into_iter().flatten().collect();
    if let Some(reason) = of_clauses(&base) {
        return Some(reason);
    }
    base.iter().find_map(|condition| {
        let any = condition["any"].as_array()?;
        let with = |clause| of_clauses(&[&base[..], &[clause]].concat());
        let reasons: Option<Vec<_>> = any.iter().map(with).collect();
        Some(format!("none of any can hold: {}", reasons?.into_iter().next()?))
    })
}

/// Why no request meets all of `clauses`.
fn of_clauses(clauses: &[&Value]) -> Option<String> {
    let (mut methods, mut routes, mut paths) = (Lists::default(), Lists::default(), Lists::default());
    let mut tests: Vec<(&str, String, &Value)> = Vec::new();
    for clause in clauses {
        methods.add(clause["methods"].as_array());
        routes.add(clause["routes"].as_array());
        paths.add(clause["paths"].as_array());
        if let Some(path) = clause.get("path") {
            paths.0.push(vec![path]);
        }
        let fields =
            [("headers", "header"), ("cookies", "cookie"), ("query", "query parameter"), ("claims", "claim")];
        for (field, kind) in fields {
            for test in clause[field].as_array().into_iter().flatten() {
                // A claim's name is a list.
                let name = plain(&test["name"]);
                let name = if field == "headers" { name.to_ascii_lowercase() } else { name };
                tests.push((kind, name, test));
            }
        }
    }
    for (what, lists) in [("methods", &methods), ("routes", &routes)] {
        if lists.are_apart(|a, b| a != b) {
            return Some(format!("no request is in both of its lists of {what}"));
        }
    }
    if paths.are_apart(paths_are_apart) {
        return Some("no path meets all that it says of paths".into());
    }
    for (i, (kind, name, test)) in tests.iter().enumerate() {
        let other =
            tests.iter().skip(i + 1).find(|(k, n, other)| k == kind && n == name && are_apart(test, other));
        if other.is_some() {
            return Some(format!("its tests of {kind} {name} exclude each other"));
        }
    }
    None
}

/// Lists; one item of each must hold.
#[derive(Default)]
struct Lists<'a>(Vec<Vec<&'a Value>>);

impl<'a> Lists<'a> {
    fn add(&mut self, list: Option<&'a Vec<Value>>) {
        self.0.extend(list.map(|list| list.iter().collect()));
    }

    /// Whether two of the lists have no pair of items that hold together.
    fn are_apart(&self, apart: impl Fn(&Value, &Value) -> bool) -> bool {
        let pairs =
            self.0.iter().enumerate().flat_map(|(i, a)| self.0.iter().skip(i + 1).map(move |b| (a, b)));
        pairs.into_iter().any(|(a, b)| a.iter().all(|a| b.iter().all(|b| apart(a, b))))
    }
}

/// Whether no path meets both; globs are not judged.
fn paths_are_apart(a: &Value, b: &Value) -> bool {
    // Folded in full: either may take for the same path what the other does not.
    let text = |path: &Value, kind: &str| {
        let folded = Folding::ALL.of(path[kind].as_str()?.as_bytes());
        Some(String::from_utf8_lossy(&folded).trim_end_matches('/').to_owned())
    };
    match ((text(a, "exact"), text(a, "prefix")), (text(b, "exact"), text(b, "prefix"))) {
        ((Some(a), _), (Some(b), _)) => a != b,
        ((Some(exact), _), (_, Some(prefix))) | ((_, Some(prefix)), (Some(exact), _)) => {
            !exact.starts_with(&prefix)
        }
        ((_, Some(a)), (_, Some(b))) => !a.starts_with(&b) && !b.starts_with(&a),
        _ => false,
    }
}

/// Whether no value passes both tests; regular expressions are not judged.
fn are_apart(a: &Value, b: &Value) -> bool {
    if a["present"] == false || b["present"] == false {
        // A missing value passes no other test.
        return a["present"] != b["present"];
    }
    let prefix = |test: &Value| test["prefix"].as_str().map(str::to_owned);
    let passes = |value: &str, test: &Value| match (values(test), prefix(test)) {
        (Some(values), _) => values.contains(&value),
        (None, Some(prefix)) => value.starts_with(&prefix),
        (None, None) => true,
    };
    match (values(a), values(b), prefix(a), prefix(b)) {
        (Some(values), ..) => !values.iter().any(|value| passes(value, b)),
        (None, Some(values), ..) => !values.iter().any(|value| passes(value, a)),
        (None, None, Some(a), Some(b)) => !a.starts_with(&b) && !b.starts_with(&a),
        _ => false,
    }
}

/// The values that a test allows, if it names them.
fn values(test: &Value) -> Option<Vec<&str>> {
    let one = test["equals"].as_str().map(|value| vec![value]);
    one.or_else(|| Some(test["in"].as_array()?.iter().filter_map(Value::as_str).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(a: &Value, b: &Value) -> Value {
        let named = |test: &Value, name: &str| {
            let mut test = test.clone();
            test["name"] = name.into();
            test
        };
        json!({"headers": [named(a, "X-A"), named(b, "x-a")]})
    }

    #[test]
    fn tests_of_one_header_may_exclude_each_other() {
        let (one, there, absent) =
            (json!({"equals": "abc"}), json!({"present": true}), json!({"present": false}));
        let (list, prefix, regex) =
            (json!({"in": ["abc", "d"]}), json!({"prefix": "ab"}), json!({"regex": "x"}));
        for (a, b, apart) in [
            (&one, &absent, true),
            (&there, &absent, true),
            (&regex, &absent, true),
            (&one, &json!({"equals": "abd"}), true),
            (&one, &json!({"prefix": "b"}), true),
            (&list, &json!({"in": ["e", "f"]}), true),
            (&prefix, &json!({"prefix": "b"}), true),
            (&absent, &absent, false),
            (&one, &there, false),
            (&one, &list, false),
            (&list, &prefix, false),
            (&prefix, &json!({"prefix": "abc"}), false),
            (&one, &regex, false),
            (&regex, &prefix, false),
        ] {
            assert_eq!(of(&headers(a, b), None).is_some(), apart, "{a} {b}");
            assert_eq!(of(&headers(b, a), None).is_some(), apart, "{b} {a}");
        }
        let of_query = json!({"query": [{"name": "a", "equals": "1"}, {"name": "A", "equals": "2"}]});
        assert_eq!(of(&of_query, None), None, "names of parameters are told apart by case");
    }

    #[test]
    fn what_any_asks_may_exclude_the_rest() {
        for (condition, reason) in [
            (
                json!({"methods": ["GET"], "any": [{"methods": ["PUT"]}, {"methods": ["POST"]}]}),
                Some("methods"),
            ),
            (json!({"path": {"exact": "/a"}, "any": [{"path": {"prefix": "/b"}}]}), Some("path")),
            (
                json!({"paths": [{"prefix": "/a/"}], "any": [{"paths": [{"prefix": "/b"}, {"exact": "/c"}]}]}),
                Some("path"),
            ),
            (json!({"routes": ["a"], "any": [{"routes": ["b"]}]}), Some("routes")),
            (json!({"methods": ["GET"], "any": [{"methods": ["PUT"]}, {"hosts": ["a"]}]}), None),
            (json!({"path": {"exact": "/a"}, "any": [{"path": {"glob": "/b"}}]}), None),
            (json!({"path": {"prefix": "/a"}, "any": [{"path": {"prefix": "/a/b"}}]}), None),
        ] {
            let found = of(&condition, None);
            assert_eq!(found.is_some(), reason.is_some(), "{condition}: {found:?}");
            assert!(found.unwrap_or_default().contains(reason.unwrap_or_default()), "{condition}");
        }
        let (get, put) = (json!({"methods": ["GET"]}), json!({"methods": ["PUT"]}));
        assert!(of(&get, Some(&put)).is_some() && of(&get, Some(&get)).is_none());
    }
}
