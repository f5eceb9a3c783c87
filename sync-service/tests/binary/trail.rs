//! The trail's file: opened again at SIGHUP, written to the end, refused where it cannot be.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::running::{Running, run, until};

const ADMIN: &str = "the-token-of-the-admin";

/// Switches all rules off or on, which is a change each time.
fn switch(running: &Running, enforce: bool) {
    let body = format!("{{\"enforce\": {enforce}}}");
    let headers = "content-type: application/json\r\n";
    let (status, said) = running.ask("PUT /v1/enforcement", ADMIN, headers, body.as_bytes());
    assert_eq!(status, 200, "{said}");
}

fn put(running: &Running) {
    let headers = "content-type: application/json\r\nif-none-match: *\r\n";
    let rules = br#"{"rules": [{"name": "a", "key": ["all"], "rate": "1/s"}]}"#;
    let (status, said) = running.ask("PUT /v1/rules", ADMIN, headers, rules);
    assert_eq!(status, 201, "{said}");
}

/// The notes of the changes in a file.
fn notes(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let note = |line| serde_json::from_str::<Value>(line).unwrap()["note"].as_str().unwrap().to_owned();
    text.lines().map(note).collect()
}

#[test]
fn a_file_that_was_moved_away_is_made_anew_at_a_hangup() {
    let folder = tempfile::tempdir().unwrap();
    let [file, moved] = ["trail.jsonl", "trail.jsonl.1"].map(|name| folder.path().join(name));
    let path = file.to_str().unwrap();
    let running = Running::start(&["--admin-token", ADMIN, "--trail-file", path]);
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
    let running = Running::start(&["--admin-token", ADMIN, "--trail-file", "stdout"]);
    put(&running);
    let said = running.next_line();
    let event: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&event["event"], &event["author"]), (&"change".into(), &"admin".into()));
}

#[test]
fn a_file_that_cannot_be_written_is_told_at_the_start() {
    let output =
        run(&["--listen", "127.0.0.1:0", "--log-level", "error", "--trail-file", "/nowhere/trail.jsonl"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("trail_file: cannot open /nowhere/trail.jsonl"), "{said}");
}
