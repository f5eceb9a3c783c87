//! The binary: says where it listens, ends well on a signal, refuses to start with one clear sentence.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

/// The binary with nothing of ours in its environment.
fn weir_sync(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-sync"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_SYNC_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    weir_sync(arguments).output().unwrap()
}

/// A started weir-sync and its address. Killed when dropped.
struct Running(Child, String);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = weir_sync(&[&["--listen", "127.0.0.1:0"], arguments].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("said `{line}`")).to_owned();
        Self(child, address)
    }

    /// Sends a signal and returns the exit code and what was logged.
    fn signal(mut self, name: &str) -> (Option<i32>, String) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let status = self.0.wait().unwrap();
        let mut logs = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut logs).unwrap();
        (status.code(), logs)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ends_well_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let (code, logs) = Running::start(&[]).signal(signal);
        assert_eq!(code, Some(0), "{signal}: {logs}");
        assert!(logs.contains("stopped"), "{logs}");
    }
}

#[test]
fn logs_json_without_secrets() {
    let url = "redis://weir:pa55word@127.0.0.1:1";
    let (_, logs) = Running::start(&[
        "--log-format",
        "json",
        "--log-level",
        "trace",
        "--token",
        "s3cret",
        "--store",
        url,
    ])
    .signal("TERM");
    assert!(!logs.contains("pa55word") && !logs.contains("s3cret"), "{logs}");
    for line in logs.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(
            line["level"].is_string() && line["message"].is_string() && line["timestamp"].is_string(),
            "{line}"
        );
    }
    assert!(logs.contains("127.0.0.1:1\""), "where the store is, is told: {logs}");
}

#[test]
fn a_port_in_use_is_told_in_one_sentence() {
    let first = Running::start(&[]);
    let second = run(&["--listen", &first.1, "--log-level", "error"]);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&first.1) && said.contains("is in use") && said.contains("--listen"), "{said}");
}

#[test]
fn a_bad_configuration_is_refused() {
    let output = run(&["--listen", "0.0.0.0:0", "--region", "FRA"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 2, "{said}");
    let unreadable = run(&["--store", "rediss://127.0.0.1:1", "--store-ca-file", "/nowhere/ca.pem"]);
    assert_eq!(unreadable.status.code(), Some(1));
    assert!(String::from_utf8(unreadable.stderr).unwrap().contains("/nowhere/ca.pem"));
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(2));
}

#[test]
fn a_configuration_can_be_checked_alone() {
    let good = run(&["--check"]);
    assert!(good.status.success());
    assert_eq!(String::from_utf8(good.stdout).unwrap(), "the configuration is good\n");
    assert!(!run(&["--check", "--region", "FRA"]).status.success());
}
