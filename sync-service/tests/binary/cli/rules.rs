//! `weir-sync rules`: what an operator does with the fleet's rule set, from the first version on.

use serde_json::json;

use weir_protocol::messages::RunningRules as RunningVersion;

use super::{Asked, fleet};
use crate::running::{file, until};

const NO_POP: &str = "No POP has reported: none runs it yet.\n";
const LOGIN: &str = "rules:\n- {name: login, key: [client_address], rate: 5/m}\n";
const FASTER: &str = "rules:\n- {name: login, key: [client_address], rate: 10/m}\n- {name: api, key: \
    [client_address], rate: 9/s}\n";
const WARNED: &str = "rules:\n- {name: typo, match: {methods: [post]}, key: [client_address], rate: 5/m}\n";

#[test]
fn a_rule_set_is_put_changed_and_taken_back() {
    let asked = Asked::start();
    let ((_a, login), (_b, faster)) = (file(LOGIN), file(FASTER));
    let none = asked.run(&["rules", "get"]).wrong(1);
    assert!(none.contains("there is no rule set"), "{none}");
    assert!(asked.run(&["rules", "versions"]).page(0).contains("`rules put FILE` makes the first"));

    let differs = asked.run(&["rules", "diff", &login]).page(1);
    assert_eq!(differs, format!("{login} would be the first version.\n+ rule login\n"));
    let put = asked.run(&["rules", "put", &login, "--comment", "the first r\u{fc}les"]).page(0);
    let first = asked.run(&["rules", "get", "--json"]).json(0)["version"].as_u64().unwrap();
    assert_eq!(put, format!("Version r1 is the first.\n+ rule login\n{NO_POP}"));
    assert_eq!(
        asked.run(&["rules", "put", &login]).page(0),
        format!("Version r1 is the same already: nothing was put.\n{NO_POP}")
    );
    assert_eq!(asked.run(&["rules", "diff", &login]).page(0), format!("{login} is the same as version r1.\n"));

    let changes = "+ rule api\n~ rule login\n    rate: \"5/m\" -> \"10/m\"\n";
    assert_eq!(asked.run(&["rules", "diff", &faster]).page(1), format!("{faster} differs from version r1.\n{changes}"));
    let put = asked.fed(&["rules", "put", "-", "--if-version", "r1"], FASTER).page(0);
    assert_eq!(put, format!("Version r2 replaces r1.\n{changes}{NO_POP}"));
    let got = asked.run(&["rules", "get"]);
    assert_eq!(got.errors, "version r2\n");
    let of_first = asked.run(&["rules", "get", "--version", "r1", "--json"]).json(0);
    assert_eq!(of_first["version"], first, "either name will do");
    let (_c, again) = file(&got.page(0));
    assert_eq!(asked.run(&["rules", "diff", &again, "--json"]).json(0)["is_same"], true, "what it prints can be put");

    let undone = "- rule api\n~ rule login\n    rate: \"10/m\" -> \"5/m\"\n";
    let to = first.to_string();
    assert_eq!(
        asked.run(&["rules", "diff", "--version", &to]).page(1),
        format!("Version r1 differs from the current one, r2.\n{undone}")
    );
    assert_eq!(
        asked.run(&["rules", "rollback", "r1"]).page(0),
        format!("Version r3 is the same as r1; it replaces r2.\n{undone}")
    );
    assert!(asked.run(&["rules", "rollback", "r7"]).wrong(1).contains("there is no version r7"));

    let page = asked.run(&["rules", "versions"]).page(0);
    let rows: Vec<Vec<&str>> = page.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let rows: Vec<String> = rows.iter().map(|row| [&row[..1], &row[2..]].concat().join(" ")).collect();
    let expected = ["r3 alice rollback to r1", "r2 alice put", "r1 alice put the first r\u{fc}les"];
    assert_eq!(rows, expected, "{page}");
}

#[test]
fn the_kill_switch_is_a_command() {
    let asked = Asked::start();
    let (_file, login) = file(LOGIN);
    asked.run(&["rules", "put", &login]).page(0);
    let off = asked.run(&["rules", "enforce", "off", "--comment", "too many false alarms"]).page(0);
    assert!(off.ends_with(": no rule limits anything, in the whole fleet.\n"), "{off}");
    assert_eq!(asked.run(&["rules", "get"]).json(0)["enforce"], false);
    let on = asked.run(&["rules", "enforce", "on", "--json"]).json(0);
    assert_eq!(on["enforce"], true);
    assert_eq!(asked.run(&["rules", "get", "--json"]).json(0)["version"], on["version"]);
    assert_eq!(asked.run(&["rules", "enforce", "maybe"]).code, Some(2));
}

