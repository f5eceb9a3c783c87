//! The trail as logs, and spans of reports: to a small collector, which is out of service at first.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use weir_wire::messages::{self, Key, Message as _, Report, Rule};
use weir_wire::quota::{Period, Quota, Rate};
use weir_wire::sharing::Sharing;

use crate::running::{Running, until};

const ADMIN: &str = "the-token-of-the-admin";

/// What it was sent, by path.
type Sent = Arc<Mutex<Vec<(String, Value)>>>;

/// A collector that refuses the first two requests with this status, and its address.
fn collector(refusal: &'static str) -> (String, Sent) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, sent) = (listener.local_addr().unwrap().to_string(), Sent::default());
    let into = Arc::clone(&sent);
    thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let head: Vec<_> =
                stream.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap()];
            stream.read_exact(&mut body).unwrap();
            let is_json = head.contains(&"content-type: application/json".to_owned());
            assert!(is_json && head[0].starts_with("POST "), "{head:?}");
            let status = if count < 2 { refusal } else { "200 OK" };
            if count >= 2 {
                let path = head[0].split(' ').nth(1).unwrap().to_owned();
                into.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
            }
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
            );
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, sent)
}

/// What lies behind `field` of the scopes in what was sent to `path`.
fn all(sent: &Sent, path: &str, pointer: &str) -> Vec<Value> {
    let sent = sent.lock().unwrap();
    let of_path = sent.iter().filter(|(to, _)| to == path);
    of_path.filter_map(|(_, body)| body.pointer(pointer)?.as_array().cloned()).flatten().collect()
}

/// The attribute of a span.
fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|of| of["key"] == key).map_or(&Value::Null, |of| &of["value"])
}

/// A report of a key that was admitted once.
fn report() -> Vec<u8> {
    let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 1).unwrap();
    let rules = vec![Rule { name: "a".into(), quota, sharing: Sharing::of(quota) }];
    let (value, one) = (vec![4, 32, 192, 0, 2, 7], 1);
    let key = Key {
        value,
        epoch: 1,
        asked: one,
        asked_recently: one,
        admitted: one,
        unconfirmed: one,
        ..Key::default()
    };
    Report {
        pop: "fra1".into(),
        worker: 1,
        sequence: 1,
        table: 1,
        rules,
        keys: vec![key],
        ..Report::default()
    }
    .encode()
}

#[test]
fn a_collector_gets_changes_as_logs_and_reports_as_spans_also_those_of_when_it_was_out_of_service() {
    let (address, sent) = collector("503 Service Unavailable");
    let [logs, traces] = ["logs", "traces"].map(|signal| format!("http://{address}/v1/{signal}"));
    let flags = [
        "--admin-token",
        ADMIN,
        "--region",
        "fra",
        "--replica",
        "a",
        "--trail-otlp",
        &logs,
        "--traces-otlp",
        &traces,
    ];
    let running = Running::start(&flags);
    let headers = format!("content-type: {}\r\n", messages::CONTENT_TYPE);
    assert_eq!(running.ask("POST /v1/report", "", &headers, &report()).0, 200);
    let headers = "content-type: application/json\r\nif-none-match: *\r\nweir-comment: the sale begins\r\n";
    let rules = br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "1/s", "burst": 1}]}"#;
    assert_eq!(running.ask("PUT /v1/rules", ADMIN, headers, rules).0, 201);

    let records = "/resourceLogs/0/scopeLogs/0/logRecords";
    until("the change is a log", || !all(&sent, "/v1/logs", records).is_empty());
    let record = all(&sent, "/v1/logs", records).swap_remove(0);
    let event: Value = serde_json::from_str(record["body"]["stringValue"].as_str().unwrap()).unwrap();
    assert_eq!((&event["event"], &event["comment"]), (&"change".into(), &"the sale begins".into()));
    assert_eq!((&record["eventName"], &record["severityText"]), (&"weir.change".into(), &"INFO".into()));
    let resource = all(&sent, "/v1/logs", "/resourceLogs/0/resource/attributes");
    assert!(resource.contains(&json!({"key": "service.instance.id", "value": {"stringValue": "fra/a"}})));

    let spans = || all(&sent, "/v1/traces", "/resourceSpans/0/scopeSpans/0/spans");
    until("the report is a span", || spans().iter().any(|span| span["name"] == "weir.report"));
    let spans = spans();
    let [report, charge] = ["weir.report", "weir.charge"].map(|name| {
        spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no {name}: {spans:#?}"))
    });
    assert_eq!((&charge["traceId"], &charge["parentSpanId"]), (&report["traceId"], &report["spanId"]));
    assert_eq!(
        (report["traceId"].as_str().unwrap().len(), report["spanId"].as_str().unwrap().len()),
        (32, 16)
    );
    assert_eq!(attribute(report, "weir.pop"), &json!({"stringValue": "fra1"}));
    assert_eq!(attribute(charge, "weir.budgets"), &json!({"intValue": "1"}));
    let [began, ended] =
        ["startTimeUnixNano", "endTimeUnixNano"].map(|field| report[field].as_str().unwrap().parse::<u128>());
    assert!(began.unwrap() <= ended.unwrap() && report["status"].is_null(), "{report:#}");
    for sink in ["otlp", "spans"] {
        let written = format!(r#"weir_sync_trail_written_total{{region="fra",sink="{sink}"}}"#);
        until("it is counted", || running.metric(&written) > 0);
        assert_eq!(
            running.metric(&format!(r#"weir_sync_trail_lost_total{{region="fra",sink="{sink}"}}"#)),
            0
        );
    }
}

#[test]
fn what_a_collector_refuses_for_good_is_lost_and_the_next_events_tell_of_it() {
    let (address, sent) = collector("404 Not Found");
    let running = Running::start(&[
        "--admin-token",
        ADMIN,
        "--region",
        "fra",
        "--trail-otlp",
        &format!("http://{address}/v1/logs"),
    ]);
    let count =
        |name: &str| running.metric(&format!(r#"weir_sync_trail_{name}_total{{region="fra",sink="otlp"}}"#));
    for (lost, condition) in [(1, "if-none-match"), (2, "if-match")] {
        let headers = format!("content-type: application/json\r\n{condition}: *\r\n");
        let rules =
            format!(r#"{{"rules": [{{"name": "a", "key": ["client_address"], "rate": "{lost}/s"}}]}}"#);
        assert!(running.ask("PUT /v1/rules", ADMIN, &headers, rules.as_bytes()).0 < 300);
        until("the refused event is counted", || count("lost") == lost);
    }
    assert_eq!(count("written"), 0);
    let rules = br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "9/s"}]}"#;
    let headers = "content-type: application/json\r\nif-match: *\r\n";
    assert_eq!(running.ask("PUT /v1/rules", ADMIN, headers, rules).0, 200);
    until("events are taken again", || count("written") == 2);
    let records = all(&sent, "/v1/logs", "/resourceLogs/0/scopeLogs/0/logRecords");
    let events: Vec<Value> = records
        .iter()
        .map(|record| serde_json::from_str(record["body"]["stringValue"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(events.iter().map(|event| &event["event"]).collect::<Vec<_>>(), ["lost", "change"]);
    assert_eq!((&events[0]["count"], count("lost")), (&json!(2), 2));
}
