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
pub(crate) enum WhichError {
    /// No rule has this name.
    #[error("the current rule set has no rule `{0}`; `weir-sync rules get` shows it")]
    Rule(String),
    /// The text names no key.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text is a value in clear, but POPs hash the values of this rule.
    #[error(
        "POPs report the keys of `{0}` by their hash: expected `hex:` and the key's bytes, as `weir-sync keys` shows \
         them and `weir-sync explain --live` finds them by a request; or a rule with log_key"
    )]
    Hashed(String),
    /// The rule counts addresses by another prefix length.
    #[error("`{rule}` counts by /{expected}, found /{found}: expected an address, or a network of that size")]
    Prefix {
        rule: String,
        /// Prefix length of the rule, in bits.
        expected: u8,
        /// Prefix length of the text, in bits.
        found: u8,
    },
}

/// Keys that `text` names under `rule`. The name of a written rule also covers its tiers, which count
/// separately. An address is cut to the rule's prefix.
pub(crate) fn keys(rules: &RuleSet, rule: &str, text: &str) -> Result<Vec<BudgetId>, WhichError> {
    let named = rules.rules().iter().find(|known| known.name == rule);
    let named = named.ok_or_else(|| WhichError::Rule(rule.into()))?;
    let value = value(named, text)?;
    let is_tier =
        |other: &Rule| named.is_written() && other.place() == named.place() && other.variant.wider_times.is_none();
    let meant = rules.rules().iter().filter(|other| other.name == named.name || is_tier(other));
    Ok(meant.map(|rule| BudgetId::new(rule.name.clone(), value.clone())).collect())
}

/// Key that `text` names under a rule of which only the name is known.
pub(crate) fn unknown(rule: &str, text: &str) -> Result<Vec<BudgetId>, WhichError> {
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