#[test]
fn a_refused_change_has_no_effect_and_a_reason() {
    let asked = Asked::start();
    let ((_a, login), (_b, faster), (_c, warned)) = (file(LOGIN), file(FASTER), file(WARNED));
    let (_d, bad) = file("rules:\n- name: login\n  key: [client_address]\n  rate: fast\n");
    let wrong = asked.run(&["rules", "put", &bad]).wrong(1);
    assert!(wrong.starts_with("refused: the rule set has 1 errors; nothing was changed\n"), "{wrong}");
    assert!(wrong.contains(&format!("{bad}:4:9: rules[0].rate (login): expected a whole number")), "{wrong}");
    let put = asked.run(&["rules", "put", &login, "--json"]).json(0);
    assert_eq!((&put["previous"], &put["changes"]["added"]), (&json!(0), &json!(["login"])));
    let version = put["version"].as_u64().unwrap();

    let stale = asked.run(&["rules", "put", &faster, "--if-version", "7"]).wrong(1);
    assert!(stale.contains("somebody else was faster") && stale.contains(&version.to_string()), "{stale}");
    let strict = asked.run(&["rules", "put", &warned, "--strict"]).wrong(1);
    assert!(strict.starts_with("warning: rules[0].match.methods (typo): \"post\" never matches"), "{strict}");
    assert!(strict.ends_with("--strict: expected no warnings, found 1: nothing was put\n"), "{strict}");
    assert_eq!(asked.run(&["rules", "get", "--json"]).json(0)["version"], version);

    let differs = asked.run(&["rules", "diff", &warned]);
    assert!(differs.errors.starts_with("warning: "), "{differs:?}");
    assert_eq!(differs.page(1), format!("{warned} differs from version r1.\n+ rule typo\n- rule login\n"));
    for unusable in [
        &["rules"][..],
        &["rules", "put"],
        &["rules", "put", "/nowhere/rules"],
        &["rules", "diff"],
        &["rules", "diff", &login, "--version", "7"],
        &["rules", "rollback", "latest"],
        &["rules", "put", &faster, "--comment", &"x".repeat(501)],
    ] {
        assert_eq!(asked.run(unusable).code, Some(2), "{unusable:?}");
    }
}

#[test]
fn a_put_shows_where_the_rule_set_runs_and_refusals() {
    let asked = Asked::start();
    let (_a, login) = file(LOGIN);
    let put = asked.run(&["rules", "put", &login]);
    let warning = "warning: the store is memory: a restart of weir-sync forgets this (set store)\n";
    assert_eq!(put.errors, warning);
    assert_eq!(asked.run(&["rules", "put", &login, "--wait=1"]).code, Some(1), "no POP runs it");
    let version = asked.run(&["rules", "get", "--json"]).json(0)["version"].as_u64().unwrap();
    fleet::report(&asked, "ams1", 1, version, 0);
    let refusal = "rules[0].key: no such thing here";
    fleet::report_status(&asked, "iad1", 1, RunningVersion { version: 0, refused: version }, refusal);
    until("both POPs are known", || asked.run(&["fleet", "--json"]).json(0)["pops"].as_array().unwrap().len() == 2);
    let late = asked.run(&["rules", "put", &login, "--wait"]).page(1);
    let expected = format!("It runs at 1 of 2 POPs.\n  iad1: refused r1: {refusal}\n");
    assert!(late.ends_with(&expected), "a refusal is not waited for: {late}");
    assert!(asked.run(&["rules", "put", &login]).page(0).ends_with(&expected), "without --wait it is no failure");
    assert!(asked.run(&["fleet"]).page(0).ends_with(&format!("\niad1: {refusal}\n")));
    fleet::report_status(&asked, "iad1", 2, RunningVersion { version, refused: 0 }, "");
    until("it is known to run it now", || asked.run(&["fleet", "--strict"]).code == Some(0));
    let all = asked.run(&["rules", "put", &login, "--wait=20"]).page(0);
    assert!(all.ends_with("It runs at 2 of 2 POPs.\n"), "{all}");
    let (_b, faster) = file(FASTER);
    let json = asked.run(&["rules", "put", &faster, "--json"]).json(0);
    let others = json!(["ams1: behind", "iad1: behind"]);
    assert_eq!(json["pops"], json!({"running": 0, "count": 2, "others": others}));
}
