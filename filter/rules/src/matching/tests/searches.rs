//! The work that searches for regular expressions may cost a request.

use super::*;
use crate::request::SEARCH_WORK_MAX;

/// An expression whose compiled form takes several kilobytes.
const DEAR: &str = "(a?b?c?d?e?f?g?h?i?j?){6}z$";

/// A rule whose condition is this, with as many tiers.
fn rule(condition: &Value, tiers: usize) -> Value {
    let tier = |i| json!({"name": format!("t{i}"), "when": {"addresses": [format!("192.0.2.{i}")]}, "times": 2});
    let mut rule = json!({"name": "a", "match": condition, "key": ["client_address"], "rate": "1/s"});
    if tiers > 0 {
        rule["tiers"] = (0..tiers).map(tier).collect();
    }
    rule
}

/// The lists' result for a request with header `x` of `value`, the number of rules that count it, and the work of both.
fn searched(document: &Value, value: &str) -> (Listed, usize, usize) {
    let (rules, mut sample) = (listing(document), Sample::of(&[("x", value), ("address", "198.51.100.1")]));
    let (mut values, mut room, mut out) = (Values::default(), Bits::default(), vec![]);
    let mut request = Fetched::new(&mut sample, rules.attributes(), &mut values);
    let listed = rules.listed(&mut request, &mut room);
    let counting = rules.find_matches(&mut request, &mut room, &mut out).len();
    (listed, counting, request.search_work.spent())
}

fn test(regex: &str) -> Value {
    json!({"headers": [{"name": "x", "regex": regex}]})
}

#[test]
fn the_dearest_request_costs_a_bounded_amount_of_work() {
    let bytes = Pattern::new(DEAR, false).unwrap().program_bytes();
    let count = PROGRAMS_BYTES_MAX / bytes;
    let dear: Vec<_> = (0..count).map(|_| test(DEAR)).collect();
    let document = json!({"rules": [rule(&json!({}), 0)], "deny": dear});
    for (value_bytes, is_decided) in [(REGEX_VALUE_BYTES_MAX, false), (SEARCH_WORK_MAX / bytes / count, true)] {
        let (listed, _, work) = searched(&document, &"a".repeat(value_bytes));
        assert_eq!(listed, if is_decided { Listed::No } else { Listed::Blocked }, "{value_bytes}");
        assert!(work <= SEARCH_WORK_MAX && work + REGEX_VALUE_BYTES_MAX * bytes > SEARCH_WORK_MAX, "{work}");
    }
}

#[test]
fn a_rules_tiers_search_for_its_expression_once() {
    let bytes = Pattern::new("^a", false).unwrap().program_bytes();
    let document = json!({"rules": [rule(&test("^a"), 9)]});
    assert_eq!(searched(&document, "abc"), (Listed::No, 1, 3 * bytes));
}

#[test]
fn lines_and_their_joined_text_share_the_work_of_one_request() {
    let bytes = Pattern::new("^a", false).unwrap().program_bytes();
    let document = json!({"rules": [rule(&test("^a"), 0)]});
    assert_eq!(searched(&document, "ab\nac"), (Listed::No, 1, (5 + 2 + 2) * bytes));
    let long = ["a".repeat(REGEX_VALUE_BYTES_MAX), "a".into()].join("\n");
    assert_eq!(searched(&document, &long), (Listed::No, 1, 0), "undecided, so it is counted");
}
