//! What is written: an object of JSON on one line for each event.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::Value;

use crate::changes::Changes;
use crate::moment;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An operator, or a watched file, changed something.
    Change(Box<Changed>),
    /// A key was limited at a POP.
    Decisions(Box<Decided>),
    /// More keys were limited than an interval tells of.
    LeftOut {
        /// How many, as far as they are known.
        keys: usize,
        /// How many of their tokens were limited.
        limited: u64,
    },
    /// Something out of the ordinary begins or ends.
    Anomaly(Box<Odd>),
    /// Events before this one were lost on their way to this sink.
    Lost {
        /// How many.
        count: u64,
    },
}

impl Event {
    /// Its kind, as a metric's label and in a stream.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Change(_) => "change",
            Self::Decisions(_) => "decisions",
            Self::LeftOut { .. } => "left_out",
            Self::Anomaly(_) => "anomaly",
            Self::Lost { .. } => "lost",
        }
    }
}

/// What was changed, by whom and why. What is not known, or is not there, is left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Changed {
    /// `rules`, or the kind of an order: `ban`, `allow`, `override`, `lift`, `forget`.
    pub what: &'static str,
    /// The name of the token that made it, or `rules_file`.
    pub author: String,
    /// Where the request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// What its author says of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Which kind of change it was, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What an order is about: an address, or a rule and a key; and what it says of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Value>,
    /// Until when an order holds, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_moment")]
    pub until: Option<u64>,
    /// The version of the rule set that was replaced, 0 if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// The version that is current now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// That it is not known whether the change was made: the store's answer was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// How the two differ, unless the one before is not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It may have been made or not.
    Unknown,
}

/// What was decided of a key at a POP since the last such event.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Decided {
    /// The rule's name.
    pub rule: String,
    /// The key, as [`crate::keys::name`] shows it.
    pub key: String,
    /// The address that it begins with, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Where.
    pub pop: String,
    /// Tokens admitted.
    pub admitted: u64,
    /// Tokens limited.
    pub limited: u64,
    /// When it was first heard that some were limited, in milliseconds since 1970, ...
    #[serde(serialize_with = "moment_of")]
    pub first: u64,
    /// ... and when last.
    #[serde(serialize_with = "moment_of")]
    pub last: u64,
}

/// Something out of the ordinary.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Odd {
    /// What: `rate`, `pop`, `top_key` or `share`.
    pub anomaly: &'static str,
    /// `begin` or `end`.
    pub state: &'static str,
    /// The rule's name.
    pub rule: String,
    /// The POP that stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pop: Option<String>,
    /// The key that is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The address that it begins with, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What was found in a minute: at the end, the most.
    pub found: f64,
    /// What is usual.
    pub usual: f64,
    /// Where the usual band ends.
    pub bound: f64,
    /// When it began, in milliseconds since 1970.
    #[serde(serialize_with = "moment_of")]
    pub since: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's way")]
fn moment_of<S: serde::Serializer>(unix_ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    moment::text(*unix_ms).serialize(serializer)
}

#[allow(clippy::ref_option, reason = "serde's way")]
fn as_moment<S: serde::Serializer>(unix_ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    unix_ms.map(moment::text).serialize(serializer)
}

/// An event as it is written.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its kind.
    pub kind: &'static str,
    /// JSON, without a line's end.
    pub json: Arc<str>,
}

/// What every event begins with: a name that no other event has, when it was, and who writes it.
#[derive(Debug)]
pub struct Stamp {
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
    event: &'a Event,
}

impl Stamp {
    /// For the weir-sync `member`: `region/replica`, or only the region.
    pub fn new(member: &str) -> Self {
        let (region, replica) = member.split_once('/').unwrap_or((member, ""));
        let (region, replica) = (region.to_owned(), replica.to_owned());
        Self { region, replica, started_ms: moment::now_ms(), count: AtomicU64::new(0) }
    }

