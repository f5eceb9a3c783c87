//! `weir-sync import ratelimit` writes rules that decide as the configuration does: each of its features by an example
//! that is played to an edge, and all of them by a model of how envoyproxy/ratelimit looks a descriptor up.

mod model;
mod script;

use std::fs;
use std::path::Path;

use serde_json::Value;
use weir_cli::check::warn::warnings;
use weir_cli::document::{Document, Form};
use weir_cli::import::ratelimit;
use weir_tests::examples::edge::play;

/// Examples, each after an empty line: a configuration, then what is expected of it. `! ` begins an error, `> ` a line
/// of the rules; the other lines are requests, as `script.rs` reads them.
const EXAMPLES: &str = include_str!("examples.txt");

/// The rules for a configuration.
fn rules(yaml: &str) -> String {
    ratelimit(&[("config.yaml", yaml)]).unwrap_or_else(|e| panic!("{e}\n{yaml}"))
}

/// Plays `requests` to the rules for a configuration.
#[track_caller]
fn decides(yaml: &str, requests: &str) {
    let rules = rules(yaml);
    let document = Document::read(rules.as_bytes(), Form::Yaml).unwrap_or_else(|e| panic!("{e:?}\n{rules}"));
    assert_eq!(warnings(document.rules()), [], "{rules}");
    let document: Value = serde_json::from_str(&document.text()).unwrap();
    let requests = format!("in touch with weir-sync\n{}", script::lines(requests));
    play(&document, &requests).unwrap_or_else(|found| panic!("{found}\n{rules}"));
}

#[test]
fn each_example_decides_as_expected() {
    for example in EXAMPLES.trim_end().split("\n\n") {
        let (yaml, expected) = example.split_once("\n...\n").expect(example);
        let lines = |mark| expected.lines().filter_map(move |line| line.strip_prefix(mark)).collect::<Vec<_>>();
        let (errors, written) = (lines("! "), lines("> "));
        if errors.is_empty() {
            let is_request = |line: &&str| !line.starts_with("> ");
            decides(yaml, &expected.lines().filter(is_request).collect::<Vec<_>>().join("\n"));
            let rules = rules(yaml);
            let missing = written.into_iter().find(|line| !rules.lines().any(|of_rules| of_rules.starts_with(line)));
            assert_eq!(missing, None, "{rules}");
        } else {
            let found = ratelimit(&[("config.yaml", yaml)]).expect_err(yaml);
            let found: Vec<_> = found.lines().collect();
            let are_alike = found.iter().zip(&errors).all(|(found, error)| found.starts_with(error));
            assert!(are_alike && found.len() == errors.len(), "{yaml}: {found:#?}");
        }
    }
}

#[test]
fn each_unit_is_kept() {
    for (unit, within, after) in [
        ("second", "0.24s", "1.02s"),
        ("minute", "59.9s", "60.02s"),
        ("hour", "3599s", "3600.02s"),
        ("Day", "23.9h", "24.001h"),
        ("week", "1h", "168.001h"),
        ("MONTH", "1h", "720.001h"),
        ("year", "1h", "8760.001h"),
    ] {
        decides(
            &format!("domain: d\ndescriptors:\n- {{key: a, rate_limit: {{unit: {unit}, requests_per_unit: 4}}}}\n"),
            &format!(
                "d (a, x) x 6 -> 4 allow, 2 limit\nd (a, x) at {within} -> 1 limit\n\
                 d (a, x) at {after} x 6 -> 4 allow, 2 limit\n"
            ),
        );
    }
}

#[test]
fn several_files_may_be_of_one_domain() {
    let limit = |domain: &str, key: &str| {
        format!("domain: {domain}\ndescriptors:\n- {{key: {key}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n")
    };
    let (a, b, c) = (limit("d", "a"), limit("e", "a"), limit("d", "b"));
    let rules = ratelimit(&[("1.yaml", &a), ("2.yaml", &b), ("3.yaml", &c)]).unwrap();
    for name in ["# 1.yaml:3: a\n- name: d_a\n", "# 2.yaml:3: a\n- name: e_a\n", "# 3.yaml:3: b\n- name: d_b\n"] {
        assert!(rules.contains(name), "{rules}");
    }
    assert_eq!(
        ratelimit(&[("1.yaml", &a), ("2.yaml", &a)]).unwrap_err(),
        "2.yaml:3: expected each key and value once in a list, found them at 1.yaml:3, too"
    );
}

#[test]
fn imported_names_are_valid_rule_names() {
    let (long, limit) = ("x".repeat(100), "rate_limit: {unit: hour, requests_per_unit: 1}");
    let rules = rules(&format!(
        "domain: D\u{e9}\ndescriptors:\n- {{key: a b, {limit}}}\n- {{key: a.b, {limit}}}\n\
         - {{key: {long}, value: 1, {limit}}}\n- {{key: {long}, value: 2, {limit}}}\n"
    ));
    let names: Vec<_> = rules.lines().filter_map(|line| line.strip_prefix("- name: ")).collect();
    let (first, second) = (format!("d-_{}", &long[..61]), format!("d-_{}-2", &long[..59]));
    assert_eq!(names, ["d-_a-b", "d-_a-b-2", &first, &second], "{rules}");
    let value = "x".repeat(300);
    let too_long = format!("domain: d\ndescriptors:\n- {{key: a, value: \"*{value}\", {limit}}}\n");
    let error = ratelimit(&[("config.yaml", &too_long)]).unwrap_err();
    let expected = "config.yaml:3: the rule for it cannot be written: rules[0].match.claims[2].regex: ";
    assert!(error.starts_with(expected), "{error}");
}

/// The block in `language` of the page's chapter.
fn block<'a>(chapter: &'a str, language: &str) -> &'a str {
    let begin = format!("```{language}\n");
    let block = chapter.split_once(&begin).and_then(|(_, rest)| rest.split_once("```"));
    block.expect("an example").0
}

#[test]
fn the_example_in_the_page_decides_as_expected() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gateway.md");
    let page = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (_, chapter) = page.split_once("\n## Coming from envoyproxy/ratelimit\n").expect("the chapter");
    decides(block(chapter, "yaml"), block(chapter, "requests"));
}
