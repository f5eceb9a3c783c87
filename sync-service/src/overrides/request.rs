//! JSON requests for overrides.

use serde_json::Value;
use weir_cli::moment;
use weir_protocol::messages::{BAN_MS_MAX, KEY_BYTES_MAX, RULE_NAME_MAX};
use weir_protocol::quota::TOKENS_MAX;
use weir_rules::reading::{ConfigError, ErrorCollector, Fields, Item};
use weir_store::rules::Until;

use super::spec::{OverrideKind, OverrideQuota, OverrideSettings, Subject};

pub(crate) const REASON_BYTES_MAX: usize = 500;
const TEXT_BYTES_MAX: usize = 64;

/// Maximum duration of an override, and its text for error messages.
const LONGEST: (u64, &str) = (400 * 86_400 * SECOND_MS, "400 days");
/// Maximum duration of a ban of a key, which POPs receive like the bans of a penalty.
const KEY_BAN: (u64, &str) = (BAN_MS_MAX as u64, "7 days");

/// Override as requested by an operator, without its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRequest {
    pub(crate) settings: OverrideSettings,
    pub(crate) until: Until,
}

/// Parses an override that was requested at `now_ms` (since 1970). `keyed` is the subject of another rate; the rate
/// itself is validated with the rule set. Each error has its place.
pub fn read(
    kind: OverrideKind,
    value: &Value,
    now_ms: u64,
    keyed: Option<Subject>,
) -> Result<OverrideRequest, Vec<ConfigError>> {
    let errors = ErrorCollector::default();
    let asked = asked(kind, &Item::new(value, &errors), now_ms, keyed);
    errors.into_result(asked)
}

fn asked(kind: OverrideKind, item: &Item<'_>, now_ms: u64, keyed: Option<Subject>) -> Option<OverrideRequest> {
    let mut fields = item.fields()?;
    let is_of_rate = keyed.is_some();
    let is_of_key = kind == OverrideKind::Ban && (fields.take("rule").is_some() || fields.take("key").is_some());
    let terms = if is_of_rate { quota(&mut fields) } else { None };
    let (subject, most) = match keyed {
        Some(subject) => (Some(subject), LONGEST),
        None if is_of_key => (key(&mut fields), KEY_BAN),
        None => (address(&mut fields), LONGEST),
    };
    let until = until(&mut fields, now_ms, most);
    let reason = fields.text("reason", REASON_BYTES_MAX).unwrap_or_default().to_owned();
    fields.finish();
    let is_whole = terms.is_some() == is_of_rate;
    let settings = OverrideSettings { kind, subject: subject?, terms, reason, author: String::new() };
    is_whole.then_some(OverrideRequest { settings, until: until? })
}

fn quota(fields: &mut Fields<'_>) -> Option<OverrideQuota> {
    let rate = fields.require("rate", "a rate, as in \"100/s\"").and_then(|rate| rate.text(TEXT_BYTES_MAX));
    let burst = fields.number("burst", 1..=TOKENS_MAX);
    Some(OverrideQuota { rate: rate?.to_owned(), burst })
}

fn address(fields: &mut Fields<'_>) -> Option<Subject> {
    let address = fields.require("address", "an address or a network, as in \"203.0.113.0/24\"");
    address.and_then(|address| address.parsed()).map(|address| Subject::Address { address })
}

/// Parses a key of a rule, without checking that the rule set has them.
fn key(fields: &mut Fields<'_>) -> Option<Subject> {
    let rule = fields.require("rule", "the name of a rule").and_then(|rule| rule.text(RULE_NAME_MAX));
    let key = fields.require("key", "a key of that rule, as `weir-sync keys` shows it");
    let key = key.and_then(|key| key.text(2 * KEY_BYTES_MAX + TEXT_BYTES_MAX));
    Some(Subject::Key { rule: rule?.to_owned(), key: key?.to_owned() })
}

/// Parses `for` or `until`, exactly one of which must be present.
fn until(fields: &mut Fields<'_>, now_ms: u64, (most_ms, most): (u64, &str)) -> Option<Until> {
    let (span_item, time_item) = (fields.take("for"), fields.take("until"));
    match (&span_item, &time_item) {
        (Some(item), None) => {
            let span_ms = span(item.text(TEXT_BYTES_MAX)?).filter(|span_ms| *span_ms <= most_ms);
            if span_ms.is_none() {
                item.record_unexpected(format_args!(
                    "a time of up to {most}, as in \"90s\", \"15m\", \"1h\" or \"7d\""
                ));
            }
            span_ms.map(Until::In)
        }
        (None, Some(item)) => {
            let until_ms = moment::read(item.text(TEXT_BYTES_MAX)?);
            let is_good = |until_ms: &u64| (now_ms + 1..=now_ms + most_ms).contains(until_ms);
            let until_ms = until_ms.filter(is_good);
            if until_ms.is_none() {
                item.record_unexpected(format_args!("a time of the next {most}, as in \"{}\"", tomorrow(now_ms)));
            }
            until_ms.map(Until::At)
        }
        _ => {
            fields.record(format_args!("expected either for, as in \"1h\", or until, as in \"{}\"", tomorrow(now_ms)));
            None
        }
    }
}

fn tomorrow(now_ms: u64) -> String {
    moment::text((now_ms / 1_000).saturating_add(86_400).saturating_mul(1_000))
}

const SECOND_MS: u64 = 1_000;

/// Parses a positive duration such as `90s`, `15m`, `1h` or `7d` into milliseconds.
fn span(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| number.parse().ok())??;
    number.checked_mul(unit_s * SECOND_MS).filter(|span_ms| *span_ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("7d", 604_800)] {
            assert_eq!(span(text), Some(seconds * SECOND_MS), "{text}");
        }
        for text in ["", "s", "0s", "1", "1w", "+1h", "-1h", "1.5h", " 1h", "1h ", "99999999999999999999d", "1\u{e9}"] {
            assert_eq!(span(text), None, "{text}");
        }
    }
}
