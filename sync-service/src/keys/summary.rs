//! Predicted decision for a request, as one sentence.

use serde_json::{Value, json};

/// JSON of the sentence, with the kind by which the console colours it. `keys` are the request's keys as JSON
/// for operators.
pub fn of(list: Option<&str>, keys: &[Value]) -> Value {
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
            format!(
                "It is limited at times: {} refuses {percent:.0} % of its key\u{2019}s requests now.",
                rule(key)
            ),
        );
    }
    let ratio = |key: &Value| key["grant"]["admit_ratio"].as_f64().unwrap_or(1.0);
    if let Some(key) = find(&|key| ratio(key) < 1.0) {
        let percent = 100.0 * ratio(key);
        let text = format!(
            "It may be limited: {} lets {percent:.0} % of its key\u{2019}s requests through now.",
            rule(key)
        );
        return ("warn", text);
    }
    if let Some(key) = find(&|key| number(key, "free_in_s") > 0.0) {
        let (rule, percent) = (rule(key), enforced(key));
        return (
            "warn",
            format!(
                "It may be limited: {rule} has no token for its key, and limits {percent} % of its keys."
            ),
        );
    }
    let unknown: Vec<_> =
        keys.iter().filter(|key| enforced(key) > 0 && key["why"].is_string()).map(rule).collect();
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
            (
                json!({"banned_until": "2026-11-23T12:00:00Z"}),
                "bad",
                "It is refused: api has banned its key.",
            ),
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
            (
                json!({"why": "unknown"}),
                "warn",
                "It may go through: how its key stands under api is not known here.",
            ),
            (json!({"asked_per_s": 9.0, "limited_per_s": 0.0}), "good", "It goes through: counted by api."),
            (json!({"enforced_percent": 0, "free_in_s": 3.0}), "good", "It goes through: counted by api."),
        ] {
            assert_eq!(of(None, &[key(fields)]), json!({"kind": kind, "text": text}));
        }
        assert_eq!(of(None, &[])["text"], "It goes through: no rule counts it.");
        assert!(of(Some("deny"), &[])["text"].as_str().unwrap().contains("403"));
    }
}
