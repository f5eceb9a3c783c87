//! Operators: each has a name and a role, and every refused try a line in the log.

use crate::running::{Running, file};

const RULES: &[u8] = br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5/s"}]}"#;
const ALICE: &str = "the-token-of-operator-alice";
const BOARD: &str = "the-token-of-a-dashboard";
const JSON: &str = "content-type: application/json\r\n";

#[test]
fn a_refused_try_is_logged_with_its_address() {
    let (_file, path) = file(&format!("alice write {ALICE}\nboard read {BOARD}\n"));
    let running = Running::start(&["--token", "the-token-of-all-pops", "--admin-token-file", &path]);
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
    assert!([ALICE, BOARD, "the-token-of-a-stranger"].iter().all(|token| !logs.contains(token)), "{logs}");
}
