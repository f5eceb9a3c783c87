//! Warnings about conditions and keys: texts that no request has, contradictory tests, values that can be respelled.

use std::fmt;

use serde::Serialize;
use weir_rules::key::{KeyPart, KeySpec, Part};
use weir_rules::matching::{Clause, Condition, PathMatch, Test, ValueTest, Written};
use weir_rules::request::{Attributes, Duplicates, Folding, Source};

use crate::check::explain::condition::source;

/// Warns about tests that no request can pass. `at` returns the place of a field, given with a leading dot.
pub(super) fn of_condition(
    condition: &Condition,
    attributes: &Attributes,
    at: &dyn Fn(&str) -> String,
) -> Vec<Warning> {
    let mut warnings = of_clause(&condition.all, at);
    for (i, clause) in condition.any.iter().enumerate() {
        let place = |field: &str| at(&format!(".any[{i}]{field}"));
        warnings.extend(of_clause(clause, &place));
        let never = |reason| Warning::at(place(""), format!("never holds: {reason}"));
        warnings.extend(contradiction_of(&[clause], attributes).map(never));
    }
    if let Some(not) = &condition.not {
        warnings.extend(of_clause(not, &|field| at(&format!(".not{field}"))));
        let never = |reason| Warning::at(at(".not"), format!("excludes nothing: {reason}"));
        warnings.extend(contradiction_of(&[not], attributes).map(never));
    }
    let never = |reason| Warning::at(at(""), format!("never matches: {reason}"));
    warnings.extend(contradiction(condition, None, attributes).map(never));
    warnings
}

fn of_clause(clause: &Clause, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let never = |found: &str, reason: &str| format!("{found:?} never matches: {reason}");
    for test in clause.tests() {
        match test {
            Test::Methods(methods) | Test::OverriddenMethods(methods, _) => {
                let is_sent = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
                for method in methods.iter().filter(|method| !method.bytes().all(is_sent)) {
                    let reason = "methods are compared to the letter, and clients send them in capitals";
                    warnings.push(Warning::at(at(".methods"), never(method, reason)));
                }
            }
            Test::Paths(paths) => {
                for (i, written) in paths.iter().map(PathMatch::written).enumerate() {
                    let path = written.text();
                    let place = if paths.len() == 1 { ".path".to_owned() } else { format!(".paths[{i}]") };
                    let reason = if path.contains('?') {
                        Some("the query is no part of the path")
                    } else if path.contains('#') {
                        Some("clients do not send what follows a #")
                    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                        Some("clients send such characters percent-encoded")
                    } else {
                        None
                    };
                    let problem = reason.map(|reason| never(path, reason)).or_else(|| of_pattern(written));
                    warnings.extend(problem.map(|problem| Warning::at(at(&place), problem)));
                }
            }
            _ => {}
        }
    }
    warnings
}

/// Warns about a path that looks like a pattern, but is compared literally.
fn of_pattern(written: &Written) -> Option<String> {
    let (Written::Exact(path) | Written::Prefix(path)) = written else { return None };
    let found = path.chars().find(|letter| "(|^$".contains(*letter));
    if let Some(found) = found {
        return Some(format!(
            "{path:?} is compared to the letter, and has a {found}: a path is no regular expression. Use paths or \
             {{glob: ...}}, in which a {found} is only itself"
        ));
    }
    path.contains('*').then(|| format!("{path:?} is compared to the letter: did you mean {{glob: {path}}}?"))
}

/// Warning about a part of a valid rule set that cannot be intended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Place such as `rules[0].match`.
    pub place: String,
    /// Name of the rule that contains the part, if any.
    pub rule: Option<String>,
    pub problem: String,
}

impl Warning {
    pub(super) fn at(place: String, problem: impl Into<String>) -> Self {
        Self { place, rule: None, problem: problem.into() }
    }

    pub(super) fn of_rule(self, name: &str) -> Self {
        Self { rule: Some(name.to_owned()), ..self }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, rule, problem } = self;
        match rule {
            Some(rule) => write!(f, "{place} ({rule}): {problem}"),
            None => write!(f, "{place}: {problem}"),
        }
    }
}

/// Another spelling of `/login` for each of [`Folding::NAMES`].
const SPELLINGS: [&str; 4] = ["/LOGIN", "/login/", "/login;a", "/%6Cogin"];

