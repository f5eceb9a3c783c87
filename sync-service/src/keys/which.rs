//! Budgets that a rule's name and a key's name stand for.

use std::net::IpAddr;

use thiserror::Error;
use weir_budget::budget::BudgetId;
use weir_protocol::messages::RULE_NAME_MAX;
use weir_rules::key::KeyValue;
use weir_rules::{Rule, RuleSet};

use super::name::{self, NameError};

/// Reason why a rule and a text name no key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhichError {
    /// No rule has this name.
    #[error("the current rule set has no rule `{0}`; GET /v1/rules shows it")]
    Rule(String),
    /// The text names no key.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text is a value in clear, but POPs hash the values of this rule.
    #[error(
        "POPs tell the keys of `{0}` by their hash: expected `hex:` and the key's bytes, as GET /v1/keys shows them and \
         `weir-sync explain --live` finds them by a request; or a rule with log_key"
    )]
    Hashed(String),
    /// The rule counts addresses by another prefix length.
    #[error("`{rule}` counts by /{expected}, found /{found}: expected an address, or a network of that size")]
    Prefix {
        /// Name of the rule.
        rule: String,
        /// Prefix length of the rule, in bits.
        expected: u8,
        /// Prefix length of the text, in bits.
        found: u8,
    },
}

/// Keys that `text` names under `rule`. The name of a written rule also covers its tiers, which count
/// separately. An address is cut to the rule's prefix.
pub fn keys(rules: &RuleSet, rule: &str, text: &str) -> Result<Vec<BudgetId>, WhichError> {
    let named = rules.rules().iter().find(|known| known.name == rule);
    let named = named.ok_or_else(|| WhichError::Rule(rule.into()))?;
    let value = value(named, text)?;
    let is_tier = |other: &Rule| {
        named.is_written() && other.place() == named.place() && other.variant.wider_times.is_none()
    };
    let meant = rules.rules().iter().filter(|other| other.name == named.name || is_tier(other));
    Ok(meant.map(|rule| BudgetId::new(rule.name.clone(), value.clone())).collect())
}

/// Key that `text` names under a rule of which only the name is known.
pub fn unknown(rule: &str, text: &str) -> Result<Vec<BudgetId>, WhichError> {
    if !(1..=RULE_NAME_MAX).contains(&rule.len()) {
        return Err(WhichError::Rule(rule.into()));
    }
    Ok(vec![BudgetId::new(rule.into(), name::read(text)?)])
}

fn value(rule: &Rule, text: &str) -> Result<Vec<u8>, WhichError> {
    let Some(prefixes) = rule.key.prefixes().filter(|_| rule.key.is_address()) else {
        let value = name::read(text)?;
        let is_known = rule.key.is_clear() || KeyValue::clear_part(&value).is_none();
        return if is_known { Ok(value) } else { Err(WhichError::Hashed(rule.name.clone())) };
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(KeyValue::of_address(address.to_canonical(), prefixes).as_bytes().to_vec());
    }
    let value = name::read(text)?;
    let expected = match value.as_slice() {
        [4, found, ..] if *found != prefixes.ipv4 => Some((prefixes.ipv4, *found)),
        [6, found, ..] if *found != prefixes.ipv6 => Some((prefixes.ipv6, *found)),
        _ => None,
    };
    match expected {
        Some((expected, found)) => Err(WhichError::Prefix { rule: rule.name.clone(), expected, found }),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Form};

    fn rules() -> RuleSet {
        let text = br#"{"rules": [
            {"name": "a", "key": ["client_address"], "rate": "5/s",
             "also_by_prefix": [{"ipv4": 24, "ipv6": 48, "times": 8}],
             "tiers": [{"name": "gold", "when": {"paths": [{"prefix": "/x"}]}, "rate": "9/s"}]},
            {"name": "b", "key": [{"client_address": {"ipv4": 28, "ipv6": 56}}], "rate": "5/s"},
            {"name": "c", "key": [{"header": "x-api-key"}], "rate": "5/s"}]}"#;
        Document::read(text, Form::Json).unwrap().rules().clone()
    }

    fn shown(rule: &str, text: &str) -> Result<Vec<String>, WhichError> {
        let show = |id: &BudgetId| format!("{} {}", id.rule, name::show(&id.value));
        keys(&rules(), rule, text).map(|ids| ids.iter().map(show).collect())
    }

    #[test]
    fn an_address_is_cut_as_the_rule_cuts_it_and_names_the_key_of_each_tier() {
        let mut named = shown("a", "2001:db8::9").unwrap();
        named.sort();
        assert_eq!(named, ["a 2001:db8::/64", "a.gold 2001:db8::/64"]);
        assert_eq!(shown("a.gold", "192.0.2.7").unwrap(), ["a.gold 192.0.2.7"]);
        assert_eq!(shown("a.w1", "192.0.2.7").unwrap(), ["a.w1 192.0.2.0/24"]);
        assert_eq!(shown("b", "192.0.2.7").unwrap(), ["b 192.0.2.0/28"]);
        assert_eq!(shown("c", "hex:01ab").unwrap(), ["c hex:01ab"]);
    }

    #[test]
    fn what_names_no_key_is_refused_with_what_was_expected() {
        assert_eq!(shown("d", "192.0.2.7"), Err(WhichError::Rule("d".into())));
        let error = shown("a", "192.0.2.0/24").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`a` counts by /32, found /24: expected an address, or a network of that size"
        );
        assert_eq!(shown("c", "a-secret"), Err(WhichError::Name(NameError)));
        assert_eq!(shown("c", "text:a-secret"), Err(WhichError::Hashed("c".into())), "nobody has such a key");
        assert!(unknown("", "192.0.2.7").is_err() && unknown(&"r".repeat(65), "192.0.2.7").is_err());
        assert_eq!(unknown("any", "192.0.2.7").unwrap()[0].value, [4, 32, 192, 0, 2, 7]);
    }
}
