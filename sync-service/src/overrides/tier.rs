//! Tiers that overrides add to their rules, and the keys that they ban.

use serde_json::{Map, Value, json};
use weir_budget::budget::BudgetId;
use weir_rules::address::{IPV4_BITS, IPV6_BITS, Prefixes};
use weir_rules::key::{KeySpec, KeyValue};
use weir_rules::matching::Range;
use weir_rules::reading::ConfigError;
use weir_rules::{Rule, RuleSet};

use super::spec::{Override, OverrideKind, OverrideQuota, Subject};
use crate::keys::name;

/// Prefix of a value, for keys with one part besides the client's address.
const TEXT: &str = "text:";

/// Adds a tier with these terms and this end for `keys` to a rule of `document`, before its other tiers.
pub(super) fn add(
    document: &mut Map<String, Value>,
    rules: &RuleSet,
    (rule, terms): (&str, &OverrideQuota),
    keys: &[&str],
    until_ms: u64,
) -> Result<(), Vec<ConfigError>> {
    let wrong = |place: &str, problem: String| vec![ConfigError { place: place.into(), problem }];
    let missing = || wrong("rule", format!("expected the name of a rule of the rule set, found {rule:?}"));
    let spec = key_spec(rules, rule).ok_or_else(missing)?;
    let mut tier = json!({"name": name(terms), "rate": terms.rate});
    if let Some(burst) = terms.burst {
        tier["burst"] = burst.into();
    }
    let written: Option<Vec<String>> = keys.iter().map(|key| written(spec, key)).collect();
    let written = written.ok_or_else(|| wrong("key", expected(spec).into()))?;
    tier["when"] = json!({"until_ms": until_ms});
    if spec.is_address() {
        tier["when"]["addresses"] = json!(written);
    } else if !spec.is_all() {
        tier["keys"] = json!(written);
    }
    let listed = document.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten();
    let fields = listed.filter_map(Value::as_object_mut).find(|fields| fields["name"] == rule);
    let tiers = fields.ok_or_else(missing)?.entry("tiers").or_insert_with(|| json!([]));
    if let Some(tiers) = tiers.as_array_mut() {
        tiers.insert(0, tier);
    }
    Ok(())
}

/// Name of a rule's key as it is listed; `None` if the rule has no such key.
pub(crate) fn listed(rules: &RuleSet, rule: &str, key: &str) -> Option<String> {
    let spec = key_spec(rules, rule)?;
    let written = written(spec, key)?;
    let Some(prefixes) = spec.prefixes().filter(|_| spec.is_address()) else { return Some(key.to_owned()) };
    let (address, _) = written.split_once('/')?;
    Some(name::show(KeyValue::of_address(address.parse().ok()?, prefixes).as_bytes()))
}

/// Key specification of the written rule `rule`.
fn key_spec<'a>(rules: &'a RuleSet, rule: &str) -> Option<&'a KeySpec> {
    let is_written =
        |known: &&Rule| known.name == rule && known.variant.tier.is_none() && known.variant.wider_times.is_none();
    rules.rules().iter().find(is_written).map(|rule| &rule.key)
}

/// Name of a tier. It depends only on the terms, so buckets survive when another key gets the same terms.
fn name(terms: &OverrideQuota) -> String {
    let rate = terms.rate.replace('/', "-");
    terms.burst.map_or_else(|| format!("o-{rate}"), |burst| format!("o-{rate}-{burst}"))
}

/// A key as it is written in a tier; `None` if the rule has no such key.
fn written(spec: &KeySpec, key: &str) -> Option<String> {
    if spec.is_all() {
        return (key == "all").then(|| key.to_owned());
    }
    if let (Some(prefixes), true) = (spec.prefixes(), spec.is_address()) {
        return network(prefixes, key);
    }
    let is_one = spec.parts().count() == 1 + usize::from(spec.prefixes().is_some());
    key.strip_prefix(TEXT).filter(|value| is_one && !value.is_empty()).map(str::to_owned)
}

/// Prefix of an address, cut as the rule cuts it, or of a network that is exactly one key.
fn network(prefixes: Prefixes, key: &str) -> Option<String> {
    let Range { first: address, bits } = key.parse().ok()?;
    let (cut, of_rule) = prefixes.cut(address);
    let whole = if address.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
    let is_key = bits == whole || bits == of_rule && cut == address;
    is_key.then(|| format!("{cut}/{of_rule}"))
}

fn expected(spec: &KeySpec) -> &'static str {
    if spec.is_all() {
        "expected all, which is the rule's only key"
    } else if spec.is_address() {
        "expected an address, or a network of as many bits as the rule counts by"
    } else {
        "expected text: and the value of the key's one part beside client_address, as in text:acme; a key of more \
         parts cannot be overridden, nor one by its hash"
    }
}

/// All banned keys, oldest override first, each with the end of its ban in milliseconds since 1970. A ban of a rule's
/// key covers all tiers of the rule, if `rules` are known.
pub(crate) fn banned_keys(rules: Option<&RuleSet>, overrides: &[Override]) -> Vec<(BudgetId, u64)> {
    let of = |order: &Override| {
        let ids = match (order.settings.kind, &order.settings.subject, rules) {
            (OverrideKind::Ban, Subject::Key { rule, key }, Some(rules)) => name::ids(rules, rule, key).ok(),
            (OverrideKind::Ban, Subject::Key { rule, key }, None) => name::ids_of_unknown(rule, key).ok(),
            _ => None,
        };
        let until_ms = order.until_ms;
        ids.into_iter().flatten().map(move |id| (id, until_ms))
    };
    overrides.iter().flat_map(of).collect()
}
