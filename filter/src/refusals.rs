//! What rules ask for that this module, or its host, cannot do.

use weir_rules::algorithm::Algorithm;
use weir_rules::{Rule, RuleSet};

use crate::nginx;

/// Whether this is the lean module: it hears of no response and of no end of a request.
pub(crate) const IS_LEAN: bool = cfg!(feature = "lean");

/// What a rule set asks for that cannot be done, each with its place.
pub(crate) fn refusals(rules: &RuleSet) -> Vec<String> {
    if !IS_LEAN && !nginx::IS_HOST {
        return Vec::new();
    }
    let mut refused = Vec::new();
    let mut before = None;
    for rule in rules.rules() {
        // The variants of one rule are refused once.
        if before == Some(rule.place()) {
            continue;
        }
        let whys = if IS_LEAN { refusals_of_lean(rule) } else { [nginx::refusal(rule), None, None, None] };
        for why in whys.into_iter().flatten() {
            before = Some(rule.place());
            refused.push(told(rule, why));
        }
    }
    refused
}

fn told(rule: &Rule, why: &str) -> String {
    let place = rule.place();
    if IS_LEAN {
        format!("rules[{place}].{why}: load weir_filter.wasm for the rule {}", rule.name)
    } else {
        format!("rules[{place}].{why}")
    }
}

fn refusals_of_lean(rule: &Rule) -> [Option<&'static str>; 4] {
    let counts_in_flight = rule.in_flight().is_some() || matches!(rule.algorithm, Algorithm::Concurrency(_));
    [
        rule.response.on_allowed.then_some(
            "response.on_allowed: expected false, because weir_filter_lean.wasm does not take part in responses",
        ),
        rule.response.on_shadow.then_some(
            "response.on_shadow: expected false, because weir_filter_lean.wasm does not take part in responses",
        ),
        rule.after.is_some().then_some(
            "cost.after: expected none, because weir_filter_lean.wasm does not see responses",
        ),
        counts_in_flight.then_some(
            "algorithm: expected another than concurrency, because weir_filter_lean.wasm does not see when a request \
             ends",
        ),
    ]
}
