//! The audit log's file: opened again at SIGHUP, written to the end, refused where it cannot be.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::running::{Running, run, until};

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
