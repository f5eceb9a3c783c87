//! `weir-sync import ratelimit`: files and the standard input become rules that `weir-sync check` finds good.

use std::io::Write as _;
use std::process::Stdio;

use super::running::{file, run, weir_sync};

const CONFIGURATION: &str =
    "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n";

#[test]
fn the_output_is_a_good_file_of_rules() {
    let (_first, first) = file(CONFIGURATION);
    let mut import = weir_sync(&["import", "ratelimit", &first, "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let more = CONFIGURATION.replace("shop", "bank");
    import.stdin.take().unwrap().write_all(more.as_bytes()).unwrap();
    let output = import.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rules = String::from_utf8(output.stdout).unwrap();
    assert!(rules.contains(&format!("# {first}:3: user\n- name: shop_user\n")), "{rules}");
    assert!(rules.contains("# -:3: user\n- name: bank_user\n"), "{rules}");
    let (_rules, path) = file(&rules);
    let checked = run(&["check", &path]);
    let output = String::from_utf8(checked.stdout).unwrap();
    assert!(output.contains(": 2 rules, good\n") && !output.contains("warning: "), "{output}");
}

#[test]
fn unreadable_input_is_named() {
    let (_bad, bad) = file(&CONFIGURATION.replace("minute", "moon"));
    let output = run(&["import", "ratelimit", &bad]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(output.starts_with(&format!("{bad}:3: unit: expected one of second, ")), "{output}");
    let output = run(&["import", "ratelimit", "/nowhere", &bad]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("/nowhere: cannot be read: "));
    for wrong in [&["import"][..], &["import", "ratelimit"], &["import", "other", &bad]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_bomb_is_refused() {
    let deep = format!("domain: d\ndescriptors: {}", "[{key: a, descriptors: ".repeat(100_000));
    let (_deep, deep) = file(&deep);
    let (_large, large) = file(&format!("{CONFIGURATION}#{}", "x".repeat(3_000_000)));
    for path in [deep, large] {
        let output = run(&["import", "ratelimit", &path]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
