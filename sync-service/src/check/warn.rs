//! What is allowed in a rule set but cannot be intended: rules that match nothing, and rules that never limit.
//!
//! It only warns of what is certain; a rule set without a warning may have such rules all the same.

mod contradiction;
mod spellings;
mod tiers;
mod written;

use serde_json::Value;
use weir_rules::Rule;
use weir_rules::algorithm::Algorithm;
use weir_rules::matching::{Clause, Condition, PathMatch};
use weir_rules::mode::Mode;
use weir_wire::sharing::WhenUnsynced;

use self::written::of_condition;
use crate::document::Document;

/// A line for each rule, list entry and tier that can never match, each rule that can never be the one that limits, and
/// what a client can evade by writing the same in another way.
pub fn warnings(document: &Document) -> Vec<String> {
    let rules = document.rules().rules();
    let mut warnings = of_lists(document);
    for (n, rule) in rules.iter().enumerate() {
        let at = |field: &str| format!("rules[{}].{field} ({})", rule.place(), rule.name);
        if rule.is_written() {
            warnings.extend(
                document.written_of(rule).map(|written| of_rule(rule, written, &at)).unwrap_or_default(),
            );
            warnings.extend(before(rule, document).map(|first| format!("{}: {first}", at("match"))));
        }
        let earlier_or_tighter = |(j, other): &(usize, &Rule)| {
            *j != n && shadows(other, rule) && (*j < n || !shadows(rule, other))
        };
        if let Some((_, other)) = rules.iter().enumerate().find(earlier_or_tighter) {
            warnings.push(format!(
                "{}: never limits: {} counts the same requests by the same key or a wider one, and allows no more",
                at("match"),
                other.name
            ));
        }
    }
    warnings
}

fn of_lists(document: &Document) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in ["allow", "deny"] {
        for (i, condition) in document.value()[name].as_array().into_iter().flatten().enumerate() {
            let at = |field: &str| format!("{name}[{i}]{field}");
            warnings.extend(of_condition(condition, &at));
            if name == "deny" {
                warnings.extend(spellings::of_condition(condition, &at));
            }
            if name == "allow" && is_everybody(condition) {
                let problem = "every client of IPv4 or IPv6 is counted by no rule";
                warnings.push(format!(
                    "{}: {problem}: expected the networks of those who are meant",
                    at(".addresses")
                ));
            }
        }
    }
    let (allow, deny) = (document.rules().allow(), document.rules().deny());
    for (list, conditions) in [("allow", allow), ("deny", deny)] {
        warnings.extend(
            conditions
                .iter()
                .enumerate()
                .filter(|(_, condition)| excludes_itself(condition))
                .map(|(i, _)| format!("{list}[{i}]: never matches: its not holds wherever the rest does")),
        );
    }
    for (i, condition) in deny.iter().enumerate() {
        if let Some(j) = allow.iter().position(|wide| contains(wide, condition)) {
            warnings.push(format!("deny[{i}]: never refuses: allow[{j}] holds wherever it does"));
        }
    }
    warnings
}

/// Whether a condition holds for every client's address of a family, and asks for nothing else.
fn is_everybody(condition: &Value) -> bool {
    let is_all = |network: &Value| network.as_str().is_some_and(|text| text.ends_with("/0"));
    let fields = condition.as_object().map_or(0, serde_json::Map::len);
    fields == 1 && condition["addresses"].as_array().is_some_and(|networks| networks.iter().any(is_all))
}

/// The entry of allow or deny that always decides before this rule, if there is one.
fn before(rule: &Rule, document: &Document) -> Option<String> {
    let holds = |list: &[Condition]| list.iter().position(|wide| contains(wide, &rule.matches));
    let rules = document.rules();
    let allowed = holds(rules.allow()).map(|i| format!("never counts: allow[{i}] holds wherever it does"));
    allowed.or_else(|| holds(rules.deny()).map(|i| format!("never limits: deny[{i}] holds wherever it does")))
}

fn of_rule(rule: &Rule, written: &Value, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let matches = written.get("match").unwrap_or(&Value::Null);
    let mut warnings = of_condition(matches, &|field| at(&format!("match{field}")));
    if excludes_itself(&rule.matches) {
        warnings.push(format!("{}: never matches: its not holds wherever the rest does", at("match")));
    }
    if rule.enforcement.mode == Mode::Enforce && rule.enforcement.percent == 0 {
        warnings.push(format!("{}: never limits: mode: shadow says the same", at("enforced_percent")));
    }
    warnings.extend(spellings::of_condition(matches, &|field| at(&format!("match{field}"))));
    warnings.extend(spellings::of_key(&written["key"], at));
    warnings.extend(tiers::of(matches, written, at));
    warnings
}

/// Whether a condition's `not` holds wherever the rest of it does.
fn excludes_itself(condition: &Condition) -> bool {
    let Condition { all, any, not } = condition;
    not.as_ref().is_some_and(|not| {
        clause_contains(not, all) || !any.is_empty() && any.iter().all(|clause| clause_contains(not, clause))
    })
}

/// Whether `rule` never has to limit a request that `other` does not limit: `other` counts all that it counts, in
/// buckets that hold no more and refill no faster.
fn shadows(other: &Rule, rule: &Rule) -> bool {
    // Every field by name, so that a new one has to be handled here.
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
    // Algorithms that say more than a rate and a burst must be the same.
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
    // Every field by name, so that a new one has to be handled here.
    let Clause { hosts, methods, paths, headers, cookies, query, claims, addresses, routes } = wide;
    (hosts.is_none() || *hosts == narrow.hosts)
        && list_contains(methods, &narrow.methods, PartialEq::eq)
        && list_contains(paths, &narrow.paths, PathMatch::contains)
        && headers.iter().all(|test| narrow.headers.contains(test))
        && cookies.iter().all(|test| narrow.cookies.contains(test))
        && query.iter().all(|test| narrow.query.contains(test))
        && claims.iter().all(|test| narrow.claims.contains(test))
        && (addresses.is_none() || *addresses == narrow.addresses)
        && list_contains(routes, &narrow.routes, PartialEq::eq)
}

/// Whether `wide` holds wherever `narrow` does; one item of a list is enough, and an empty list means any.
fn list_contains<T>(wide: &[T], narrow: &[T], contains: impl Fn(&T, &T) -> bool) -> bool {
    let has = |item: &T| wide.iter().any(|one| contains(one, item));
    wide.is_empty() || !narrow.is_empty() && narrow.iter().all(has)
}

#[cfg(test)]
mod tests;
