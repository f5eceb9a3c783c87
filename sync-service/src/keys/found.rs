//! Keys of a request.

use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::{KeyValue, Missing, MissingPart};
use weir_rules::matching::Bits;
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Request, Values};
use weir_rules::{Listed, Rule, RuleSet};

use crate::explain;

/// Result of matching a request against rules and lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestKeys {
    /// List that the request matches, if any. No rule counts the request then.
    pub list: Option<&'static str>,
    /// Key of the request under each rule that counts it.
    pub keys: Vec<RequestKey>,
    /// Names of the other rules, each with the reason why it does not count the request.
    pub others: Vec<(String, String)>,
}

/// Key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Rule or tier.
    pub rule: String,
    /// Bytes of the key, if they can be computed here.
    pub value: Option<Vec<u8>>,
    /// Reason why weir-sync has no data on the key, if it has none.
    pub why: Option<&'static str>,
    /// True if the request is limited at once because it lacks a part of the key.
    pub lacks_key: bool,
    /// Percentage of its keys that the rule enforces; 0 for a rule in shadow.
    pub enforced_percent: u8,
}

/// Finds the keys of `request`. Without the POPs' secret, only keys of addresses can be computed.
pub fn keys(rules: &RuleSet, request: &mut dyn Request, secret: Option<&FleetSecret>) -> RequestKeys {
    let (mut values, mut room, mut met) = (Values::default(), Bits::default(), Vec::new());
    let mut fetched = Fetched::new(request, rules.attributes(), &mut values);
    let list = match rules.listed(&mut fetched, &mut room) {
        Listed::No => None,
        Listed::Off => Some("enforce is false"),
        Listed::Allowed => Some("allow"),
        Listed::Blocked => Some("deny"),
    };
    if list.is_some() {
        return RequestKeys { list, ..RequestKeys::default() };
    }
    let met = rules.find_matches(&mut fetched, &mut room, &mut met);
    let counting = met.iter().filter_map(|place| rules.rules().get(usize::from(*place)));
    let counting = counting.filter(|rule| !rule.variant.is_unlimited() && rule.enforcement.mode != Mode::Off);
    let keys = counting.filter_map(|rule| key(rule, &mut fetched, secret)).collect();
    RequestKeys { list: None, keys, others: explain::others(rules, met, &mut fetched) }
}

/// Key of the request under a rule that it matches. None if the rule does not count it.
fn key(rule: &Rule, request: &mut Fetched<'_>, secret: Option<&FleetSecret>) -> Option<RequestKey> {
    let enforced_percent = match rule.enforcement.mode {
        Mode::Enforce => rule.enforcement.percent,
        Mode::Shadow | Mode::Off => 0,
    };
    let found = |value: Option<Vec<u8>>, why| {
        let lacks_key = why == Some(LACKS);
        Some(RequestKey { rule: rule.name.clone(), value, why, lacks_key, enforced_percent })
    };
    let value = match rule.key.value(request, secret.unwrap_or(&FleetSecret::UNKEYED)) {
        Ok(value)
            if rule.key.is_hashed()
                && secret.is_none()
                && KeyValue::clear_part(value.as_bytes()).is_none() =>
        {
            return found(None, Some(UNKEYED));
        }
        Ok(value) => value,
        Err(MissingPart::Repeated) => return found(None, Some(LACKS)),
        Err(_) if rule.missing == Missing::Skip => return None,
        Err(_) if rule.missing == Missing::Limit => return found(None, Some(LACKS)),
        Err(_) => KeyValue::LACKING,
    };
    let why = (!rule.is_shared()).then_some(ALONE);
    found(Some(value.as_bytes().to_vec()), why)
}

const UNKEYED: &str =
    "the key is hashed with the POPs' key_secret: set gateway_key_secret_file to a file that holds it";
const LACKS: &str = "the request lacks a part of the key, or has it more than once: it is limited at once";
const ALONE: &str = "each POP counts this rule for itself: nothing is reported";
