//! The audit log's file: opened again at SIGHUP, written to the end, refused where it cannot be.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_protocol::messages::{BudgetRule, Key, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::running::{DEADLINE, Running, report, run, until};

const ADMIN: &str = "the-token-of-the-admin";

/// Switches all rules off or on, which is a change each time.
fn switch(running: &Running, enforce: bool) {
    let body = format!("{{\"enforce\": {enforce}}}");
    let headers = "content-type: application/json\r\n";
    let (status, answer) = running.ask("PUT /v1/enforcement", ADMIN, headers, body.as_bytes());
    assert_eq!(status, 200, "{answer}");
}

fn put(running: &Running) {
    let headers = "content-type: application/json\r\nif-none-match: *\r\n";
    let rules = br#"{"rules": [{"name": "a", "key": ["all"], "rate": "1/s"}]}"#;
    let (status, answer) = running.ask("PUT /v1/rules", ADMIN, headers, rules);
    assert_eq!(status, 201, "{answer}");
}

/// The `note` of each change in a file.
fn notes(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let note = |line| serde_json::from_str::<Value>(line).unwrap()["note"].as_str().unwrap().to_owned();
    text.lines().map(note).collect()
}

#[test]
fn a_moved_file_is_created_again_at_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let [file, moved] = ["audit.jsonl", "audit.jsonl.1"].map(|name| folder.path().join(name));
    let path = file.to_str().unwrap();
    let running = Running::start(&["--admin-token", ADMIN, "--audit-log-file", path]);
    put(&running);
    until("the first change is written", || notes(&file) == ["put"]);
    fs::rename(&file, &moved).unwrap();
    switch(&running, false);
    until("it still writes to what it has open", || notes(&moved).len() == 2);
    running.send("HUP");
    until("the file is there again", || file.exists());
    switch(&running, true);
    let (code, logs) = running.signal("TERM");
    assert_eq!(code, Some(0), "{logs}");
    assert_eq!(notes(&file), ["kill switch: enforce true"], "what came last is written before the end");
    assert_eq!(notes(&moved).len(), 2);
}

#[test]
fn the_standard_output_has_it_after_where_it_listens() {
    let running = Running::start(&["--admin-token", ADMIN, "--audit-log-file", "stdout"]);
    put(&running);
    let line = running.next_line();
    let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!((&event["event"], &event["author"]), (&"change".into(), &"admin".into()));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_at_the_start() {
    let arguments = ["--listen", "127.0.0.1:0", "--log-level", "error", "--audit-log-file", "/nowhere/audit.jsonl"];
    let errors = run(&arguments).wrong(1);
    assert!(errors.contains("audit_log_file: cannot open /nowhere/audit.jsonl"), "{errors}");
}

/// A report of `pop` on a key with these tokens asked for since it began, and none given.
fn asked(pop: &str, sequence: u64, asked: u64, asked_recently: u64) -> Report {
    let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 1).unwrap();
    let rules = vec![BudgetRule { name: "login".into(), quota, sharing: Sharing::of(quota) }];
    let value = vec![4, 32, 192, 0, 2, 7];
    let keys = vec![Key { value, epoch: 1, asked, asked_recently, ..Key::default() }];
    Report { sequence, rules, keys, ..report(pop) }
}

#[test]
fn a_pop_that_stands_out_is_an_anomaly_which_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let compressed = ["--anomaly-minute-ms", "100", "--anomaly-learn-minutes", "3"];
    let running = Running::start(&[&["--audit-log-file", file.to_str().unwrap()][..], &compressed].concat());
    let of_pop = |state: &str| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.into_iter().find(|event| event["anomaly"] == "pop" && event["state"] == state)
    };
    let (began, mut sums, mut sequence) = (Instant::now(), [0; 5], 0);
    let mut report = |of_last: u64| {
        assert!(began.elapsed() < DEADLINE, "no event appears");
        sequence += 1;
        for (pop, sum) in sums.iter_mut().enumerate() {
            let asked_now = if pop == 4 { of_last } else { 20 };
            *sum += asked_now;
            let report = asked(&format!("pop{pop}"), sequence, *sum, asked_now);
            assert_eq!(running.exchange("", &report).0, 200);
        }
        // As POPs do: an interval, here of a third of a minute.
        thread::sleep(Duration::from_millis(30));
    };
    while began.elapsed() < Duration::from_secs(1) {
        report(20);
    }
    assert_eq!(of_pop("begin"), None, "all are alike");
    while of_pop("begin").is_none() {
        report(1_000);
    }
    let event = of_pop("begin").unwrap();
    assert_eq!((&event["rule"], &event["pop"], &event["key"]), (&"login".into(), &"pop4".into(), &Value::Null));
    let row = r#"weir_sync_anomalies{region="default",rule="login",anomaly="pop"}"#;
    assert_eq!(running.metric(row), 1);
    while of_pop("end").is_none() {
        report(20);
    }
    until("the metric is zero", || running.metric(row) == 0);
}
