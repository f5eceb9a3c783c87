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
