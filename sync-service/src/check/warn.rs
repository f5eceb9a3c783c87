//! What is allowed in a rule set and cannot be meant: rules that match nothing, and rules that never limit.
//!
//! Only what is certain is warned of; a rule set without a warning may have such rules all the same.

use serde_json::Value;
use weir_limiter::algorithm::Algorithm;
use weir_limiter::rules::Rule;
use weir_limiter::rules::matching::{Clause, Condition, PathMatch};
use weir_limiter::sharing::WhenUnsynced;

use crate::document::Document;

/// A line for each rule that can never match, and each that can never be the one that limits.
pub fn warnings(document: &Document) -> Vec<String> {
    let rules = document.rules().rules();
    let mut warnings = Vec::new();
    for (i, rule) in rules.iter().enumerate() {
        let place = |field: &str| format!("rules[{i}].{field} ({})", rule.name);
        warnings.extend(
            document.written(&rule.name).map(|written| of_match(written, &place)).unwrap_or_default(),
        );
        let earlier_or_tighter = |(j, other): &(usize, &Rule)| {
            *j != i && shadows(other, rule) && (*j < i || !shadows(rule, other))
        };
        if let Some((_, other)) = rules.iter().enumerate().find(earlier_or_tighter) {
            warnings.push(format!(
                "{}: never limits: {} counts the same requests by the same key or a wider one, and allows no more",
                place("match"),
                other.name
            ));
        }
    }
    warnings
}

fn of_match(rule: &Value, place: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, found: &str, reason: &str| {
        warnings.push(format!("{}: {found:?} never matches: {reason}", place(field)));
    };
    let texts = |field: &str| {
        let list = rule["match"][field].as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(Value::as_str)
    };
    for method in texts("methods") {
        if !method.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')) {
            warn(
                "match.methods",
                method,
                "methods are compared to the letter, and clients send them in capitals",
            );
        }
    }
    let path = &rule["match"]["path"];
    let paths = rule["match"]["paths"].as_array().map_or(&[][..], Vec::as_slice).iter().chain([path]);
    for path in paths.flat_map(|path| ["exact", "prefix", "glob"].map(|kind| path[kind].as_str())).flatten() {
        if path.contains('?') {
            warn("match.path", path, "the query is no part of the path");
        } else if path.contains('#') {
            warn("match.path", path, "clients do not send what follows a #");
        } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            warn("match.path", path, "clients send such characters percent-encoded");
        }
    }
    warnings
}

/// Whether `rule` never has to limit a request that `other` does not limit: `other` counts all that it counts, in
/// buckets that hold no more and refill no faster.
fn shadows(other: &Rule, rule: &Rule) -> bool {
    // Every field by name: whoever adds one must say here what it means.
    let Rule {
        name: _,
        matches,
        key,
        missing,
        cost,
        algorithm,
        quota,
        after,
        variant,
        enforcement,
        penalty,
        sharing,
        when_unsynced,
        response: _,
    } = rule;
    // Of what says more than a rate and a burst, only the same is compared.
    let are_buckets = |a: &Algorithm, b: &Algorithm| {
        matches!((a, b), (Algorithm::TokenBucket(_), Algorithm::TokenBucket(_)))
    };
    let is_alike = (other.algorithm == *algorithm || are_buckets(&other.algorithm, algorithm))
        && other.after == *after
        && other.cost == *cost
        && other.missing == *missing
        && other.enforcement == *enforcement
        && other.variant.is_alone()
        && variant.is_alone()
        && penalty.is_none();
    let is_wider = match (other.key.prefixes(), key.prefixes()) {
        _ if other.key == *key => true,
        (Some(wide), Some(narrow)) if !other.key.is_hashed() && !key.is_hashed() => {
            wide.ipv4 <= narrow.ipv4 && wide.ipv6 <= narrow.ipv6
        }
        _ => false,
    };
    let is_tighter = other.quota.burst() <= quota.burst()
        && other.quota.token_ns() >= quota.token_ns()
        && other.sharing.local_burst <= sharing.local_burst
        && other.sharing.floors == sharing.floors
        && (other.sharing.strict || !sharing.strict)
        && (other.when_unsynced == *when_unsynced || *when_unsynced == WhenUnsynced::Local);
    is_alike && is_wider && is_tighter && contains(&other.matches, matches)
}

/// Whether `wide` holds wherever `narrow` does.
fn contains(wide: &Condition, narrow: &Condition) -> bool {
    let is_plain = wide.any.is_empty() && wide.not.is_none();
    wide == narrow || is_plain && clause_contains(&wide.all, &narrow.all)
}