/// Warns about each path outside `not` that is refused or counted in one spelling only.
pub(super) fn of_spellings(condition: &Condition, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let mut warnings = clause_spellings(&condition.all, at);
    for (i, clause) in condition.any.iter().enumerate() {
        warnings.extend(clause_spellings(clause, &|field| at(&format!(".any[{i}]{field}"))));
    }
    warnings
}

fn clause_spellings(clause: &Clause, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let paths = clause.tests().find_map(|test| if let Test::Paths(paths) = test { Some(paths) } else { None });
    let paths = paths.map_or(&[][..], Vec::as_slice);
    let mut warnings = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let place = if paths.len() == 1 { ".path".to_owned() } else { format!(".paths[{i}]") };
        for ((field, folding), spelled) in Folding::NAMES.iter().zip(SPELLINGS) {
            if path.distinguishes().has(*folding) {
                let problem = format!(
                    "a client gets past it with another spelling, as {spelled} is of /login, unless the upstream \
                     tells them apart: remove {field}, or set it to ignore"
                );
                warnings.push(Warning::at(at(&format!("{place}.{field}")), problem));
            }
        }
    }
    warnings
}

/// Warns about each credential in a key that a client can send twice to get another key.
pub(super) fn of_key(key: &KeySpec, attributes: &Attributes, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let is_open = |part: KeyPart<'_>| {
        let KeyPart::Other(Part::Value(value)) = part else { return false };
        let Source::Attribute(id) = value.source else { return false };
        value.duplicates == Duplicates::Unset && attributes.is_credentials(id)
    };
    let open = key.parts().enumerate().filter(|(_, part)| is_open(*part));
    let problem = "a client that sends it twice has another bucket for each pair: expected duplicates: limit, or the \
                   one that the upstream takes";
    open.map(|(i, _)| Warning::at(at(&format!("key[{i}]")), problem)).collect()
}

/// Reason why no request meets both `condition` and `also`, or `None` if one may.
pub(super) fn contradiction(
    condition: &Condition,
    also: Option<&Condition>,
    attributes: &Attributes,
) -> Option<String> {
    let both = || std::iter::once(condition).chain(also);
    let base: Vec<&Clause> = both().map(|condition| &condition.all).collect();
    contradiction_of(&base, attributes).or_else(|| {
        both().filter(|condition| !condition.any.is_empty()).find_map(|condition| {
            let with = |clause| contradiction_of(&[&base[..], &[clause]].concat(), attributes);
            let reasons: Option<Vec<_>> = condition.any.iter().map(with).collect();
            Some(format!("none of any can hold: {}", reasons?.into_iter().next()?))
        })
    })
}

/// Reason why no request meets all `clauses`, or `None` if one may.
fn contradiction_of(clauses: &[&Clause], attributes: &Attributes) -> Option<String> {
    let tests: Vec<&Test> = clauses.iter().flat_map(|clause| clause.tests()).collect();
    let pairs = tests.iter().enumerate().flat_map(|(i, a)| tests[i + 1..].iter().map(move |b| (*a, *b)));
    pairs.into_iter().find_map(|(a, b)| exclusion(a, b, attributes))
}

/// Reason why no request passes both tests, or `None` if one may.
fn exclusion(a: &Test, b: &Test, attributes: &Attributes) -> Option<String> {
    let in_both = |what: &str| format!("no request is in both of its lists of {what}");
    let are_apart = |a: &[String], b: &[String]| a.iter().all(|text| !b.contains(text));
    match (a, b) {
        (Test::Methods(a), Test::Methods(b)) => are_apart(a, b).then(|| in_both("methods")),
        (Test::Routes(a), Test::Routes(b)) => are_apart(a, b).then(|| in_both("routes")),
        (Test::Paths(a), Test::Paths(b)) => {
            let are_apart = a.iter().all(|a| b.iter().all(|b| paths_are_apart(a, b)));
            are_apart.then(|| "no path meets all of its tests of paths".into())
        }
        (Test::Value(value, a), Test::Value(other, b)) if value.source == other.source => {
            let name = source(&value.source, attributes);
            values_are_apart(a, b).then(|| format!("its tests of {name} exclude each other"))
        }
        _ => None,
    }
}

/// True if it is certain that no path matches both; never true for globs.
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

/// True if it is certain that no value passes both tests; never true for regular expressions.
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
