//! What is asked for, as JSON.

use serde_json::Value;
use weir_rules::reading::{ConfigError, Errors, Fields, Item};
use weir_wire::quota::TOKENS_MAX;

use super::order::{Subject, Terms};
use super::until::{ORDER_MS_MAX, span};
use crate::moment;
use crate::store::orders::Until;

/// The longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 500;
/// The longest text of any other field, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// An order that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who it is about.
    pub subject: Subject,
    /// Of an override: the quota.
    pub terms: Option<Terms>,
    /// When it ends.
    pub until: Until,
    /// Why; may be empty.
    pub reason: String,
}

/// Reads a ban or an allow that is asked for `now_ms` after 1970. Every error with its place.
pub fn read(value: &Value, now_ms: u64) -> Result<Asked, Vec<ConfigError>> {
    let errors = Errors::default();
    let item = Item::new(value, "", &errors);
    let asked = asked(&item, now_ms);
    errors.into_result(asked)
}

/// The same of an override of a `key`. What is a good rate, its rule says.
pub fn read_override(value: &Value, now_ms: u64, subject: Subject) -> Result<Asked, Vec<ConfigError>> {
    let errors = Errors::default();
    let item = Item::new(value, "", &errors);
    let asked = overriding(&item, now_ms, subject);
    errors.into_result(asked)
}

fn overriding(item: &Item<'_>, now_ms: u64, subject: Subject) -> Option<Asked> {
    let mut fields = item.fields()?;
    let rate = fields.require("rate", "a rate, as in \"100/s\"").and_then(|rate| rate.text(TEXT_BYTES_MAX));
    let burst = fields.number("burst", 1..=TOKENS_MAX);
    let until = until(&mut fields, now_ms);
    let reason = reason(&mut fields);
    fields.finish();
    let terms = Some(Terms { rate: rate?.to_owned(), burst });
    Some(Asked { subject, terms, until: until?, reason })
}

fn reason(fields: &mut Fields<'_>) -> String {
    fields.text("reason", REASON_BYTES_MAX).unwrap_or_default().to_owned()
}

fn asked(item: &Item<'_>, now_ms: u64) -> Option<Asked> {
    let mut fields = item.fields()?;
    let address = fields.require("address", "an address or a network, as in \"203.0.113.0/24\"");
    let address = address.and_then(|address| address.parsed());
    let until = until(&mut fields, now_ms);
    let reason = reason(&mut fields);
    fields.finish();
    Some(Asked { subject: Subject::of(address?), terms: None, until: until?, reason })
}

/// Reads `for` or `until`, one of which must be there.
fn until(fields: &mut Fields<'_>, now_ms: u64) -> Option<Until> {
    let (span_item, time_item) = (fields.take("for"), fields.take("until"));
    match (&span_item, &time_item) {
        (Some(item), None) => {
            let span_ms = span(item.text(TEXT_BYTES_MAX)?).filter(|span_ms| *span_ms <= ORDER_MS_MAX);
            if span_ms.is_none() {
                item.note_found("a time of up to 400 days, as in \"90s\", \"15m\", \"1h\" or \"7d\"");
            }
            span_ms.map(Until::In)
        }
        (None, Some(item)) => {
            let until_ms = moment::read(item.text(TEXT_BYTES_MAX)?);
            let is_good = |until_ms: &u64| (now_ms + 1..=now_ms + ORDER_MS_MAX).contains(until_ms);
            let until_ms = until_ms.filter(is_good);
            if until_ms.is_none() {
                item.note_found("a time of the next 400 days, as in \"2030-01-31T12:00:00Z\"");
            }
            until_ms.map(Until::At)
        }
        _ => {
            fields.note("expected either for, as in \"1h\", or until, as in \"2030-01-31T12:00:00Z\"");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW_MS: u64 = 1_795_435_200_000;

    fn errors(value: &Value) -> Vec<String> {
        read(value, NOW_MS).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_order_says_whom_until_when_and_why() {
        let asked =
            read(&json!({"address": "203.0.113.0/24", "for": "1h", "reason": "scans"}), NOW_MS).unwrap();
        assert_eq!(asked.subject, Subject::of("203.0.113.0/24".parse().unwrap()));
        assert_eq!((asked.until, asked.reason.as_str()), (Until::In(3_600_000), "scans"));
        let asked = read(&json!({"address": "192.0.2.1", "until": "2026-11-23T12:00:01Z"}), NOW_MS).unwrap();
        assert_eq!((asked.until, asked.reason.as_str()), (Until::At(NOW_MS + 1_000), ""));
    }

    #[test]
    fn every_error_is_told_with_its_place() {
        let place = |value: Value| errors(&value).join("\n");
        assert!(
            place(json!({"for": "1h"})).starts_with("address: missing: expected an address or a network")
        );
        let found = errors(&json!({"address": "203.0.113.9/24", "for": "1w", "reson": "x"}));
        assert!(found[0].starts_with("address: expected a network whose address is zero"), "{found:?}");
        assert_eq!(
            found[1],
            r#"for: expected a time of up to 400 days, as in "90s", "15m", "1h" or "7d", found "1w""#
        );
        assert!(
            found[2].starts_with("reson: unknown field: expected address, for, until, reason"),
            "{found:?}"
        );
        let address = "192.0.2.1";
        for wrong in [
            json!({"address": address}),
            json!({"address": address, "for": "1h", "until": "2026-11-24T12:00:00Z"}),
        ] {
            assert!(place(wrong).starts_with("expected either for"));
        }
        for until in ["2026-11-23T12:00:00Z", "2028-11-23T12:00:00Z", "noon"] {
            assert!(
                place(json!({"address": address, "until": until})).starts_with("until: expected a time of")
            );
        }
        assert!(place(json!({"address": address, "for": "401d"})).starts_with("for: expected"));
        assert!(place(json!(7)).starts_with("expected an object"));
    }
}
