//! The audit log: what is changed is written, and a sink that does not answer holds up nothing.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_store::Store as _;
use weir_sync::config::{AuditFile, Config};

use crate::client::{Client, ask, greeting, one_key, report, request};
use crate::exchange::metric;
use crate::rules::{REPORTER, admin, guarded, put, rules};
use crate::stores::Shared;
use crate::{DEADLINE, Server, found, until};

const ADMIN: &str = "content-type: application/json\r\nauthorization: Bearer an-admin-token-of-the-tests\r\n";

/// A file for an audit log, and the settings of a weir-sync that writes it.
fn with_file() -> (TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit_log_file = Some(AuditFile::File(path.to_str().unwrap().to_owned()));
    (folder, Config { audit_log_file, ..guarded() })
}

/// The events in a file, once there are `count`.
async fn events(folder: &Path, count: usize) -> Vec<Value> {
    found(&format!("{count} events"), async || {
        let text = fs::read_to_string(folder.join("audit.jsonl")).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= count && text.ends_with('\n')).then_some(lines)
    })
    .await
}

/// Some fields of an event.
fn fields(event: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| event[*name].clone()).collect()
}

/// Removes a field that differs each time from an event, and returns it.
fn taken(event: &mut Value, field: &str) -> Value {
    event.as_object_mut().unwrap().remove(field).unwrap_or_else(|| panic!("no {field}"))
}

