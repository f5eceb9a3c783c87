//! Keys in words.

use serde_json::Value;
use weir_rules::Rule;
use weir_rules::address::Prefixes;
use weir_rules::key_spec::Missing;

use super::condition::plain;

/// What `rule` counts by; `written` is its key as its operator wrote it.
pub fn key(rule: &Rule, written: &Value) -> String {
    let parts = written.as_array().map_or(&[][..], Vec::as_slice);
    if is_all(written) {
        return "in one bucket".into();
    }
    let prefixes = rule.key.prefixes();
    // All of them: there are at most eight.
    let parts: Vec<_> = parts.iter().map(|one| part(one, prefixes)).collect();
    format!("by {}", parts.join(" and "))
}

/// What becomes of a request that lacks a part.
pub fn missing(missing: Missing, written: &Value) -> Option<String> {
    let of = match written.as_array().map_or(0, Vec::len) {
        1 => "without it",
        _ => "without one of these",
    };
    let does = match missing {
        Missing::Skip => format!("A request {of} is not counted."),
        Missing::Share => format!("All requests {of} share one bucket."),
        Missing::Limit => format!("A request {of} is limited at once."),
    };
    (!is_all(written)).then_some(does)
}

/// Whether all requests share one key, and so one bucket.
pub fn is_all(written: &Value) -> bool {
    written.get(0).is_some_and(|part| part == "all")
}

/// A part in words; an address is cut to `prefixes`.
pub fn part(part: &Value, prefixes: Option<Prefixes>) -> String {
    if is_address(part) {
        let Prefixes { ipv4, ipv6 } = prefixes.unwrap_or_default();
        return format!("client address (IPv4 /{ipv4}, IPv6 /{ipv6})");
    }
    if let Some(name) = part.as_str() {
        return name.into();
    }
    let of = match part["duplicates"].as_str() {
        Some("limit") => "only ".to_owned(),
        Some(which) => format!("{which} "),
        None => String::new(),
    };
    let of_name = |field: &str, says: &str| Some(format!("{of}{says} {}", plain(part.get(field)?)));
    let claim = || {
        let names: Vec<_> = part.get("jwt_claim")?.as_array()?.iter().map(plain).collect();
        Some(format!("JWT claim {}", names.join(".")))
    };
    let segments = || match part.get("path_segments")?.as_f64()? {
        n if n > 1.0 => Some(format!("the first {n} segments of the path")),
        _ => Some("the first segment of the path".into()),
    };
    of_name("header", "header")
        .or_else(|| of_name("cookie", "cookie"))
        .or_else(|| of_name("query", "query parameter"))
        .or_else(segments)
        .or_else(claim)
        .unwrap_or_else(|| part.to_string())
}

/// Whether the part is the client's address.
pub fn is_address(part: &Value) -> bool {
    part == "client_address" || part.get("client_address").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
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
            assert_eq!(part(&written, None), words, "{written}");
        }
    }
}
