//! Plugin configurations, as an operator would write them.

use serde_json::{Value, json};

/// A rule for every request, by client address.
pub(crate) fn rule(name: &str, rate: &str, burst: u32) -> Value {
    json!({"name": name, "key": ["client_address"], "rate": rate, "burst": burst})
}

/// `rule` with one more field.
pub(crate) fn with(mut rule: Value, field: &str, value: Value) -> Value {
    rule[field] = value;
    rule
}

/// A configuration of these rules, without a budget loop.
pub(crate) fn rules(rules: impl Into<Vec<Value>>) -> Value {
    json!({"rules": rules.into()})
}

/// A configuration of one rule for every request, without a budget loop.
pub(crate) fn one(name: &str, rate: &str, burst: u32) -> Value {
    rules([rule(name, rate, burst)])
}