#[tokio::test]
async fn every_rule_set_change_is_written_with_author_and_changes() {
    let (folder, config) = with_file();
    let rules_file = folder.path().join("rules.yaml");
    fs::write(&rules_file, rules("4/s").to_string()).unwrap();
    let config = Config {
        rules_file: Some(rules_file.to_str().unwrap().to_owned()),
        region: "fra".into(),
        replica: Some("a".into()),
        ..config
    };
    let server = Server::start(config).await;
    events(folder.path(), 1).await;
    let any = "if-match: *\r\n";
    let comment = format!("{any}weir-comment: a\u{2003}comment\r\n");
    let second = put(&server, &comment, &rules("5/s")).await;
    let change = async |method: &str, path: &str, headers: &str, body: Value| {
        let headers = format!("{ADMIN}{headers}");
        ask(server.address, &request(method, path, &headers, body.to_string().as_bytes())).await.status
    };
    assert_eq!(change("PUT", "/v1/rules", "if-none-match: *\r\n", rules("9/s")).await, 412, "not a change");
    assert_eq!(change("PUT", "/v1/rules?dry_run=true", any, rules("9/s")).await, 200, "not a change");
    assert_eq!(change("POST", "/v1/rules/rollback", any, json!({"version": second - 1})).await, 200);
    for _ in 0..2 {
        assert_eq!(change("PUT", "/v1/enforcement", "", json!({"enforce": false})).await, 200, "one change");
    }
    let mut events = events(folder.path(), 4).await;
    let ids: Vec<_> = events.iter_mut().map(|event| taken(event, "id")).collect();
    assert!(ids.windows(2).all(|two| two[0] != two[1]) && ids[0].as_str().unwrap().starts_with("fra/a/"));
    for event in &mut events {
        let at = taken(event, "at");
        assert!(at.as_str().is_some_and(|at| at.starts_with("20") && at.len() == 24 && at.ends_with('Z')), "{at}");
    }
    let event = |after: u64, note: &str, [added, altered, fields]: [Value; 3]| {
        let (author, before) = if after < second { ("rules_file", 0) } else { ("admin", after - 1) };
        let changes = json!({
            "added": added, "removed": [], "changed": altered, "is_reordered": false, "fields": fields,
        });
        let mut event = json!({
            "region": "fra", "replica": "a", "event": "change", "what": "rules", "author": author, "note": note,
            "before": before, "after": after, "changes": changes,
        });
        if author == "admin" {
            event["peer"] = json!("127.0.0.1");
        }
        event
    };
    let rate = json!([{"rule": "per-address", "fields": ["rate"]}]);
    let mut put = event(second, "put", [json!([]), rate.clone(), json!([])]);
    put["comment"] = json!("a\u{2003}comment");
    let expected = [
        event(second - 1, "file", [json!(["per-address"]), json!([]), json!([])]),
        put,
        event(second + 1, "rollback to r1", [json!([]), rate, json!([])]),
        event(second + 2, "kill switch: enforce false", [json!([]), json!([]), json!(["enforce"])]),
    ];
    assert_eq!(events, expected);
    assert_eq!(
        metric(&server, r#"weir_sync_audit_log_events_total{region="fra",event="change"}"#).await.to_string(),
        "4"
    );
    server.stop().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_change_is_written_though_its_client_has_left() {
    let (folder, config) = with_file();
    let store = Shared::new(config.pop_ttl);
    let server = Server::start_over(config, store.clone()).await;
    let held = store.hold_answers().await;
    let mut client = Client::connect(server.address).await;
    let headers = format!("{ADMIN}if-none-match: *\r\n");
    client.send(&request("PUT", "/v1/rules", &headers, rules("4/s").to_string().as_bytes())).await;
    until("it is put", async || store.current().await.unwrap().version.is_some()).await;
    drop(client);
    // The one that asks is left.
    until("it is noticed", async || metric(&server, "weir_sync_connections").await < 1.5).await;
    drop(held);
    let events = events(folder.path(), 1).await;
    assert_eq!((&events[0]["what"], &events[0]["author"]), (&json!("rules"), &json!("admin")));
    server.stop().await.unwrap().unwrap();
}

#[tokio::test]
async fn puts_and_lifts_of_overrides_are_written() {
    let (folder, config) = with_file();
    let server = Server::start(config).await;
    put(&server, "if-none-match: *\r\n", &rules("5/s")).await;
    let change = async |method: &str, path: &str, comment: &str, body: Value| {
        let headers = format!("weir-comment: {comment}\r\n");
        let answer = admin(&server, method, path, &headers, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let ban = json!({"address": "203.0.113.0/24", "for": "1h"});
    change("PUT", "/v1/bans", "scans", ban).await;
    change("DELETE", "/v1/bans/203.0.113.0%2F24", "a customer's", Value::Null).await;
    let key = "/v1/keys/per-address/192.0.2.7/override";
    change("PUT", key, "their launch", json!({"rate": "9/s", "burst": 9, "for": "1h"})).await;
    change("DELETE", key, "it is over", Value::Null).await;
    let events = events(folder.path(), 5).await;
    let row = |event: &Value| {
        assert!(event["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{event}");
        (fields(event, &["what", "note", "author", "comment", "peer"]), event["target"].clone())
    };
    let network = json!({"address": "203.0.113.0/24"});
    let rate = json!({"rule": "per-address", "key": "192.0.2.7", "rate": "9/s", "burst": 9});
    let from = "127.0.0.1";
    let expected = [
        (json!(["ban", null, "admin", "scans", from]), network.clone()),
        (json!(["lift", "ban", "admin", "a customer's", from]), network),
        (json!(["rate", null, "admin", "their launch", from]), rate.clone()),
        (json!(["lift", "rate", "admin", "it is over", from]), rate),
    ];
    assert_eq!(events[1..].iter().map(row).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_written_as_unknown() {
    let (folder, config) = with_file();
    let store = Shared::new(config.pop_ttl);
    let server = Server::start_over(config, store.clone()).await;
    put(&server, "if-none-match: *\r\n", &rules("5/s")).await;
    let change = async |method: &str, path: &str, body: Value, status: u16| {
        store.lose_answers(true);
        let headers = "if-match: *\r\nweir-comment: a comment\r\n";
        let answer = admin(&server, method, path, headers, &body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        store.lose_answers(false);
    };
    change("PUT", "/v1/rules", rules("6/s"), 503).await;
    // POPs get these, and the store gets them later.
    let ban = json!({"address": "203.0.113.0/24", "for": "1h"});
    change("PUT", "/v1/bans", ban, 200).await;
    change("DELETE", "/v1/bans/203.0.113.0%2F24", Value::Null, 200).await;
    change("DELETE", "/v1/keys/per-address/192.0.2.7", Value::Null, 503).await;
    // Out of reach, and never asked: nothing is unknown.
    assert_eq!(admin(&server, "PUT", "/v1/rules", "if-match: \"1\"\r\n", &rules("7/s")).await.status, 412);
    put(&server, "if-match: *\r\n", &rules("8/s")).await;
    let events = events(folder.path(), 6).await;
    let row = |event: &Value| fields(event, &["what", "outcome", "comment", "author"]);
    let expected = [
        json!(["rules", null, null, "admin"]),
        json!(["rules", "unknown", "a comment", "admin"]),
        json!(["ban", null, "a comment", "admin"]),
        json!(["lift", null, "a comment", "admin"]),
        json!(["reset", "unknown", "a comment", "admin"]),
        json!(["rules", null, null, "admin"]),
    ];
    assert_eq!(events.iter().map(row).collect::<Vec<_>>(), expected);
    assert_eq!(events[3]["target"], json!({"address": "203.0.113.0/24"}));
    assert_eq!(events[4]["target"], json!({"rule": "per-address", "key": "192.0.2.7"}));
    assert!(events[1]["after"].is_null() && events[2]["until"].is_string());
}

#[tokio::test]
async fn a_reset_is_written_though_the_stores_answer_is_lost() {
    let (folder, config) = with_file();
    let store = Shared::new(config.pop_ttl);
    let server = Server::start_over(config, store.clone()).await;
    put(&server, "if-none-match: *\r\n", &rules("5/s")).await;
    let ban = json!({"rule": "per-address", "key": "192.0.2.7", "for": "1h"});
    assert_eq!(admin(&server, "PUT", "/v1/bans", "", &ban).await.status, 200);
    store.lose_overrides(true);
    let reset = admin(&server, "DELETE", "/v1/keys/per-address/192.0.2.7", "", &Value::Null).await;
    assert_eq!(reset.status, 200, "{}", reset.text());
    let row = |event: &Value| json!([event["what"], event["outcome"]]);
    let events = events(folder.path(), 4).await;
    let expected = [json!(["reset", null]), json!(["lift", null])];
    assert_eq!(events[2..].iter().map(row).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_canary_is_written_when_it_begins_and_when_it_ends() {
    let (folder, config) = with_file();
    let server = Server::start(config).await;
    put(&server, "if-none-match: *\r\n", &rules("5/s")).await;
    report(server.address, REPORTER, &greeting("fra1")).await;
    let begin = async |rate: &str| {
        // The POP is recorded within an interval.
        found("a canary", async || {
            let headers = "if-match: *\r\nweir-comment: at one first\r\n";
            let answer = admin(&server, "PUT", "/v1/rules?pops=fra1", headers, &rules(rate)).await;
            assert!(matches!(answer.status, 201 | 422), "{}", answer.text());
            answer.header("etag").map(|tag| tag.trim_matches('"').parse::<u64>().unwrap())
        })
        .await
    };
    let end = async |method: &str, path: &str, body: Value| {
        let answer = admin(&server, method, path, "if-match: *\r\nweir-comment: why\r\n", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let first = begin("6/s").await;
    end("DELETE", "/v1/rules/canary", Value::Null).await;
    let second = begin("7/s").await;
    end("POST", "/v1/rules/canary/promote", Value::Null).await;
    let third = begin("8/s").await;
    end("PUT", "/v1/enforcement", json!({"enforce": false})).await;
    let events = events(folder.path(), 8).await;
    let row = |event: &Value| fields(event, &["what", "note", "author", "comment"]);
    let at_first = json!(["canary", "begin", "admin", "at one first"]);
    let expected = [
        at_first.clone(),
        json!(["canary", "withdraw", "admin", "why"]),
        at_first.clone(),
        json!(["rules", format!("promote canary {second}"), "admin", "why"]),
        at_first,
        json!(["rules", "kill switch: enforce false", "admin", "why"]),
        json!(["canary", "withdraw", "admin", "why"]),
    ];
    assert_eq!(events[1..].iter().map(row).collect::<Vec<_>>(), expected);
    for (place, id) in [(1, first), (2, first), (3, second), (5, third), (7, third)] {
        assert_eq!(events[place]["target"], json!({"id": id, "pops": ["fra1"]}));
    }
    let rate = json!([{"rule": "per-address", "fields": ["rate"]}]);
    assert_eq!([&events[1]["changes"]["changed"], &events[4]["changes"]["changed"]], [&rate, &rate]);
    assert_eq!((&events[7]["note"], &events[6]["changes"]["fields"]), (&json!("withdraw"), &json!(["enforce"])));
}

/// Median time of a reply.
async fn usual_reply(server: &Server) -> Duration {
    let mut took = Vec::new();
    for _ in 0..50 {
        let asked_at = Instant::now();
        assert_eq!(report(server.address, REPORTER, &greeting("fra1")).await.status, 200);
        took.push(asked_at.elapsed());
    }
    took.sort();
    took[took.len() / 2]
}

#[tokio::test]
async fn a_blocked_sink_delays_no_reply_and_counts_lost_lines() {
    let (folder, config) = with_file();
    // Opening a FIFO to write waits for a reader.
    let fifo = folder.path().join("audit.jsonl");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let quick = usual_reply(&Server::start(guarded()).await).await;
    let server = Server::start(Config { audit_log_queue_max: 3, drain_timeout: Duration::ZERO, ..config }).await;
    let lost = async || metric(&server, r#"weir_sync_audit_log_lost_total{region="default",sink="file"}"#).await;
    put(&server, "if-none-match: *\r\n", &rules("1/s")).await;
    for n in 2..300 {
        put(&server, "if-match: *\r\n", &rules(&format!("{n}/s"))).await;
    }
    let slow = usual_reply(&server).await;
    assert!(slow < 3 * quick + Duration::from_millis(100), "{slow:?}, and {quick:?} without an audit log");
    assert!(lost().await > 10.0, "{}", lost().await);
    // A reader comes: it gets the number of lost lines, and the newest.
    let path = fifo.clone();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::{BufRead as _, BufReader};
        let lines = BufReader::new(fs::File::open(path).unwrap()).lines();
        let mut count = 0;
        for line in lines {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            count += line["count"].as_u64().unwrap_or(1);
            let is_last = line["changes"]["changed"][0]["rule"] == "per-address" && count == 299;
            if is_last {
                return count;
            }
        }
        count
    });
    assert_eq!(tokio::time::timeout(DEADLINE, read).await.unwrap().unwrap(), 299, "all are written or counted as lost");
    server.stop().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_limited_key_is_written_once_an_interval() {
    let (folder, config) = with_file();
    let (audit_log_interval, audit_log_keys_max) = (Duration::from_millis(300), 1);
    let server = Server::start(Config { audit_log_interval, audit_log_keys_max, ..config }).await;
    let send = async |of: weir_protocol::messages::Report| {
        assert_eq!(report(server.address, REPORTER, &of).await.status, 200);
    };
    let with_key = |sequence, admitted, asked, value: &[u8]| {
        let mut of = one_key("fra1", sequence, admitted, admitted, asked);
        of.keys[0].asked_recently = asked;
        of.keys[0].value = value.to_vec();
        of
    };
    // Two keys that are limited, one of them most; one that is not; and the same again.
    let address = [4, 32, 192, 0, 2, 7];
    send(with_key(1, 5, 125, &address)).await;
    send(with_key(2, 5, 65, &[4, 32, 192, 0, 2, 8])).await;
    send(with_key(3, 7, 7, &[4, 32, 192, 0, 2, 9])).await;
    send(with_key(4, 5, 125, &address)).await;
    let mut events = events(folder.path(), 2).await;
    for event in &mut events {
        for field in ["id", "at", "region", "replica"] {
            taken(event, field);
        }
    }
    let [first, last] = ["first", "last"].map(|field| taken(&mut events[0], field));
    assert!(first.as_str() <= last.as_str() && first.as_str().unwrap().starts_with("20"), "{first} {last}");
    assert_eq!(
        events,
        [
            json!({
                "event": "decisions", "rule": "per-address", "key": "192.0.2.7", "address": "192.0.2.7", "pop": "fra1",
                "admitted": 5, "limited": 120,
            }),
            json!({"event": "omitted", "keys": 1, "limited": 60}),
        ]
    );
    assert!((metric(&server, "weir_sync_audit_log_omitted_total").await - 60.0).abs() < 0.5);
    send(with_key(5, 6, 225, &address)).await;
    server.stop().await.unwrap().unwrap();
    let last = crate::audit_log::events(folder.path(), 3).await.pop().unwrap();
    assert_eq!((&last["admitted"], &last["limited"]), (&json!(1), &json!(99)), "written before the end: {last}");
}

#[tokio::test]
async fn keys_of_unknown_rules_are_not_written() {
    let (folder, config) = with_file();
    let server = Server::start(Config { audit_log_interval: Duration::from_millis(100), ..config }).await;
    let mut of = one_key("fra1", 1, 5, 5, 125);
    of.keys[0].asked_recently = 125;
    let rule = json!({"name": of.rules[0].name, "key": ["client_address"], "rate": "1/d", "burst": 100});
    put(&server, "if-none-match: *\r\n", &json!({"rules": [rule]})).await;
    // From a POP that lies.
    let mut lie = of.clone();
    lie.rules[0].name = "no-such-rule".into();
    (lie.pop, lie.worker) = ("ams1".into(), 2);
    for sent in [&lie, &of] {
        assert_eq!(report(server.address, REPORTER, sent).await.status, 200);
    }
    server.stop().await.unwrap().unwrap();
    let events = events(folder.path(), 2).await;
    let decisions = events.iter().filter(|event| event["event"] == "decisions");
    assert_eq!(decisions.map(|event| event["pop"].clone()).collect::<Vec<_>>(), ["fra1"]);
}
