//! Documents that are small and would become large: any such rule set is refused soon, and takes little
//! memory.

use std::time::{Duration, Instant};

use crate::running::{CommandOutput, Running, file, limited, until};

const ADMIN: &str = "the-token-of-operators";
/// Maximum time for one document, without optimization and on a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// The most memory that it may take, beyond what was used before.
const MEMORY_KIB: u64 = 128 * 1_024;
const GOOD: &str = "rules: [{name: a, key: [client_address], rate: 5/s}]\n";

/// Joins `count` texts.
fn many(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect::<Vec<_>>().concat()
}

/// A document, by what is wrong with it, and whether it is JSON.
fn bombs() -> Vec<(&'static str, String, bool)> {
    let laughs = |width: usize, depth: usize| {
        let level = |level: usize| {
            let item = if level == 0 { "x".into() } else { format!("*a{}", level - 1) };
            format!("a{level}: &a{level} [{}]\n", vec![item; width].join(", "))
        };
        many(depth, level)
    };
    let large = "x".repeat(500_000);
    let anchors = many(1_000, |n| format!("- &b{n} x\n"));
    let merged = "- <<: *m\n".repeat(9_000);
    let fields = many(1_000, |n| format!("  f{n}: x\n"));
    let deep = |open: &str| open.repeat(1_000_000 / open.len());
    vec![
        ("aliases of aliases", laughs(10, 30), false),
        ("aliases of aliases, by two", laughs(2, 60), false),
        ("aliases of a large text", format!("- &a {large}\n{anchors}{}", "- *a\n".repeat(9_000)), false),
        ("merged maps", format!("{anchors}- &m\n{fields}{merged}"), false),
        ("a thing that has itself", "&a [*a, *a]".into(), false),
        ("deep lists", deep("["), false),
        ("deep maps", deep("{a: "), false),
        ("deep block lists", deep("- "), false),
        ("deep questions", deep("? "), false),
        ("deep lists, closed", format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), false),
        ("many anchors", many(60_000, |n| format!("- &n{n} x\n")), false),
        ("many documents", "--- x\n".repeat(160_000), false),
        ("many tags", "- !t x\n".repeat(140_000), false),
        ("many items", format!("rules: [{}]", "0,".repeat(500_000)), false),
        ("many fields", many(90_000, |n| format!("f{n}: 0\n")), false),
        ("one long text", format!("rules: \"{}\"", "\\u00e9".repeat(170_000)), false),
        ("blank lines", "\n".repeat(1_000_000), false),
        ("quotes without end", format!("a: '{}", "'' ".repeat(300_000)), false),
        ("deep JSON", deep("["), true),
        ("deep JSON maps", deep("{\"a\":"), true),
        ("many items of JSON", format!("{{\"rules\":[{}0]}}", "0,".repeat(500_000)), true),
        ("many fields of JSON", format!("{{{}\"a\":0}}", many(80_000, |n| format!("\"{n}\":0,"))), true),
    ]
}

// I2
#[test]
fn a_put_is_refused_soon_and_takes_little_memory() {
    let running = Running::start(&["--admin-token", ADMIN]);
    let put = |media_type: &str, text: &str| {
        let headers = format!("content-type: {media_type}\r\nif-none-match: *\r\n");
        running.ask("PUT /v1/rules", ADMIN, &headers, text.as_bytes())
    };
    let before = running.memory_kib("VmRSS");
    for (name, text, is_json) in bombs() {
        let began = Instant::now();
        let (status, answer) = put(if is_json { "application/json" } else { "application/yaml" }, &text);
        let (took, peak) = (began.elapsed(), running.memory_kib("VmHWM"));
        println!("{name}: {} bytes, {status} in {took:?}, at most {peak} KiB", text.len());
        assert_eq!(status, 422, "{name}: {answer}");
        assert!(answer.len() < 20_000, "{name}: {}", answer.len());
        assert!(took < SOON, "{name}: {took:?}");
        assert!(peak < before + MEMORY_KIB, "{name}: {before} KiB before, {peak} at most");
    }
    assert_eq!(put("application/yaml", GOOD).0, 201, "it goes on");
}

// I2
#[test]
fn a_watched_file_that_is_a_bomb_changes_nothing() {
    let (rules, path) = file(GOOD);
    let running = Running::start(&["--admin-token", ADMIN, "--rules-file", &path]);
    until("the file is put", || running.status("GET /v1/rules", ADMIN) == 200);
    let before = running.memory_kib("VmRSS");
    let ten_megabytes = ("10 MB", format!("{GOOD}#{}", "x".repeat(10_000_000)), false);
    for (n, (name, text, _)) in (1..).zip(bombs().into_iter().take(8).chain([ten_megabytes])) {
        std::fs::write(rules.path(), text).unwrap();
        until(name, || running.metric(r#"weir_sync_rules_file_errors_total{region="default"}"#) == n);
        let peak = running.memory_kib("VmHWM");
        assert!(peak < before + MEMORY_KIB, "{name}: {before} KiB before, {peak} at most");
    }
    let (status, answer) = running.ask("GET /v1/rules", ADMIN, "", b"");
    assert!(status == 200 && answer.contains("\"rate\":\"5/s\""), "{answer}");
}

// I2
#[test]
fn check_and_explain_refuse_a_bomb_soon_and_with_little_memory() {
    let ten_megabytes = ("10 MB", format!("{GOOD}#{}", "x".repeat(10_000_000)), false);
    for (command, count, expected) in [(&["check"][..], 10, 1), (&["explain", "--address", "192.0.2.1"], 2, 2)] {
        for (name, text, _) in [ten_megabytes.clone()].into_iter().chain(bombs()).take(count) {
            let (_file, path) = file(&text);
            let (code, errors) = outcome_of(command, &path);
            assert_eq!(code, Some(expected), "{name}: {errors}");
            assert!(errors.contains(&path) && errors.contains("expected"), "{name}: {errors}");
        }
        let (code, errors) = outcome_of(command, "/dev/zero");
        assert!(code == Some(expected) && errors.contains("expected at most 2097152 bytes"), "{errors}");
    }
}

/// The exit code of `command` with the file at `path`, and its errors, within 600 MB of addresses and 20 s of CPU
/// time.
fn outcome_of(command: &[&str], path: &str) -> (Option<i32>, String) {
    let output = limited("-v 600000 && ulimit -t 20", &[command, &[path]].concat()).output().unwrap();
    let CommandOutput { code, errors, .. } = CommandOutput::of(output);
    (code, errors)
}
