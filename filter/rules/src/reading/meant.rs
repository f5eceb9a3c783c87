//! Suggestions for unknown fields: typos, and fields of other limiters' configurations.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use serde_json::{Map, Value};

use super::struct_value::whole_number;
use weir_protocol::quota::{Period, Rate, Span};
use weir_protocol::time::SECOND_NS;

/// Names that other limiters use for a number of requests.
const COUNTS: [&str; 6] = ["limit", "requests", "requests_per_unit", "max_requests", "tokens_per_fill", "count"];
/// Names that other limiters use for a period.
const TIMES: [&str; 6] = ["window", "unit", "per", "period", "interval", "fill_interval"];
const ADDRESSES: [&str; 7] = ["ip", "ips", "client_ip", "source_ip", "remote_ip", "remote_address", "remote_addr"];
/// Fields that belong in a rule's condition.
const CONDITIONS: &str = "path paths method methods host hosts headers cookies query claims addresses routes";
/// True if suggestions are made. The wasm module has no room for them and lists the known fields instead.
const IS_ANYTHING_MEANT: bool = cfg!(not(target_family = "wasm"));
const TEXT_BYTES_MAX: usize = 60;

/// The known name that `name` most likely is a misspelling of.
pub(super) fn nearest(known: &[&str], name: &str) -> Option<String> {
    if !IS_ANYTHING_MEANT {
        return None;
    }
    // Up to a third of the letters may differ. The limit also keeps long names from being compared by letter.
    let slips_max = name.len() / 3;
    let alike = known.iter().filter(|other| other.len().abs_diff(name.len()) <= slips_max);
    let (slips, near) = alike.map(|other| (strsim::osa_distance(name, other), *other)).min()?;
    (slips <= slips_max).then(|| near.to_owned())
}

pub(crate) fn of_rule(rule: &Map<String, Value>, name: &str, value: &Value) -> Option<String> {
    if !IS_ANYTHING_MEANT {
        return None;
    }
    if COUNTS.contains(&name) || TIMES.contains(&name) {
        return Some(rate(rule).map_or_else(|| "rate, as in 100/m".into(), |rate| format!("rate: {rate}")));
    }
    if let ("rate_limit" | "token_bucket", Some(object)) = (name, value.as_object()) {
        return rate(object).map(|rate| format!("rate: {rate}"));
    }
    if matches!(name, "shadow" | "shadow_mode" | "dry_run") {
        return Some(if value == &Value::Bool(true) { "mode: shadow" } else { "mode: enforce" }.into());
    }
    if ADDRESSES.contains(&name) {
        return Some("key: [client_address]".into());
    }
    let text = value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX).unwrap_or("...");
    CONDITIONS.split(' ').any(|condition| condition == name).then(|| format!("match: {{{name}: {text}}}"))
}

pub(crate) fn of_condition(_: &Map<String, Value>, name: &str, _: &Value) -> Option<String> {
    let meant = match name {
        _ if !IS_ANYTHING_MEANT => return None,
        _ if ADDRESSES.contains(&name) => "addresses",
        "uri" | "url" => "path",
        "verb" => "method",
        _ => return None,
    };
    Some(meant.to_owned())
}

pub(crate) fn of_key(name: &str) -> Option<String> {
    if !IS_ANYTHING_MEANT {
        return None;
    }
    if ADDRESSES.contains(&name) || name == "address" {
        return Some("client_address".into());
    }
    // Such names look like headers; no key part has such a name.
    let is_header = name.len() <= TEXT_BYTES_MAX && (name.contains('-') || name == "authorization");
    is_header.then(|| format!("{{header: {name}}}"))
}

/// The rate that a count and a period in `object` define.
fn rate(object: &Map<String, Value>) -> Option<String> {
    let count = COUNTS.iter().find_map(|name| whole_number(object.get(*name)?))?;
    let count = u32::try_from(count).ok()?;
    let time = TIMES.iter().find_map(|name| object.get(*name))?;
    let ns = match time.as_str() {
        Some(text) => text.to_ascii_lowercase().replace(' ', "").parse::<Span>().ok()?.nanos(),
        None => whole_number(time)?.checked_mul(SECOND_NS)?,
    };
    let period = Period::ALL.into_iter().rev().find(|period| ns > 0 && ns.is_multiple_of(period.nanos()))?;
    let span = format!("{}{}", ns / period.nanos(), period.letter()).parse().ok()?;
    Rate::over(count, span).map(|rate| rate.to_string())
}
