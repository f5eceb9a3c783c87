//! `weir-sync check`: several files and the standard input, for people and for programs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::running::{CommandOutput, fed, file, run};

const GOOD: &str = "rules:\n- {name: api, key: [client_address], rate: 5/s}\n";
const BAD: &str = "rules:\n- name: login\n  key: [client_address]\n  rate: fast\n";
const WARNED: &str = "rules:\n- name: typo\n  match: {methods: [post]}\n  key: [client_address]\n  rate: 5/m\n";

/// The exit code of `check`, its page, and its errors.
fn check(arguments: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let CommandOutput { code, page, errors } = fed(&[&["check"], arguments].concat(), stdin);
    (code, page, errors)
}

#[test]
fn each_of_several_files_is_checked_and_one_bad_fails_all() {
    let ((_a, good), (_b, bad)) = (file(GOOD), file(BAD));
    let (code, page, wrong) = check(&[&good, "-", &bad], WARNED);
    assert_eq!(code, Some(1), "{page}{wrong}");
    assert!(page.starts_with(&format!("{good}: 1 rules, good\n")), "{page}");
    assert!(page.contains("\n\n-: 1 rules, good\n"), "{page}");
    assert!(
        page.ends_with(
            "\n\n-:3:20: warning: rules[0].match.methods (typo): \"post\" never matches: methods are \
        compared to the letter, and clients send them in capitals\n"
        ),
        "{page}"
    );
    assert!(wrong.starts_with(&format!("{bad}:4:9: rules[0].rate (login): expected a whole number")), "{wrong}");
    assert_eq!(wrong.lines().count(), 1, "{wrong}");
    let (code, page, wrong) = check(&[&good, "-"], GOOD);
    assert_eq!((code, wrong.as_str()), (Some(0), ""), "{page}");
}

#[test]
fn bad_and_unreadable_files_have_different_exit_codes() {
    let ((_a, good), (_b, bad), (_c, warned)) = (file(GOOD), file(BAD), file(WARNED));
    for (arguments, expected) in [
        (&[good.as_str(), &warned][..], 0),
        (&["--strict", &good], 0),
        (&["--strict", &good, &warned], 1),
        (&["--json", "--strict", &warned], 1),
        (&[&bad], 1),
        (&["--json", &bad], 1),
        (&["/nowhere/rules", &bad], 2),
        (&["--json", "/nowhere/rules"], 2),
        (&["-", "-"], 2),
        (&["--no-such-flag", &good], 2),
        (&[&good, "--pops", "0"], 2),
        (&[&good, "--pops", "101", "--regions", "100"], 2),
        (&[], 2),
    ] {
        let (code, page, wrong) = check(arguments, GOOD);
        assert_eq!(code, Some(expected), "{arguments:?}: {page}{wrong}");
    }
    let (_, page, wrong) = check(&["--strict", &good, &warned], "");
    assert!(page.contains("1 rules, good") && page.contains("warning: "), "{page}");
    assert_eq!(wrong, "--strict: expected no warnings, found 1\n");
    let (_, page, wrong) = check(&["/nowhere/rules", &good], "");
    assert!(page.contains("1 rules, good"), "the others are checked all the same: {page}");
    assert!(wrong.starts_with("/nowhere/rules: cannot be read: "), "{wrong}");
}

#[test]
fn programs_get_one_document_with_the_place_of_each_finding() {
    let ((_a, good), (_b, bad), (_c, warned)) = (file(GOOD), file(BAD), file(WARNED));
    let (code, page, wrong) = check(&["--json", &good, &bad, "-", &warned, "/nowhere/rules"], "rules: [");
    assert_eq!((code, wrong.as_str()), (Some(2), ""));
    let checked: Value = serde_json::from_str(&page).unwrap_or_else(|e| panic!("{e}: {page}"));
    let count = |name: &str| checked[name].as_u64();
    assert_eq!((&checked["is_good"], count("errors"), count("warnings")), (&json!(false), Some(3), Some(1)), "{page}");
    let listed = checked["files"].as_array().unwrap();
    let files: Vec<_> = listed.iter().map(|file| json!([file["file"], file["is_good"]])).collect();
    let expected = [(good.as_str(), true), (&bad, false), ("-", false), (&warned, true), ("/nowhere/rules", false)];
    assert_eq!(files, expected.map(|expected| json!(expected)));
    let findings: Vec<_> = listed.iter().flat_map(|file| file["findings"].as_array().unwrap()).collect();
    let expected = [
        (json!(["error", 4, 9, "rules[0].rate", "login"]), "expected a whole number"),
        (json!(["error", 1, 8, "", null]), "no YAML: found no `]`"),
        (json!(["warning", 3, 20, "rules[0].match.methods", "typo"]), "\"post\" never matches"),
        (json!(["error", null, null, "", null]), "cannot be read: "),
    ];
    assert_eq!(findings.len(), expected.len());
    for (finding, (fields, problem)) in findings.into_iter().zip(expected) {
        assert_eq!(json!(["severity", "line", "column", "place", "rule"].map(|name| &finding[name])), fields);
        assert!(finding["problem"].as_str().unwrap().starts_with(problem), "{finding}");
    }
    let (code, page, _) = check(&["--json", "-"], GOOD);
    let checked: Value = serde_json::from_str(&page).unwrap();
    assert!(code == Some(0) && checked["is_good"] == true && checked["files"][0]["findings"] == json!([]), "{page}");
}

