//! Keys in words.

use weir_rules::address::Prefixes;
use weir_rules::key::{KeyPart, KeySpec, Missing, Part};
use weir_rules::request::Attributes;

use super::condition::value_of;

/// Description of a rule's key.
pub fn key(key: &KeySpec, attributes: &Attributes) -> String {
    if key.is_all() {
        return "in one bucket".into();
    }
    // All parts, of which there are at most eight.
    let parts: Vec<_> = key.parts().map(|one| part(one, attributes)).collect();
    format!("by {}", parts.join(" and "))
}

/// Effect of a request that lacks a part of the key.
pub fn missing(missing: Missing, key: &KeySpec) -> Option<String> {
    let of = if key.parts().count() == 1 { "without it" } else { "without one of these" };
    let does = match missing {
        Missing::Skip => format!("A request {of} is not counted."),
        Missing::Share => format!("All requests {of} share one bucket."),
        Missing::Limit => format!("A request {of} is limited at once."),
    };
    (!key.is_all()).then_some(does)
}

/// Description of a part.
pub fn part(part: KeyPart<'_>, attributes: &Attributes) -> String {
    match part {
        KeyPart::ClientAddress(Prefixes { ipv4, ipv6 }) => {
            format!("client address (IPv4 /{ipv4}, IPv6 /{ipv6})")
        }
        KeyPart::Other(part) => match part {
            Part::Value(value) => value_of(value, attributes),
            Part::Host => "host".into(),
            Part::Path => "path".into(),
            Part::PathSegments(1) => "the first segment of the path".into(),
            Part::PathSegments(n) => format!("the first {n} segments of the path"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Form};
    use serde_json::json;

    #[test]
    fn every_part_has_its_words() {
        for (written, words) in [
            (json!("client_address"), "client address (IPv4 /32, IPv6 /64)"),
            (json!({"header": "x-key"}), "header x-key"),
            (json!({"cookie": "sid"}), "cookie sid"),
            (json!({"header": "x-key", "duplicates": "limit"}), "only header x-key"),
            (json!({"query": "q", "duplicates": "last"}), "last query parameter q"),
            (json!({"query": "q"}), "query parameter q"),
            (json!("host"), "host"),
            (json!("method"), "method"),
            (json!("path"), "path"),
            (json!("route"), "route"),
            (json!({"path_segments": 1}), "the first segment of the path"),
            (json!({"path_segments": 2.0}), "the first 2 segments of the path"),
            (json!({"jwt_claim": ["payload", "sub"]}), "JWT claim payload.sub"),
        ] {
            let rule = json!({"name": "a", "key": [written], "rate": "1/s"});
            let document = json!({"rules": [rule]}).to_string();
            let document = Document::read(document.as_bytes(), Form::Json).unwrap();
            let (rules, attributes) = (document.rules().rules(), document.rules().attributes());
            let parts: Vec<_> = rules[0].key.parts().map(|one| part(one, attributes)).collect();
            assert_eq!(parts, [words], "{written}");
        }
    }
}
