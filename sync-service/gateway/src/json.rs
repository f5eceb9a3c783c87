//! JSON of checks.

use hyper::header::HeaderName;
use serde_json::{Map, Value, json};
use weir_protocol::quota::{Quota, TOKENS_MAX};
use weir_protocol::refill_policy::RefillPolicy;
use weir_rules::reading::{ConfigError, ErrorCollector, Fields, Item};
use weir_rules::request::{CLAIM_NAMES_MAX, LINE_BREAK, NAME_BYTES_MAX, Request, address::parse};

use super::limit::{LimitAnswer, LimitCheck};
use super::reply::{CheckDecision, CheckReply, seconds_up};
use super::request::{CheckPurpose, CheckRequest};
use super::reservations::{RESERVED_S_MAX, SettleError, Settlement};

pub(crate) const CHECKS_MAX: usize = 100;
/// Maximum number of headers, and of claims, of a check.
const PAIRS_MAX: usize = 100;
const TEXT_BYTES_MAX: usize = 8_192;
const LIMIT_KEY_BYTES_MAX: usize = 256;
const WINDOW_MS_MAX: u32 = 31 * 86_400_000;
const RESERVATION_BYTES_MAX: usize = 256;
/// Maximum number of requests that one check may stand for.
const HITS_MAX: u32 = 1_000_000;

/// Parses one check or a list of checks. Each error states its place.
pub fn checks(value: &Value) -> Result<Vec<CheckRequest>, Vec<ConfigError>> {
    all(value, ask)
}

/// Parses the request of one check.
pub fn request(value: &Value) -> Result<Box<dyn Request>, Vec<ConfigError>> {
    Ok(Box::new(checks(value)?.pop().unwrap_or_default()))
}

/// Parses one settlement or a list of settlements.
pub fn settlements(value: &Value) -> Result<Vec<Settlement>, Vec<ConfigError>> {
    all(value, settlement)
}

/// Parses one check of a caller-defined limit, or a list of them.
pub fn limit_checks(value: &Value) -> Result<Vec<LimitCheck>, Vec<ConfigError>> {
    all(value, limit_check)
}

