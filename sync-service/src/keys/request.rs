//! Keys of a request, and the predicted decision on it.

use serde_json::{Value, json};
use weir_cli::explain;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::{KeyValue, Missing, MissingPart};
use weir_rules::matching::Bits;
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Request, Values};
use weir_rules::{Listed, Rule, RuleSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestKeys {
    /// List that the request matches, if any. No rule counts the request then.
    pub(crate) list: Option<&'static str>,
    /// Key of the request under each rule that counts it.
    pub(crate) keys: Vec<RequestKey>,
    /// Names of the other rules, each with the reason why it does not count the request.
    pub(crate) others: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestKey {
    pub(crate) rule: String,
    /// Bytes of the key, if they can be computed here.
    pub(crate) value: Option<Vec<u8>>,
    /// Reason why weir-sync has no data on the key, if it has none.
    pub(crate) why: Option<&'static str>,
    /// True if the request is limited at once because it lacks a part of the key.
    pub(crate) lacks_key: bool,
    /// Percentage of its keys that the rule enforces; 0 for a rule in shadow.
    pub(crate) enforced_percent: u8,
}

/// Finds the keys of `request`. Without the POPs' secret, only keys of addresses can be computed.
pub(crate) fn keys(rules: &RuleSet, request: &mut dyn Request, secret: Option<&FleetSecret>) -> RequestKeys {
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

/// Key of the request under a rule that it matches; `None` if the rule does not count it.
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
        Ok(value) if rule.key.is_hashed() && secret.is_none() && KeyValue::clear_part(value.as_bytes()).is_none() => {
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

/// JSON of a sentence about `keys` (as JSON), with the kind that the console shows as a colour.
pub(crate) fn summary(list: Option<&str>, keys: &[Value]) -> Value {
    let (kind, text) = match list {
        Some("allow") => ("good", "It meets the list allow: it goes through, and no rule counts it.".into()),
        Some("deny") => ("bad", "It meets the list deny: it gets 403.".into()),
        Some(_) => ("warn", "All rules are switched off: it goes through.".into()),
        None => of_keys(keys),
    };
    json!({"kind": kind, "text": text})
}

fn of_keys(keys: &[Value]) -> (&'static str, String) {
    let enforced = |key: &Value| key["enforced_percent"].as_u64().unwrap_or_default();
    let number = |key: &Value, field: &str| key[field].as_f64().unwrap_or_default();
    let rule = |key: &Value| key["rule"].as_str().unwrap_or_default().to_owned();
    let find = |is_it: &dyn Fn(&Value) -> bool| keys.iter().find(|key| enforced(key) > 0 && is_it(key));
    let refused = |key: &Value| {
        let (asked, limited) = (number(key, "asked_per_s"), number(key, "limited_per_s"));
        if asked > 0.0 { 100.0 * limited / asked } else { 0.0 }
    };
    if let Some(key) = find(&|key| key["banned_until"].is_string()) {
        return ("bad", format!("It is refused: {} has banned its key.", rule(key)));
    }
    if let Some(key) = find(&|key| key["lacks_key"] == true) {
        return ("bad", format!("It is limited: it lacks a part of the key of {}.", rule(key)));
    }
    if let Some(key) = find(&|key| number(key, "free_in_s") > 0.0 && enforced(key) == 100) {
        return ("bad", format!("It is limited: {} has no token for its key.", rule(key)));
    }
    if let Some(key) = find(&|key| refused(key) >= 0.5) {
        let percent = refused(key);
        let kind = if percent >= 50.0 { "bad" } else { "warn" };
        return (
            kind,
            format!("It is limited at times: {} refuses {percent:.0} % of its key\u{2019}s requests now.", rule(key)),
        );
    }
    let ratio = |key: &Value| key["grant"]["admit_ratio"].as_f64().unwrap_or(1.0);
    if let Some(key) = find(&|key| ratio(key) < 1.0) {
        let percent = 100.0 * ratio(key);
        let text =
            format!("It may be limited: {} lets {percent:.0} % of its key\u{2019}s requests through now.", rule(key));
        return ("warn", text);
    }
    if let Some(key) = find(&|key| number(key, "free_in_s") > 0.0) {
        let (rule, percent) = (rule(key), enforced(key));
        return (
            "warn",
            format!("It may be limited: {rule} has no token for its key, and limits {percent} % of its keys."),
        );
    }
    let unknown: Vec<_> = keys.iter().filter(|key| enforced(key) > 0 && key["why"].is_string()).map(rule).collect();
    if !unknown.is_empty() {
        let rules = unknown.join(", ");
        return ("warn", format!("It may go through: how its key stands under {rules} is not known here."));
    }
    let counting: Vec<_> = keys.iter().map(rule).collect();
    let text = match counting.as_slice() {
        [] => "It goes through: no rule counts it.".to_owned(),
        rules => format!("It goes through: counted by {}.", rules.join(", ")),
    };
    ("good", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_that_is_known_of_a_key_decides() {
        let key = |fields: Value| {
            let mut key = json!({"rule": "api", "enforced_percent": 100});
            key.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            key
        };
        for (fields, kind, text) in [
            (json!({"banned_until": "2026-11-23T12:00:00Z"}), "bad", "It is refused: api has banned its key."),
            (json!({"lacks_key": true}), "bad", "It is limited: it lacks a part of the key of api."),
            (json!({"free_in_s": 0.2}), "bad", "It is limited: api has no token for its key."),
            (
                json!({"asked_per_s": 100.0, "limited_per_s": 93.0, "free_in_s": 0.0}),
                "bad",
                "It is limited at times: api refuses 93 % of its key\u{2019}s requests now.",
            ),
            (
                json!({"grant": {"admit_ratio": 0.25}}),
                "warn",
                "It may be limited: api lets 25 % of its key\u{2019}s requests through now.",
            ),
            (json!({"why": "unknown"}), "warn", "It may go through: how its key stands under api is not known here."),
            (json!({"asked_per_s": 9.0, "limited_per_s": 0.0}), "good", "It goes through: counted by api."),
            (json!({"enforced_percent": 0, "free_in_s": 3.0}), "good", "It goes through: counted by api."),
        ] {
            assert_eq!(summary(None, &[key(fields)]), json!({"kind": kind, "text": text}));
        }
        assert_eq!(summary(None, &[])["text"], "It goes through: no rule counts it.");
        assert!(summary(Some("deny"), &[])["text"].as_str().unwrap().contains("403"));
    }
}