fn clause_contains(wide: &Clause, narrow: &Clause) -> bool {
    // Every field by name: whoever adds one must say here what it means.
    let Clause { hosts, methods, paths, headers, query, addresses, routes } = wide;
    (hosts.is_none() || *hosts == narrow.hosts)
        && list_contains(methods, &narrow.methods, PartialEq::eq)
        && list_contains(paths, &narrow.paths, path_contains)
        && headers.iter().all(|test| narrow.headers.contains(test))
        && query.iter().all(|test| narrow.query.contains(test))
        && (addresses.is_none() || *addresses == narrow.addresses)
        && list_contains(routes, &narrow.routes, PartialEq::eq)
}

/// Of lists of which one item is enough, and none at all means any.
fn list_contains<T>(wide: &[T], narrow: &[T], contains: impl Fn(&T, &T) -> bool) -> bool {
    let has = |item: &T| wide.iter().any(|one| contains(one, item));
    wide.is_empty() || !narrow.is_empty() && narrow.iter().all(has)
}

fn path_contains(wide: &PathMatch, narrow: &PathMatch) -> bool {
    match (wide, narrow) {
        (PathMatch::Prefix(wide), PathMatch::Exact(path) | PathMatch::Prefix(path)) => path.starts_with(wide),
        _ => wide == narrow,
    }
}

#[cfg(test)]
mod tests {
    use crate::document::{Document, Form};

    fn warnings(rules: &[&str]) -> Vec<String> {
        let list: Vec<_> =
            rules.iter().enumerate().map(|(i, rule)| format!("- {{name: r{i}, {rule}}}")).collect();
        let document =
            Document::read(format!("rules:\n{}\n", list.join("\n")).as_bytes(), Form::Yaml).unwrap();
        super::warnings(&document)
    }

    fn of_match(matches: &str) -> Vec<String> {
        warnings(&[&format!("match: {matches}, key: [client_address], rate: 5/s")])
    }

    #[test]
    fn what_no_request_has_is_warned_of() {
        for (matches, reason) in [
            ("{methods: [post]}", "capitals"),
            ("{path: {exact: '/x?a=1'}}", "query"),
            ("{path: {prefix: '/x#a'}}", "#"),
            ("{path: {prefix: '/\u{e9}'}}", "percent-encoded"),
        ] {
            let found = warnings(&[&format!("match: {matches}, key: [client_address], rate: 5/s")]);
            assert!(found.len() == 1 && found[0].contains(reason), "{matches}: {found:?}");
            assert!(found[0].starts_with("rules[0].match.") && found[0].contains("(r0)"), "{found:?}");
        }
        for good in [
            "{hosts: [a.example, '::1', '*.b.example']}",
            "{methods: [GET, M-SEARCH]}",
            "{path: {prefix: /a%20b}}",
        ] {
            assert_eq!(of_match(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn a_rule_that_another_is_always_quicker_than_is_warned_of() {
        let narrow = "match: {methods: [POST], path: {exact: /a/b}}, key: [client_address], rate: 5/s";
        for tighter in [
            "key: [client_address], rate: 4/s",
            "key: [client_address: {ipv4: 24}], rate: 5/s",
            "match: {path: {prefix: /a}}, key: [client_address], rate: 5/s, strict: true",
            "match: {methods: [PUT, POST]}, key: [client_address], rate: 5/s, local_burst: 2",
        ] {
            for rules in [[narrow, tighter], [tighter, narrow]] {
                let (found, at) = (warnings(&rules), rules.iter().position(|rule| *rule == narrow).unwrap());
                assert_eq!(found.len(), 1, "{tighter}: {found:?}");
                assert!(
                    found[0].starts_with(&format!("rules[{at}].match (r{at}): never limits: r{}", 1 - at)),
                    "{found:?}"
                );
            }
        }
        for other in [
            "key: [client_address], rate: 4/s, burst: 6",
            "key: [client_address], rate: 6/s, burst: 4",
            "key: [client_address: {ipv6: 65}], rate: 5/s",
            "match: {path: {prefix: /a/b/}}, key: [client_address], rate: 1/s",
            "match: {methods: [GET]}, key: [client_address], rate: 1/s",
            "match: {hosts: [a.example]}, key: [client_address], rate: 1/s",
            "key: [client_address], rate: 4/s, floors: {eu: 30}",
        ] {
            assert_eq!(warnings(&[narrow, other]), [""; 0], "{other}");
        }
        let deny = format!("{narrow}, when_unsynced: deny");
        assert_eq!(warnings(&[&deny, "key: [client_address], rate: 4/s"]), [""; 0], "it fails closed");
    }

    #[test]
    fn of_two_that_are_the_same_the_later_is_warned_of() {
        let same = "key: [client_address], rate: 5/s";
        let found = warnings(&[same, same, same]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("rules[1]") && found[1].starts_with("rules[2]"), "{found:?}");
    }
}
