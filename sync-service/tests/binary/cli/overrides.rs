//! Overrides and keys: what an operator does about a client.

use serde_json::json;

use super::{Asked, fleet};
use crate::running::{file, until};

#[test]
fn bans_allows_and_rates_are_put_and_lifted() {
    let asked = Asked::start();
    let (_file, rules) = file("rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    asked.run(&["rules", "put", &rules]).page(0);
    assert_eq!(asked.run(&["overrides"]).page(0), "There are no overrides.\n");
    let ban = asked.run(&["ban", "203.0.113.0/24", "--for", "15m", "--reason", "scans for .env"]).page(0);
    assert!(ban.starts_with("203.0.113.0/24 is banned until 20") && ban.ends_with("Z.\n"), "{ban}");
    let allow = asked.run(&["allow", "192.0.2.1", "--until", "2099-01-31T12:00:00Z"]);
    assert_eq!(allow.code, Some(1), "more than 400 days: {allow:?}");
    asked.run(&["allow", "192.0.2.1"]).page(0);
    let rate = asked.run(&["override", "login", "192.0.2.7", "--rate", "100/s", "--burst", "200"]).page(0);
    assert!(rate.starts_with("192.0.2.7 of login is given another rate until 20"), "{rate}");

    let page = asked.run(&["overrides"]).page(0);
    let row = |whom: &str| {
        let row = page.lines().find(|row| row.contains(whom)).unwrap_or_else(|| panic!("no {whom}: {page}"));
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row("203.0.113.0/24").contains(" ban 203.0.113.0/24 20"), "{page}");
    assert!(row("203.0.113.0/24").ends_with("Z alice scans for .env"), "{page}");
    assert!(row("192.0.2.1 ").contains(" allow ") && row("192.0.2.7 of login").contains(" rate "), "{page}");

    let lifted = asked.run(&["unban", "203.0.113.0/24"]).page(0);
    assert_eq!(lifted, "The ban of 203.0.113.0/24 is lifted.\n");
    asked.run(&["unallow", "192.0.2.1"]).page(0);
    asked.run(&["override", "login", "192.0.2.7", "--lift"]).page(0);
    assert_eq!(asked.run(&["overrides", "--json"]).json(0)["overrides"].as_array().map(Vec::len), Some(0));
    for unusable in [
        &["ban"][..],
        &["override", "login", "192.0.2.7"],
        &["override", "login", "192.0.2.7", "--lift", "--rate", "9/s"],
        &["ban", "192.0.2.1", "--for", "1h", "--until", "x"],
    ] {
        assert_eq!(asked.run(unusable).code, Some(2), "{unusable:?}");
    }
}

/// The store is memory, so a restart loses the rules and the overrides that POPs run.
#[test]
fn after_a_restart_keys_are_banned_at_once_and_addresses_once_there_are_rules() {
    let asked = Asked::start();
    fleet::report(&asked, "ams1", 1, 7, 0);
    until("the rules are known to be lost", || asked.run(&["fleet", "--json"]).json(0)["lost"] == 7);
    for command in [&["unban", "203.0.113.7"][..], &["ban", "203.0.113.0/24"]] {
        let refused = asked.run(command).wrong(1);
        assert!(refused.contains("revision 7") && refused.contains("`weir-sync ban RULE KEY`"), "{refused}");
    }
    let ban = asked.run(&["ban", "login", "192.0.2.7"]).page(0);
    assert!(ban.starts_with("192.0.2.7 of login is banned until 20"), "{ban}");
    let id = asked.run(&["overrides", "--json"]).json(0)["overrides"][0]["id"].to_string();
    asked.run(&["unban", &id]).page(0);
    asked.run(&["reset", "login", "192.0.2.8"]).page(0);

    let (_file, rules) = file("rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    let asked = Asked::start_with(&["--rules-file", &rules]);
    until("the file is put", || asked.run(&["rules", "get"]).code == Some(0));
    fleet::report(&asked, "ams1", 1, 7, 0);
    assert_eq!(asked.run(&["overrides", "--json"]).json(0)["lost"], json!(null));
    let gone = asked.run(&["unban", "203.0.113.7"]).wrong(1);
    assert!(gone.contains("there is no such override"), "its POPs get the file's rules without it: {gone}");
    asked.run(&["ban", "203.0.113.0/24"]).page(0);
    asked.run(&["unban", "203.0.113.0/24"]).page(0);
}

#[test]
fn a_key_without_demand_is_shown() {
    let asked = Asked::start();
    let (_file, rules) = file("rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    asked.run(&["rules", "put", &rules]).page(0);
    for none in [&["keys"][..], &["keys", "--rule", "login", "--sort", "debt"], &["keys", "--prefix", "192.0.2.0/24"]] {
        assert!(asked.run(none).page(0).starts_with("No key is busy"), "{none:?}");
    }
    assert!(asked.run(&["top", "--rounds", "2", "--interval-s", "1"]).page(0).matches("No key is busy").count() == 2);
    assert_eq!(asked.run(&["keys", "--json"]).json(0)["found"], 0);
    until("its rule is known", || asked.run(&["keys", "login", "192.0.2.7"]).code == Some(0));
    let page = asked.run(&["keys", "login", "192.0.2.7"]).page(0);
    let has = |name: &str, value: &str| page.lines().any(|line| line.split_whitespace().eq([name, value]));
    assert!(has("rule:", "login") && has("key:", "192.0.2.7"), "{page}");
    let ban = asked.run(&["ban", "login", "192.0.2.7", "--for", "15m"]).page(0);
    assert!(ban.starts_with("192.0.2.7 of login is banned until 20"), "{ban}");
    let reset = ["reset", "login", "192.0.2.7", "--comment", "our own load test"];
    assert_eq!(asked.run(&reset).page(0), "192.0.2.7 of login starts anew, at every POP within a second.\n");
    let answer = asked.run(&["reset", "login", "192.0.2.7", "--json"]).json(0);
    assert_eq!(answer, json!({"rule": "login", "key": "192.0.2.7", "reset": true}));
    for unusable in
        [&["reset", "login"][..], &["keys", "login"], &["keys", "--sort", "name"], &["keys", "--limit", "0"]]
    {
        assert_eq!(asked.run(unusable).code, Some(2), "{unusable:?}");
    }
}
