//! What is wrong, and no schema can say.

use serde_json::{Value, json};

use super::{many, matching, rule_with, x};

/// What only the parser sees: it reads texts, and compares values and rules with one another.
pub(super) fn refused_by_the_parser_alone() -> Vec<Value> {
    let rule = json!({"name": "r", "key": ["all"], "rate": "1/s"});
    let patterns = many(99, |_| json!({"name": "x", "regex": "a"}));
    let mut bad = vec![
        // Names, each once.
        json!({"rules": [rule, rule]}),
        // Too many regular expressions, headers, rules in all.
        json!({"rules": many(3, |i| json!({"name": format!("r{i}"), "key": ["all"], "rate": "1/s", "match": {"headers": patterns}}))}),
        json!({"rules": many(501, |i| json!({"name": format!("r{i}"), "key": ["client_address"], "rate": "1/s", "also_by_prefix": [{"ipv4": 24, "times": 2}]}))}),
    ];
    bad.extend(
        [
            // Never admitted, or never full.
            json!({"cost": 11}),
            json!({"cost": {"header": "a", "max": 11}}),
            json!({"cost": {"header": "a", "default": 3, "max": 2}}),
            json!({"cost": 5, "local_burst": 4}),
            json!({"burst": 5, "local_burst": 6}),
            json!({"rate": "1/d", "burst": 500}),
            // Sums, lengths of time, what an algorithm can hold.
            json!({"min_share": {"eu": 60, "us": 50}}),
            json!({"penalty": {"after": 1, "within": "1m", "deny_for": "8d"}}),
            json!({"penalty": {"after": 1, "within": "401d", "deny_for": "1m"}}),
            json!({"algorithm": "fixed_window", "rate": "1/401d"}),
            json!({"algorithm": "leaky_bucket", "queue": 1_000}),
            json!({"algorithm": "sliding_log", "rate": "1000/s"}),
            // Parts and prefixes that do not go together.
            json!({"key": ["client_address", {"client_address": {"ipv4": 24}}]}),
            json!({"key": [{"header": "A"}, {"header": "a"}]}),
            json!({"key": ["host"], "also_by_prefix": [{"ipv4": 24, "times": 2}]}),
            json!({"also_by_prefix": [{"ipv4": 32, "times": 2}]}),
            json!({"also_by_prefix": [{"ipv4": 24, "times": 1_000}], "burst": 1_001}),
            json!({"tiers": [{"name": "t", "when": {}, "times": 2}, {"name": "t", "when": {}, "times": 3}]}),
            json!({"tiers": [{"name": x(64), "when": {}, "times": 2}]}),
            json!({"tiers": [{"name": "t", "when": {}, "rate": "1/s"}], "cost": 5}),
            // Bytes, where the schema counts characters.
            json!({"response": {"body": "\u{e9}".repeat(4_097)}}),
            json!({"response": {"set_headers": {"x-a": "a", "X-A": "b"}}}),
        ]
        .iter()
        .map(rule_with),
    );
    bad.extend(
        [
            json!({"addresses": ["10.0.0.1/8"]}),
            json!({"addresses": ["10.0.0.0/33"]}),
            json!({"hosts": ["1:2"]}),
            json!({"headers": [{"name": "x", "regex": "("}]}),
            json!({"headers": [{"name": "x", "regex": "(a{1000}){1000}"}]}),
        ]
        .iter()
        .map(matching),
    );
    bad
}