#[test]
fn a_plugin_configuration_is_checked_as_by_the_filter() {
    let plugin = |rule: &str, fields: &str| {
        format!("{{\"rules\": [{{\"name\": \"api\", \"rate\": \"5/s\", {rule}}}],\n  {fields}}}\n")
    };
    let by_host = r#""key": ["host"], "strict": true"#;
    let secret = r#""sync": {"cluster": "weir", "pop": "fra1", "key_secret": "16 bytes or more"}"#;
    let (code, page, wrong) = check(&["--strict", "-"], &plugin(by_host, secret));
    assert_eq!(code, Some(0), "{page}{wrong}");
    let plugin_line = "A plugin configuration: a table of 65000 addresses; a POP that is named fra1, and reports to \
                       the cluster weir every 250 ms.";
    assert_eq!(page.lines().nth(1), Some(plugin_line), "{page}");
    let without_secret = r#""sync": {"cluster": "weir"}"#;
    let (code, page, _) = check(&["--strict", "-"], &plugin(by_host, without_secret));
    assert_eq!(code, Some(1), "as the filter warns of it: {page}");
    assert!(page.contains("\n-:2:11: warning: sync: keys that are not addresses leave the POP"), "{page}");
    for (rule, fields, expected) in [
        (
            by_host,
            r#""table": {"addresses": 0}, "sync": {}"#,
            &[
                "-:2:26: table.addresses: expected a whole number from 1 to 16777216, found 0",
                "-:2:38: sync.cluster: missing: expected the cluster of weir-sync",
            ][..],
        ),
        (
            by_host,
            r#""table": {}"#,
            &["-:1:70: rules[0].strict (api): expected a sync section beside it: there is none"],
        ),
        (r#""key": ["host"]"#, "\"filter_state\": 1", &["-:2:19: filter_state: expected true or false, found 1"]),
        (r#""key": ["host"]"#, r#""table": {}, "tabel": {}"#, &["-:2:25: tabel: unknown field: did you mean table?"]),
    ] {
        let (code, _, wrong) = check(&["-"], &plugin(rule, fields));
        assert_eq!((code, wrong.lines().collect::<Vec<_>>().as_slice()), (Some(1), expected));
    }
}

#[test]
fn rules_inside_of_other_files_are_checked_in_place() {
    let gateway = "kind: HTTPRoute\nspec: {rules: [{backendRefs: []}]}\n---\nkind: WasmPlugin\nspec:\n  pluginConfig:\n\
                   \x20   rules:\n    - {name: api, key: client_address, rate: 5/s}\n\
                   \x20   - {name: login, match: {path: /login}, key: client_address, rate: fast}\n";
    let (code, _, wrong) = check(&["-"], gateway);
    assert_eq!(code, Some(1), "{wrong}");
    assert!(wrong.starts_with("-:9:71: rules[1].rate (login): expected a whole number"), "{wrong}");
    let good = gateway.replace("fast", "5/m");
    let (code, page, wrong) = check(&["--strict", "-"], &good);
    assert_eq!(code, Some(0), "{page}{wrong}");
    assert!(page.starts_with("-: 2 rules, good\nA plugin configuration: "), "{page}");
    let (code, _, wrong) = check(&["-"], "kind: WasmPlugin\nspec: {pluginConfig: {}}\n");
    assert_eq!(code, Some(1));
    assert!(wrong.starts_with("-: expected a configuration of Weir in it: "), "{wrong}");
}

/// Adds every file below `folder` that has rules of Weir.
fn examples(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            examples(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let has_rules =
                fs::read_to_string(&path).is_ok_and(|text| text.contains("rules:") && text.contains("rate: "));
            found.extend(has_rules.then(|| path.display().to_string()));
        }
    }
}

#[test]
fn the_rules_of_every_example_are_without_warnings() {
    let mut files = Vec::new();
    examples(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy"), &mut files);
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        let (code, page, wrong) = check(&["--strict", &file], "");
        assert_eq!(code, Some(0), "{page}{wrong}");
        assert!(page.contains(" rules, good\n"), "{page}");
    }
}

#[test]
fn short_forms_are_shown_in_full() {
    let short = "deny: {method: TRACE}\nrules:\n- {name: a, match: {method: POST, path: '/api/*'}, \
                 key: {header: x-key}, rate: 100/minute, burst: '10'}\n";
    let (code, page, wrong) = check(&["--strict", "-"], short);
    assert_eq!(code, Some(0), "{page}{wrong}");
    let of_rule = "  Read as match.methods: [POST], match.path: {glob: /api/*}, key: [{header: x-key}], burst: 10, \
                   rate: 100/m.";
    assert!(page.lines().any(|line| line == of_rule), "{page}");
    assert!(page.contains("\nRead as deny: [{method: TRACE}], deny.methods: [TRACE].\n"), "{page}");
    assert!(page.contains("\n  In any minute up to 110 requests.\n"), "{page}");
}

#[test]
fn the_usual_overshoot_stands_beside_the_worst() {
    let (_, page, _) = check(&["--pops", "3", "-"], "rules:\n- {name: a, key: [all], rate: 50/s}\n");
    assert!(page.contains("While no exchange fails it is about 153 for a client that asks all POPs at once"), "{page}");
    let (_, page, _) = check(&["--pops", "2", "--regions", "3", "--interval-ms", "100", "-"], GOOD);
    assert!(page.contains("a fleet of 6 POPs, 2 in each of 3 regions: a key gets "), "{page}");
    for fields in ["", ", algorithm: fixed_window", ", algorithm: sliding_log", ", burst: 5"] {
        let rule = format!("rules:\n- {{name: a, key: [all], rate: 5/m{fields}}}\n");
        let (_, page, _) = check(&["--pops", "1", "-"], &rule);
        assert!(
            page.contains("Worst case in a fleet of one POP: 0, as one POP counts everything.\n"),
            "{fields}: {page}"
        );
    }
}

#[test]
fn explain_reads_the_standard_input_too() {
    fed(&["explain", "-"], GOOD).page(0);
    run(&["explain", "-"]).wrong(2);
}
