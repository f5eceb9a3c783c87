//! Tokens: read again at SIGHUP and when their files change, so that they can be replaced without a refusal.

use std::process::Command;

use crate::running::{Running, file, until};

#[test]
fn a_bad_token_file_at_sighup_keeps_the_token_and_is_logged() {
    let (token, admin, new_admin) = ("a-token-of-all-pops", "the-admins-first-token", "the-admins-second-token");
    let (pops, pops_path) = file(token);
    let (admins, admins_path) = file(admin);
    let running = Running::start(&["--token-file", &pops_path, "--admin-token-file", &admins_path]);
    std::fs::write(pops.path(), "short").unwrap();
    std::fs::write(admins.path(), new_admin).unwrap();
    running.send("HUP");
    until("the admin's second token is taken", || running.status("GET /v1/rules", new_admin) == 404);
    assert!(running.takes_reports_with(token) && !running.takes_reports_with("short"));
    // What every POP holds never comes to change rules.
    std::fs::write(admins.path(), format!("{new_admin}\n{token}\n")).unwrap();
    running.send("HUP");
    until("the tokens are refused", || running.logs().contains("admin_token: expected another one"));
    assert!([401, 403].contains(&running.status("PUT /v1/rules", token)), "{}", running.logs());
    assert_eq!(running.status("GET /v1/rules", new_admin), 404, "the previous tokens stay valid");
    let (code, logs) = running.signal("TERM");
    assert_eq!(code, Some(0), "{logs}");
    assert!(logs.contains(&pops_path) && logs.contains("expected 16 to 1024"), "{logs}");
}

/// Kubernetes swaps a secret: another file takes the path.
#[test]
fn a_token_file_that_is_swapped_is_read_again_without_a_signal() {
    let (first, second) = ("the-first-token-of-all", "the-second-token-of-all");
    let (old, path) = file(first);
    let running = Running::start(&["--token-file", &path]);
    let other = tempfile::NamedTempFile::new_in(old.path().parent().unwrap()).unwrap();
    std::fs::write(other.path(), second).unwrap();
    std::fs::rename(other.path(), old.path()).unwrap();
    until("the second token is taken", || running.takes_reports_with(second));
    assert!(!running.takes_reports_with(first), "it was replaced");
}

#[test]
fn a_token_file_that_cannot_be_read_now_holds_up_nothing() {
    let token = "a-token-of-the-tests";
    let (file, path) = file(token);
    let running = Running::start(&["--token-file", &path]);
    // Reading a FIFO waits for a writer, as reading a file on a server that is gone waits for that.
    let fifo = file.path().with_extension("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::fs::rename(&fifo, file.path()).unwrap();
    running.send("HUP");
    until("the signal is taken", || running.logs().contains("SIGHUP"));
    for _ in 0..20 {
        assert!(running.takes_reports_with(token));
    }
    assert_eq!(running.signal("TERM").0, Some(0));
}

#[test]
fn a_pop_reports_only_under_its_own_name() {
    let (frankfurt, two, all) = ("the-token-of-frankfurt", "the-token-of-two-pops", "the-token-of-all-pops");
    let (_file, path) = file(&format!("fra fra* {frankfurt}\ntwo iad1,ams1 {two}\n{all}\n"));
    let running = Running::start(&["--token-file", &path]);
    for (pop, token, status) in [
        ("fra1", frankfurt, 200),
        ("fra2", frankfurt, 200),
        ("iad1", frankfurt, 403),
        ("iad1", two, 200),
        ("ams1", two, 200),
        ("ams12", two, 403),
        ("fra1", two, 403),
        ("sin1", all, 200),
        ("sin1", "the-token-of-a-stranger", 401),
    ] {
        assert_eq!(running.report(pop, token).0, status, "{pop} with {token}");
    }
    for _ in 0..5 {
        let (status, answer) = running.report("iad1", frankfurt);
        assert!(status == 403 && answer.contains("`fra` is for reports of fra*, found a report of iad1"), "{answer}");
    }
    assert_eq!(running.status("GET /v1/rules", frankfurt), 404, "each may read the rule set");
    assert_eq!(running.metric(r#"weir_sync_reports_total{region="default",outcome="forbidden"}"#), 8);
    assert_eq!(running.metric(r#"weir_sync_reports_total{region="default",outcome="answered"}"#), 5);
    assert_eq!(running.metric(r#"weir_sync_token_uses_total{region="default",token="two"}"#), 2);
    let (_, logs) = running.signal("TERM");
    let warned = |reason: &str| {
        let warnings = logs.lines().filter(|line| line.contains("WARN") && line.contains("peer=127.0.0.1"));
        warnings.filter(|line| line.contains(reason)).count()
    };
    assert_eq!(warned("found a report of iad1"), 1, "six times refused: {logs}");
    assert_eq!((warned("found a report of ams12"), warned("401 Unauthorized")), (1, 1), "{logs}");
    assert!([frankfurt, two, all].iter().all(|token| !logs.contains(token)), "{logs}");
}
