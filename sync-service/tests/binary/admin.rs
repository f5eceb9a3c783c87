//! Operators: each has a name and a role, every change its author, and every refused try a line in the log.

use serde_json::Value;

use crate::running::{Running, file};

const RULES: &[u8] = br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5/s"}]}"#;
const ALICE: &str = "the-token-of-operator-alice";
const BOB: &str = "the-token-of-operator-bob";
const BOARD: &str = "the-token-of-a-dashboard";
const JSON: &str = "content-type: application/json\r\n";

/// A weir-sync with two operators, and a dashboard that may only read.
fn with_operators() -> (tempfile::NamedTempFile, Running) {
    let (file, path) = file(&format!("alice write {ALICE}\nbob@ops write {BOB}\nboard read {BOARD}\n"));
    let running = Running::start(&["--token", "the-token-of-all-pops", "--admin-token-file", &path]);
    (file, running)
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn every_change_has_an_author_a_comment_and_a_time() {
    let (_file, running) = with_operators();
    let change = |line: &str, token: &str, headers: &str, change: &str| {
        let (status, answer) = running.ask(line, token, &format!("{JSON}{headers}"), change.as_bytes());
        assert!(matches!(status, 200 | 201), "{answer}");
        body(&answer)["version"].as_u64().unwrap()
    };
    let rules = str::from_utf8(RULES).unwrap();
    let first = change("PUT /v1/rules", ALICE, "if-none-match: *\r\nweir-comment: the first r\u{fc}les\r\n", rules);
    change("PUT /v1/enforcement", BOB, "weir-comment: too many false alarms\r\n", r#"{"enforce": false}"#);
    change("POST /v1/rules/rollback", ALICE, "if-match: *\r\n", &format!(r#"{{"version": {first}}}"#));

    let (status, answer) = running.ask("GET /v1/rules/versions", BOARD, "", b"");
    assert_eq!(status, 200, "it may read");
    let kept = body(&answer)["versions"].as_array().unwrap().clone();
    let row = |kept: &Value| ["author", "note", "comment"].map(|field| kept[field].as_str().unwrap().to_owned());
    let rows: Vec<_> = kept.iter().map(row).collect();
    let expected = [
        ["alice", "rollback to r1", ""],
        ["bob@ops", "kill switch: enforce false", "too many false alarms"],
        ["alice", "put", "the first r\u{fc}les"],
    ];
    assert_eq!(rows, expected);
    assert!(kept.iter().all(|kept| kept["at_s"].as_u64().unwrap() > 1_700_000_000), "{answer}");
    let long = format!("if-match: *\r\n{JSON}weir-comment: {}\r\n", "x".repeat(501));
    let (status, answer) = running.ask("PUT /v1/rules", ALICE, &long, RULES);
    assert!(status == 400 && answer.contains("at most 500 bytes"), "{answer}");
    let (_, logs) = running.signal("TERM");
    assert!(logs.contains(r#"author="bob@ops""#) && logs.contains("too many false alarms"), "{logs}");
    assert!(logs.contains(r#"version="r3" note="rollback to r1""#), "{logs}");
}

#[test]
fn a_refused_try_is_logged_with_its_address() {
    let (_file, running) = with_operators();
    let (status, answer) = running.ask("PUT /v1/rules", BOARD, &format!("{JSON}if-none-match: *\r\n"), RULES);
    assert!(status == 403 && answer.contains("the token `board` may only read"), "{answer}");
    for _ in 0..3 {
        assert_eq!(running.status("PUT /v1/enforcement", "the-token-of-all-pops"), 401, "a POP's");
    }
    assert_eq!(running.status("GET /v1/rules/versions", "the-token-of-a-stranger"), 401);
    assert_eq!(running.status("GET /v1/rules", BOARD), 404, "nothing was put");
    let long = format!("GET /v1/keys/r/{}", "x".repeat(30_000));
    assert_eq!(running.status(&long, "the-token-of-a-stranger"), 401);
    let (_, logs) = running.signal("TERM");
    assert!(logs.contains("... (30011 bytes): 401"), "{logs}");
    assert!(logs.lines().all(|line| line.len() < 1_000), "what a client chose is cut");
    for line in
        ["refused: PUT /v1/rules: 403", "refused: PUT /v1/enforcement: 401", "refused: GET /v1/rules/versions: 401"]
    {
        let warnings = logs.lines().filter(|logged| logged.contains("WARN") && logged.contains("peer=127.0.0.1"));
        assert_eq!(warnings.filter(|logged| logged.contains(line)).count(), 1, "{line}: {logs}");
    }
    assert!([ALICE, BOB, BOARD, "the-token-of-a-stranger"].iter().all(|token| !logs.contains(token)), "{logs}");
}