    /// The event as it is written.
    pub fn line(&self, event: &Event) -> Line {
        let Self { region, replica, started_ms, count } = self;
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{region}/{replica}/{started_ms}-{count}");
        let stamped = Stamped { id, at: moment::text(moment::now_ms()), region, replica, event };
        // Strings, numbers and lists of them, which can always be written.
        let json = serde_json::to_string(&stamped).unwrap_or_default();
        Line { kind: event.kind(), json: json.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::Changed as ChangedRule;

    const PAGE: &str = include_str!("../../../docs/trail.md");

    /// An event of each kind.
    fn samples() -> Vec<Event> {
        let diff = Changes {
            added: vec!["search".into()],
            changed: vec![ChangedRule { rule: "login".into(), fields: vec!["burst".into(), "rate".into()] }],
            fields: vec!["deny".into()],
            ..Changes::default()
        };
        let changed = Changed {
            what: "rules",
            author: "anna".into(),
            peer: Some([192, 0, 2, 10].into()),
            comment: "the sale begins".into(),
            note: "put".into(),
            before: Some(1_763_900_000_000),
            after: Some(1_763_900_000_001),
            changes: Some(diff),
            ..Changed::default()
        };
        let decided = Decided {
            rule: "login".into(),
            key: "192.0.2.7".into(),
            address: Some("192.0.2.7".into()),
            pop: "fra1".into(),
            admitted: 5,
            limited: 120,
            first: 1_795_432_321_003,
            last: 1_795_432_330_258,
        };
        let odd = Odd {
            anomaly: "top_key",
            state: "begin",
            rule: "login".into(),
            pop: None,
            key: Some("192.0.2.7".into()),
            address: Some("192.0.2.7".into()),
            found: 5_400.0,
            usual: 120.0,
            bound: 366.0,
            since: 1_795_432_260_000,
        };
        vec![
            Event::Change(changed.into()),
            Event::Decisions(decided.into()),
            Event::LeftOut { keys: 40, limited: 900 },
            Event::Anomaly(odd.into()),
            Event::Lost { count: 12 },
        ]
    }

    #[test]
    fn the_page_shows_each_event_as_it_is_written() {
        let stamp = Stamp { started_ms: 1_795_432_320_000, ..Stamp::new("fra/a") };
        let written = samples().into_iter().map(|event| {
            let line = stamp.line(&event);
            let mut event: Value = serde_json::from_str(&line.json).unwrap();
            assert_eq!(event["event"], line.kind);
            assert!(!line.json.contains('\n'));
            event["at"] = json!("2026-11-23T11:12:13.456Z");
            event
        });
        let shown = PAGE.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
        let shown: Vec<Value> = shown.map(|block| serde_json::from_str(block).unwrap()).collect();
        assert_eq!(written.collect::<Vec<_>>(), shown);
    }

    #[test]
    fn the_page_has_a_row_for_each_field() {
        for event in samples() {
            let Value::Object(fields) = serde_json::to_value(&event).unwrap() else { panic!("{event:?}") };
            for field in fields.keys().filter(|field| *field != "count") {
                let is_named = PAGE.lines().any(|line| {
                    let names =
                        line.strip_prefix("| ").and_then(|line| line.split(" | ").next()).unwrap_or_default();
                    names.contains(&format!("`{field}`"))
                });
                assert!(is_named, "docs/trail.md has no row of {field}");
            }
        }
    }

    #[test]
    fn what_an_order_is_about_is_written() {
        let target = json!({"address": "203.0.113.0/24"});
        let changed = Changed { what: "ban", target: Some(target), until: Some(7), ..Changed::default() };
        let changed = Changed { outcome: Some(Outcome::Unknown), ..changed };
        let written = serde_json::to_value(Event::Change(changed.into())).unwrap();
        let expected = json!({
            "event": "change", "what": "ban", "outcome": "unknown", "author": "", "target": {"address": "203.0.113.0/24"},
            "until": "1970-01-01T00:00:00.007Z",
        });
        assert_eq!(written, expected);
    }
}
