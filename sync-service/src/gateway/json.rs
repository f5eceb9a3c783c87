//! Checks as JSON.

use std::net::IpAddr;

use hyper::header::HeaderName;
use serde_json::{Map, Value, json};
use weir_rules::reading::{ConfigError, Errors, Item};
use weir_rules::request::CLAIM_NAMES_MAX;

use super::ask::Ask;
use super::verdict::{Decision, Verdict, seconds_up};

/// The most checks of a body.
pub const CHECKS_MAX: usize = 100;
/// The most headers, and the most claims, of a check.
const PAIRS_MAX: usize = 100;
/// The longest text of a check, in bytes.
const TEXT_BYTES_MAX: usize = 8_192;
/// The most that one check may stand for.
const HITS_MAX: u32 = 1_000_000;

/// What is asked: one check, or a list of them. Every error with its place.
pub fn asks(value: &Value) -> Result<Vec<Ask>, Vec<ConfigError>> {
    let errors = Errors::default();
    let item = Item::new(value, "", &errors);
    let asks = match value.as_array() {
        None => ask(&item).map(|ask| vec![ask]),
        Some(list) if (1..=CHECKS_MAX).contains(&list.len()) => item.items().map(|item| ask(&item)).collect(),
        Some(list) => {
            item.note(format!("expected a list of 1 to {CHECKS_MAX} checks, found {}", list.len()));
            None
        }
    };
    errors.into_result(asks)
}

fn ask(item: &Item<'_>) -> Option<Ask> {
    let mut fields = item.fields()?;
    let mut text = |name| fields.text(name, TEXT_BYTES_MAX).map(str::to_owned);
    let (method, host) = (text("method"), text("host"));
    let path = fields.take("path").and_then(|path| {
        let text = path.text(TEXT_BYTES_MAX)?;
        if !text.starts_with(['/', '*']) {
            path.note_found("a path that begins with /");
        }
        Some(text.to_owned())
    });
    let address = fields.take("address").and_then(|address| {
        let read = address.value().as_str().and_then(|text| text.parse::<IpAddr>().ok());
        if read.is_none() {
            address.note_found("an IP address, as in \"192.0.2.1\"");
        }
        read
    });
    let headers = fields.take("headers").map(|item| headers(&item)).unwrap_or_default();
    let mut claims = Vec::new();
    if let Some(item) = fields.take("claims") {
        collect_claims(&item, &mut Vec::new(), &mut claims);
    }
    let hits = fields.number("cost", 1..=HITS_MAX).unwrap_or(1);
    fields.finish();
    Some(Ask { address, method, host, path, headers, claims, hits, is_peek: false })
}

/// An object of texts, whose names are those of headers.
fn headers(item: &Item<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, value) in object(item) {
        let value = item.within(name, value);
        let Some(text) = value.value().as_str().filter(|text| text.len() <= TEXT_BYTES_MAX) else {
            value.note_found(format!("text of at most {TEXT_BYTES_MAX} bytes"));
            continue;
        };
        match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => headers.push((name.as_str().to_owned(), text.to_owned())),
            Err(_) => value.note("expected a header's name, as in x-api-key"),
        }
    }
    headers
}

/// The claims in an object of texts, numbers, truths and objects, each with the path of its names.
fn collect_claims(item: &Item<'_>, path: &mut Vec<String>, claims: &mut Vec<(Vec<String>, String)>) {
    for (name, value) in object(item) {
        let value = item.within(name, value);
        path.push(name.clone());
        match value.value() {
            Value::Object(_) if path.len() < CLAIM_NAMES_MAX => collect_claims(&value, path, claims),
            Value::String(text) => claims.push((path.clone(), text.clone())),
            Value::Number(number) => claims.push((path.clone(), number.to_string())),
            Value::Bool(truth) => claims.push((path.clone(), truth.to_string())),
            _ => value.note_found(format!(
                "a text, a number, true or false, or an object of these, at most {CLAIM_NAMES_MAX} names deep"
            )),
        }
        path.pop();
    }
}

/// The fields of an object of at most [`PAIRS_MAX`].
fn object<'a>(item: &Item<'a>) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let object = item.value().as_object().filter(|object| object.len() <= PAIRS_MAX);
    if object.is_none() {
        item.note_found(format!("an object of at most {PAIRS_MAX} fields"));
    }
    object.into_iter().flatten()
}

/// What is answered.
pub fn verdict(verdict: &Verdict) -> Value {
    let headers: Map<String, Value> =
        verdict.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let mut answer = json!({
        "decision": verdict.decision.as_str(),
        "status": verdict.status,
        "headers": headers,
    });
    let mut add = |name: &str, value: Value| answer[name] = value;
    if let Some(rule) = &verdict.rule {
        add("rule", rule.as_str().into());
    }
    if verdict.decision != Decision::Allow {
        add("body", verdict.body.as_str().into());
    }
    if let Some(seconds) = verdict.retry_after_s() {
        add("retry_after_s", seconds.into());
    }
    if let Some(standing) = &verdict.standing {
        add("limit", standing.limit.into());
        add("remaining", standing.remaining.into());
        add("reset_s", seconds_up(standing.reset_after).into());
    }
    answer
}
