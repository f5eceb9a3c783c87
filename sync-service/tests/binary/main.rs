//! The binary prints where it listens, stops cleanly on a signal, and refuses to start with one clear sentence.

mod admin;
mod audit_log;
mod bombs;
mod check;
mod cli;
mod console;
mod draining;
mod explain;
mod import;
mod limits;
mod page;
mod ports;
mod running;
mod tls;
mod tokens;

use running::{Running, file, run};

#[test]
fn logs_json_without_secrets() {
    let url = "redis://weir:pa55word@127.0.0.1:1";
    let (_, logs) = Running::start(&[
        "--log-format",
        "json",
        "--log-level",
        "trace",
        "--token",
        "s3cret-of-16-bytes-and-more",
        "--store",
        url,
    ])
    .signal("TERM");
    assert!(!logs.contains("pa55word") && !logs.contains("s3cret"), "{logs}");
    for line in logs.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert!(logs.contains("127.0.0.1:1\""), "the store's address is logged: {logs}");
}

#[test]
fn a_port_in_use_is_an_error_of_one_sentence() {
    let first = Running::start(&[]);
    let errors = run(&["--listen", &first.address, "--log-level", "error"]).wrong(1);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains(&first.address) && errors.contains("is in use") && errors.contains("--listen"), "{errors}");
}

#[test]
fn a_configuration_can_be_checked_alone() {
    assert_eq!(run(&["--check"]).page(0), "the configuration is good\n");
    run(&["--check", "--region", "FRA"]).wrong(2);
    // Nothing listens there.
    let errors = run(&["--check", "--store", "redis://weir:pa55word@127.0.0.1:1"]).wrong(1);
    assert!(errors.starts_with("weir-sync: the store is out of reach") && !errors.contains("pa55"), "{errors}");
}

#[test]
fn the_worst_case_depends_on_the_algorithm() {
    let (_file, path) = file(
        "rules:\n- {name: window, key: [host], rate: 20/h, algorithm: fixed_window}\n\
         - {name: leaky, key: [path], rate: 10/s, algorithm: leaky_bucket, queue: 5}\n\
         - {name: turns, key: [path], rate: 10/s, algorithm: leaky_bucket, queue: 5, strict: true}\n\
         - {name: flying, key: [client_address], algorithm: concurrency, limit: 7}\n\
         - {name: daily, key: [route], rate: 9/day, algorithm: quota}\n\
         - {name: open, key: [method], rate: 9/h, strict: true, on_sync_loss: local}\n\
         - {name: failed, key: [client_address, host], rate: 5/m, cost: {after: {status: [401]}}}\n\
         - {name: shadow, key: [{header: a}], rate: 5/m, mode: shadow}\n",
    );
    let page = run(&["check", "--pops", "4", "--new-keys", "9000", &path]).page(0);
    for line in [
        "Table: 9000 new keys a second that ask once each are counted for an hour, 32400000 at a time; \
         that takes `addresses: 37028572`.",
        "Table: 9000 new keys a second that ask once each lack something for 12 seconds, 108000 at a time; \
         that takes `addresses: 36000`.",
    ] {
        assert!(page.contains(line), "no `{line}` in\n{page}");
    }
    let worst = |name: &str| {
        let of_rule = page.split("\n\n").find(|rule| rule.starts_with(name)).unwrap_or_default();
        of_rule.split_once("Worst case in a fleet of 4 POPs: ").map(|(_, bound)| bound.to_owned())
    };
    for (name, expected) in [
        ("window", "a key gets 80 in the same time, as each POP counts for itself."),
        ("leaky", "a key gets 4 times the rate, as each POP counts for itself."),
        ("turns", "no key gets above its quota."),
        ("flying", "a key has 28 in flight at once, as each POP counts for itself."),
        ("daily", "no key gets above its quota."),
        ("open", "no key gets above its quota, while its POPs are in touch."),
    ] {
        assert_eq!(worst(name).as_deref(), Some(expected), "{page}");
    }
    let failed = worst("failed").unwrap();
    assert!(failed.starts_with("a key gets 17 above its quota for a while, and pays it back. While"), "{page}");
    assert!(failed.ends_with("for one that asks one POP. What responses cost comes on top."), "{page}");
    assert_eq!(worst("shadow"), None);
}

#[test]
fn a_request_is_explained() {
    let (_file, path) = file(
        "rules:\n- {name: api, key: [client_address, {header: x-api-key}], rate: 100/s}\n\
         - {name: login, match: {path: {exact: /login}}, key: [client_address], rate: 5/m}\n",
    );
    let request = ["--method", "POST", "--path", "/login?x=1", "--host", "a.example", "--address", "192.0.2.1"];
    let page = run(&[&["explain", &path][..], &request].concat()).page(0);
    assert!(page.starts_with("POST /login?x=1 to a.example from 192.0.2.1\nCounted by:\n"), "{page}");
    // The bytes of a hashed key depend on the fleet's secret.
    let with =
        |more: &[&str]| run(&[&["explain", &path, "--header", "x-api-key: k"][..], &request, more].concat()).page(0);
    let (_secret, secret) = file("a secret of 16 and more bytes\n");
    let (unkeyed, keyed) = (with(&[]), with(&["--key-secret-file", &secret]));
    assert!(unkeyed.contains("POPs without a secret") && !keyed.contains("without a secret"), "{unkeyed}{keyed}");
    assert_ne!(unkeyed.lines().nth(2), keyed.lines().nth(2));
    let (_bad, bad) = file("rules: [{name: A, key: [all], rate: 1/s}]");
    for wrong in [&["explain"][..], &["explain", &bad], &["explain", &path, "--header", "x"], &["explain", "/nowhere"]]
    {
        assert_eq!(run(wrong).code, Some(2), "{wrong:?}");
    }
}