/// Applies `read` to the single check in the body, or to each one in its list.
fn all<T>(value: &Value, read: impl Fn(&Item<'_>) -> Option<T>) -> Result<Vec<T>, Vec<ConfigError>> {
    let errors = ErrorCollector::default();
    let item = Item::new(value, &errors);
    let read = match value.as_array() {
        None => read(&item).map(|check| vec![check]),
        Some(list) if (1..=CHECKS_MAX).contains(&list.len()) => {
            // All items are parsed, so that all errors are reported.
            let read: Vec<_> = item.items().map(|item| read(&item)).collect();
            read.into_iter().collect()
        }
        Some(list) => {
            item.record(format!("expected a list of 1 to {CHECKS_MAX} checks, found {}", list.len()));
            None
        }
    };
    errors.into_result(read)
}

fn settlement(item: &Item<'_>) -> Option<Settlement> {
    let mut fields = item.fields()?;
    let name = fields.require("reservation", "what the check was answered as its reservation");
    let reservation = name.and_then(|name| name.text(RESERVATION_BYTES_MAX));
    let cost = fields.require("cost", "what the request cost").and_then(|cost| cost.number(0..=HITS_MAX));
    fields.finish();
    Some(Settlement { reservation: reservation?.to_owned(), cost: cost? })
}

fn limit_check(item: &Item<'_>) -> Option<LimitCheck> {
    let mut fields = item.fields()?;
    let key = fields.require("key", "the key to count for").and_then(|key| key.text(LIMIT_KEY_BYTES_MAX));
    let limit = fields.require("limit", "how many a window").and_then(|limit| limit.number(1..=TOKENS_MAX));
    let window = fields.require("window_ms", "the window in milliseconds");
    let window_ms = window.and_then(|window| window.number(1..=WINDOW_MS_MAX));
    let weight = fields.number("weight", 1..=limit.unwrap_or(TOKENS_MAX)).unwrap_or(1);
    let purpose = peek(&mut fields);
    let quota = window_ms.zip(limit).and_then(|(window_ms, limit)| {
        let token_ns = (u64::from(window_ms) * 1_000_000).div_ceil(limit.into());
        let quota = Quota::from_token_ns(token_ns, limit).ok();
        if quota.is_none() {
            fields.record_at("limit", "expected at most 1000 for each millisecond of window_ms");
        }
        quota
    });
    fields.finish();
    Some(LimitCheck { key: key?.to_owned(), quota: quota?, refill_policy: RefillPolicy::Continuous, weight, purpose })
}

fn ask(item: &Item<'_>) -> Option<CheckRequest> {
    let mut fields = item.fields()?;
    let mut text = |name| fields.text(name, TEXT_BYTES_MAX).map(str::to_owned);
    let (method, host) = (text("method"), text("host"));
    let path = fields.take("path").and_then(|path| {
        let text = path.text(TEXT_BYTES_MAX)?;
        if !text.starts_with(['/', '*']) {
            path.record_unexpected("a path that begins with /");
        }
        Some(text.to_owned())
    });
    let address = fields.take("address").and_then(|address| {
        let read = address.value().as_str().and_then(|text| parse(text.as_bytes()));
        if read.is_none() {
            address.record_unexpected("an IP address, as in \"192.0.2.1\"");
        }
        read
    });
    let headers = fields.take("headers").map(|item| headers(&item)).unwrap_or_default();
    let mut claims = Vec::new();
    if let Some(item) = fields.take("claims") {
        collect_claims(&item, &mut Vec::new(), &mut claims);
    }
    let hits = fields.number("cost", 1..=HITS_MAX).unwrap_or(1);
    let purpose = peek(&mut fields);
    let reserve_s = fields.number("reserve_s", 1..=RESERVED_S_MAX);
    if purpose == CheckPurpose::Peek && reserve_s.is_some() {
        fields.record_at("reserve_s", "expected none beside peek, which takes nothing");
    }
    fields.finish();
    Some(CheckRequest {
        address,
        method,
        host,
        path,
        headers,
        claims,
        hits,
        purpose,
        reserve_s,
        ..CheckRequest::default()
    })
}

fn peek(fields: &mut Fields<'_>) -> CheckPurpose {
    if fields.boolean("peek").unwrap_or(false) { CheckPurpose::Peek } else { CheckPurpose::Take }
}

/// Parses an object from header names to strings, or to lists of strings for several lines.
fn headers(item: &Item<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, value) in object(item) {
        let value = item.within(name, value);
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            value.record("expected a header's name, as in x-api-key");
            continue;
        };
        let is_list = value.value().is_array();
        let lines: Vec<_> = if is_list { value.items().collect() } else { vec![value] };
        for line in lines {
            let text = line.value().as_str();
            match text.filter(|text| text.len() <= TEXT_BYTES_MAX && !text.as_bytes().contains(&LINE_BREAK)) {
                Some(text) if headers.len() < PAIRS_MAX => headers.push((name.to_string(), text.to_owned())),
                Some(_) => item.record(format!("expected at most {PAIRS_MAX} lines")),
                None => {
                    line.record_unexpected(format!("text of at most {TEXT_BYTES_MAX} bytes without line breaks"));
                }
            }
        }
    }
    headers
}

/// Collects the claims in an object of strings, numbers, booleans and objects, each with the path of its names.
fn collect_claims(item: &Item<'_>, path: &mut Vec<String>, claims: &mut Vec<(Vec<String>, String)>) {
    for (name, value) in object(item) {
        // The length is checked first, because each claim and each error contains a copy of its path.
        if name.len() > NAME_BYTES_MAX {
            item.record(format!("expected names of at most {NAME_BYTES_MAX} bytes, found one of {}", name.len()));
            continue;
        }
        let value = item.within(name, value);
        if claims.len() == PAIRS_MAX && !value.value().is_object() {
            value.record(format!("expected at most {PAIRS_MAX} claims"));
            return;
        }
        path.push(name.clone());
        match value.value() {
            Value::Object(_) if path.len() < CLAIM_NAMES_MAX => collect_claims(&value, path, claims),
            Value::String(text) => claims.push((path.clone(), text.clone())),
            Value::Number(number) => claims.push((path.clone(), number.to_string())),
            Value::Bool(truth) => claims.push((path.clone(), truth.to_string())),
            _ => value.record_unexpected(format!(
                "a text, a number, true or false, or an object of these, at most {CLAIM_NAMES_MAX} names deep"
            )),
        }
        path.pop();
    }
}

