//! Events of the audit log: one JSON object per line.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::Value;
use weir_cli::moment;
use weir_store::stream::EventLine;

use crate::changes::Differences;

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum AuditEvent {
    Change(Box<ChangeEvent>),
    Decisions(Box<DecisionEvent>),
    /// More keys were limited than are written per interval.
    Omitted {
        /// Number of omitted keys, as far as known.
        keys: usize,
        limited: u64,
    },
    Anomaly(Box<AnomalyEvent>),
    Lost {
        count: u64,
    },
}

impl AuditEvent {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Change(_) => "change",
            Self::Decisions(_) => "decisions",
            Self::Omitted { .. } => "omitted",
            Self::Anomaly(_) => "anomaly",
            Self::Lost { .. } => "lost",
        }
    }
}

/// A change with its author and reason. Fields that are unknown or do not apply are omitted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangeEvent {
    /// `rules`, or the kind of an override: `ban`, `allow`, `rate`, `lift`, `reset`.
    pub what: &'static str,
    /// Name of the token that made the change, or `rules_file`.
    pub author: String,
    /// Address that the request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Kind of change, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Subject of an override (an address, or a rule and a key), and its quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Value>,
    /// End of an override (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Version of the rule set that was replaced; 0 if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Version that is current now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// `unknown` if the store's answer was lost: the change may or may not have been made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// Differences between the two versions, unless the earlier one is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Differences>,
}

/// Decisions on a key at a POP since its last event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DecisionEvent {
    pub(crate) rule: String,
    /// Name of the key, as formatted by [`crate::keys::name`].
    pub(crate) key: String,
    /// Address that the key begins with, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) pop: String,
    /// Admitted and limited tokens.
    pub(crate) admitted: u64,
    pub(crate) limited: u64,
    /// Times of the first and of the last report with limited tokens (RFC 3339).
    pub(crate) first: String,
    pub(crate) last: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct AnomalyEvent {
    /// `rate`, `pop` or `top_key`.
    pub(crate) anomaly: &'static str,
    /// `begin` or `end`.
    pub(crate) state: &'static str,
    pub(crate) rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pop: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Address that the key begins with, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// Value of the minute; at the end, the highest one.
    pub(crate) found: f64,
    pub(crate) usual: f64,
    /// Upper end of the usual band.
    pub(crate) bound: f64,
    /// Beginning (RFC 3339).
    pub(crate) since: String,
}

/// Common fields of all events: a unique ID, the time, and the name of this weir-sync.
#[derive(Debug)]
pub(crate) struct Stamp {
    region: String,
    replica: String,
    started_ms: u64,
    count: AtomicU64,
}

#[derive(Serialize)]
struct Stamped<'a> {
    id: String,
    at: String,
    region: &'a str,
    replica: &'a str,
    #[serde(flatten)]
    event: &'a AuditEvent,
}

impl Stamp {
    /// Stamp for the weir-sync `name`: `region/replica`, or only the region.
    pub(crate) fn new(name: &str) -> Self {
        let (region, replica) = name.split_once('/').unwrap_or((name, ""));
        let (region, replica) = (region.to_owned(), replica.to_owned());
        Self { region, replica, started_ms: moment::now_ms(), count: AtomicU64::new(0) }
    }

    pub(crate) fn line(&self, event: &AuditEvent) -> EventLine {
        let Self { region, replica, started_ms, count } = self;
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{region}/{replica}/{started_ms}-{count}");
        let stamped = Stamped { id, at: moment::text(moment::now_ms()), region, replica, event };
        // Strings, numbers and lists of them always serialize.
        let json = serde_json::to_string(&stamped).unwrap_or_default();
        EventLine { kind: event.kind(), json: json.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::RuleDifference;

    const PAGE: &str = include_str!("../../../docs/reference/audit-log.md");

    fn samples() -> Vec<AuditEvent> {
        let diff = Differences {
            added: vec!["search".into()],
            changed: vec![RuleDifference { rule: "login".into(), fields: vec!["burst".into(), "rate".into()] }],
            fields: vec!["deny".into()],
            ..Differences::default()
        };
        let changed = ChangeEvent {
            what: "rules",
            author: "anna".into(),
            peer: Some([192, 0, 2, 10].into()),
            comment: "the sale begins".into(),
            note: "put".into(),
            before: Some(1_763_900_000_000),
            after: Some(1_763_900_000_001),
            changes: Some(diff),
            ..ChangeEvent::default()
        };
        let decided = DecisionEvent {
            rule: "login".into(),
            key: "192.0.2.7".into(),
            address: Some("192.0.2.7".into()),
            pop: "fra1".into(),
            admitted: 5,
            limited: 120,
            first: moment::text(1_795_432_321_003),
            last: moment::text(1_795_432_330_258),
        };
        let odd = AnomalyEvent {
            anomaly: "top_key",
            state: "begin",
            rule: "login".into(),
            pop: None,
            key: Some("192.0.2.7".into()),
            address: Some("192.0.2.7".into()),
            found: 5_400.0,
            usual: 120.0,
            bound: 366.0,
            since: moment::text(1_795_432_260_000),
        };
        vec![
            AuditEvent::Change(changed.into()),
            AuditEvent::Decisions(decided.into()),
            AuditEvent::Omitted { keys: 40, limited: 900 },
            AuditEvent::Anomaly(odd.into()),
            AuditEvent::Lost { count: 12 },
        ]
    }

    #[test]
    fn the_page_shows_each_event_as_it_is_written_with_a_row_for_each_field() {
        let stamp = Stamp { started_ms: 1_795_432_320_000, ..Stamp::new("fra/a") };
        let mut shown = PAGE.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let named: String = rows.collect();
        for event in samples() {
            let line = stamp.line(&event);
            let mut written: Value = serde_json::from_str(&line.json).unwrap();
            assert_eq!(written["event"], line.kind);
            assert!(!line.json.contains('\n'));
            written["at"] = json!("2026-11-23T11:12:13.456Z");
            assert_eq!(written, serde_json::from_str::<Value>(shown.next().unwrap()).unwrap());
            let Value::Object(fields) = serde_json::to_value(&event).unwrap() else { panic!("{event:?}") };
            for field in fields.keys().filter(|field| *field != "count") {
                assert!(named.contains(&format!("`{field}`")), "docs/reference/audit-log.md has no row of {field}");
            }
        }
        assert_eq!(shown.next(), None);
    }
}
