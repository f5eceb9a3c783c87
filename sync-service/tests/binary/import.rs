//! `weir-sync import ratelimit`: files and the standard input become rules that `weir-sync check` finds good.

use super::running::{fed, file, run};

const CONFIGURATION: &str =
    "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n";

#[test]
fn the_output_is_a_good_file_of_rules() {
    let (_first, first) = file(CONFIGURATION);
    let rules = fed(&["import", "ratelimit", &first, "-"], &CONFIGURATION.replace("shop", "bank")).page(0);
    assert!(rules.contains(&format!("# {first}:3: user\n- name: shop_user\n")), "{rules}");
    assert!(rules.contains("# -:3: user\n- name: bank_user\n"), "{rules}");
    let (_rules, path) = file(&rules);
    let output = run(&["check", &path]).page(0);
    assert!(output.contains(": 2 rules, good\n") && !output.contains("warning: "), "{output}");
}

#[test]
fn unreadable_input_is_named() {
    let (_bad, bad) = file(&CONFIGURATION.replace("minute", "moon"));
    let errors = run(&["import", "ratelimit", &bad]).wrong(2);
    assert!(errors.starts_with(&format!("{bad}:3: unit: expected one of second, ")), "{errors}");
    let errors = run(&["import", "ratelimit", "/nowhere", &bad]).wrong(2);
    assert!(errors.starts_with("/nowhere: cannot be read: "), "{errors}");
    for wrong in [&["import"][..], &["import", "ratelimit"], &["import", "other", &bad]] {
        assert_eq!(run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_bomb_is_refused() {
    let deep = format!("domain: d\ndescriptors: {}", "[{key: a, descriptors: ".repeat(100_000));
    let (_deep, deep) = file(&deep);
    let (_large, large) = file(&format!("{CONFIGURATION}#{}", "x".repeat(3_000_000)));
    for path in [deep, large] {
        run(&["import", "ratelimit", &path]).wrong(2);
    }
}