/// Fields of an object with at most [`PAIRS_MAX`] fields.
fn object<'a>(item: &Item<'a>) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let object = item.value().as_object().filter(|object| object.len() <= PAIRS_MAX);
    if object.is_none() {
        item.record_unexpected(format!("an object of at most {PAIRS_MAX} fields"));
    }
    object.into_iter().flatten()
}

/// JSON of the answer to a check of a caller-defined limit.
pub fn limit(answer: &LimitAnswer) -> Value {
    json!({
        "allowed": answer.is_allowed,
        "remaining": answer.remaining,
        "reset_ms": u64::try_from(answer.reset_after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
        "retry_after_s": seconds_up(answer.retry_after),
    })
}

/// JSON of the answer to one settlement in a list.
pub fn settled(settlement: &Settlement, answer: &Result<(), SettleError>) -> Value {
    let mut result = json!({"reservation": settlement.reservation});
    match answer {
        Ok(()) => result["cost"] = settlement.cost.into(),
        Err(error) => result["error"] = error.to_string().into(),
    }
    result
}

/// JSON of a decision.
pub fn reply(reply: &CheckReply) -> Value {
    let headers: Map<String, Value> =
        reply.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let mut answer = json!({
        "decision": reply.decision.as_str(),
        "status": reply.status,
        "headers": headers,
    });
    let mut add = |name: &str, value: Value| answer[name] = value;
    if let Some(rule) = &reply.rule {
        add("rule", rule.as_str().into());
    }
    if reply.decision != CheckDecision::Allow {
        add("body", reply.body.as_str().into());
    }
    if let Some(seconds) = reply.retry_after_s() {
        add("retry_after_s", seconds.into());
    }
    if let Some(reservation) = &reply.reservation {
        add("reservation", reservation.as_str().into());
    }
    if let Some(quota_status) = &reply.quota_status {
        add("limit", quota_status.limit.into());
        add("remaining", quota_status.remaining.into());
        add("reset_s", seconds_up(quota_status.reset_after).into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects in each other, with the given number of fields each.
    fn nested(names: &[(usize, &str)]) -> Value {
        let Some(((count, name), inner)) = names.split_first() else { return "x".into() };
        let field = |number: usize| (format!("{name}{number}"), nested(inner));
        Value::Object((0..*count).map(field).collect())
    }

    #[test]
    fn claims_are_bounded_in_their_number_and_their_names() {
        let asked = |claims: Value| checks(&json!({"claims": claims}));
        let good = asked(nested(&[(4, "a"), (25, "b")])).unwrap();
        assert_eq!(good[0].claims.len(), PAIRS_MAX);
        let many = asked(nested(&[(101, "a"), (100, "b")])).unwrap_err();
        assert!(many[0].problem.starts_with("expected an object of at most 100 fields"), "{many:?}");
        let many = asked(nested(&[(100, "a"), (100, "b")])).unwrap_err();
        assert_eq!((many[0].place.as_str(), many[0].problem.as_str()), ("claims.a1.b0", "expected at most 100 claims"));
        // A body of 200 KB would make claims of 20 MB, and with more names in each other of gigabytes.
        let long = asked(nested(&[(1, &"x".repeat(100_000)), (100, "b")])).unwrap_err();
        assert_eq!(long[0].problem, "expected names of at most 128 bytes, found one of 100001");
        assert!(long.iter().all(|error| error.place.len() < 200), "{}", long.len());
    }
}
