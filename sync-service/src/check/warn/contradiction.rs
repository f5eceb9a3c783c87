//! Conditions that no request can meet, as far as their text shows.

use weir_rules::matching::{Clause, Condition, PathMatch, Test, ValueTest, Written};
use weir_rules::request::{Attributes, Folding};

use crate::check::explain::condition::source;

/// Reason why no request meets both `condition` and `also`; none if one may.
pub(super) fn of(condition: &Condition, also: Option<&Condition>, attributes: &Attributes) -> Option<String> {
    let both = || std::iter::once(condition).chain(also);
    let base: Vec<&Clause> = both().map(|condition| &condition.all).collect();
    of_clauses(&base, attributes).or_else(|| {
        both().filter(|condition| !condition.any.is_empty()).find_map(|condition| {
            let with = |clause| of_clauses(&[&base[..], &[clause]].concat(), attributes);
            let reasons: Option<Vec<_>> = condition.any.iter().map(with).collect();
            Some(format!("none of any can hold: {}", reasons?.into_iter().next()?))
        })
    })
}

/// Reason why no request meets a clause; none if one may.
pub(super) fn of_clause(clause: &Clause, attributes: &Attributes) -> Option<String> {
    of_clauses(&[clause], attributes)
}

/// Reason why no request meets all of `clauses`; none if one may.
fn of_clauses(clauses: &[&Clause], attributes: &Attributes) -> Option<String> {
    let tests: Vec<&Test> = clauses.iter().flat_map(|clause| clause.tests()).collect();
    let pairs = tests.iter().enumerate().flat_map(|(i, a)| tests[i + 1..].iter().map(move |b| (*a, *b)));
    pairs.into_iter().find_map(|(a, b)| exclusion(a, b, attributes))
}

/// Reason why no request passes both tests; none if one may.
fn exclusion(a: &Test, b: &Test, attributes: &Attributes) -> Option<String> {
    let in_both = |what: &str| format!("no request is in both of its lists of {what}");
    let are_apart = |a: &[String], b: &[String]| a.iter().all(|text| !b.contains(text));
    match (a, b) {
        (Test::Methods(a), Test::Methods(b)) => are_apart(a, b).then(|| in_both("methods")),
        (Test::Routes(a), Test::Routes(b)) => are_apart(a, b).then(|| in_both("routes")),
        (Test::Paths(a), Test::Paths(b)) => {
            let are_apart = a.iter().all(|a| b.iter().all(|b| paths_are_apart(a, b)));
            are_apart.then(|| "no path meets all that it says of paths".into())
        }
        (Test::Value(value, a), Test::Value(other, b)) if value.source == other.source => {
            let name = source(&value.source, attributes);
            values_are_apart(a, b).then(|| format!("its tests of {name} exclude each other"))
        }
        _ => None,
    }
}

/// True if certainly no path matches both; never true for globs.
fn paths_are_apart(a: &PathMatch, b: &PathMatch) -> bool {
    // With all foldings, because either test may treat two paths as one that the other distinguishes.
    let folded = |path: &PathMatch| {
        let folded = Folding::ALL.of(path.written().text().as_bytes());
        String::from_utf8_lossy(&folded).trim_end_matches('/').to_owned()
    };
    let (text, other) = (folded(a), folded(b));
    match (a.written(), b.written()) {
        (Written::Glob(_), _) | (_, Written::Glob(_)) => false,
        (Written::Exact(_), Written::Exact(_)) => text != other,
        (Written::Exact(_), Written::Prefix(_)) => !text.starts_with(&other),
        (Written::Prefix(_), Written::Exact(_)) => !other.starts_with(&text),
        (Written::Prefix(_), Written::Prefix(_)) => !text.starts_with(&other) && !other.starts_with(&text),
    }
}

/// True if certainly no value passes both tests; never true for regular expressions.
fn values_are_apart(a: &ValueTest, b: &ValueTest) -> bool {
    use ValueTest::{In, Prefix, Present};
    match (a, b) {
        (Present(false), Present(false)) => false,
        // A missing value passes no other test.
        (Present(false), _) | (_, Present(false)) => true,
        (In(values), In(others)) => !values.iter().any(|value| others.contains(value.as_bytes())),
        (In(values), Prefix(prefix)) | (Prefix(prefix), In(values)) => {
            !values.iter().any(|value| value.starts_with(prefix.as_str()))
        }
        (Prefix(a), Prefix(b)) => !a.starts_with(b.as_str()) && !b.starts_with(a.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Form};
    use serde_json::{Value, json};

    /// Why no request meets both conditions.
    fn why(condition: &Value, also: &Value) -> Option<String> {
        let rule = |(name, condition): (&str, &Value)| json!({"name": name, "match": condition, "key": ["all"], "rate": "1/s"});
        let rules = [("a", condition), ("b", also)].map(rule);
        let document = Document::read(json!({"rules": rules}).to_string().as_bytes(), Form::Json).unwrap();
        let rules = document.rules();
        let [condition, also] = [0, 1].map(|i: usize| &*rules.rules()[i].matches);
        of(condition, Some(also), rules.attributes())
    }

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
            assert_eq!(why(&headers(a, b), &json!({})).is_some(), apart, "{a} {b}");
            assert_eq!(why(&headers(b, a), &json!({})).is_some(), apart, "{b} {a}");
        }
        let of_query = json!({"query": [{"name": "a", "equals": "1"}, {"name": "A", "equals": "2"}]});
        assert_eq!(why(&of_query, &json!({})), None, "names of parameters are told apart by case");
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
            let found = why(&condition, &json!({}));
            assert_eq!(found.is_some(), reason.is_some(), "{condition}: {found:?}");
            assert!(found.unwrap_or_default().contains(reason.unwrap_or_default()), "{condition}");
        }
        let (get, put) = (json!({"methods": ["GET"]}), json!({"methods": ["PUT"]}));
        assert!(why(&get, &put).is_some() && why(&get, &get).is_none());
    }
}
