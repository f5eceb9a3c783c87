//! A canary by commands: begun for one POP, shown, withdrawn, promoted.

use super::Asked;
use super::fleet::report;
use crate::running::{file, until};

const LOGIN: &str = "rules:\n- {name: login, key: [client_address], rate: 5/m}\n";
const FASTER: &str = "rules:\n- {name: login, key: [client_address], rate: 10/m}\n";

#[test]
fn a_canary_runs_at_one_pop_and_is_put_for_all() {
    let asked = Asked::start();
    let ((_a, login), (_b, faster)) = (file(LOGIN), file(FASTER));
    let none = asked.run(&["rules", "put", &faster, "--region", "default"]).wrong(1);
    assert!(none.contains("put one for all POPs first"), "{none}");
    let version = asked.run(&["rules", "put", &login, "--json"]).json(0)["version"].as_u64().unwrap();
    assert!(asked.run(&["rules", "canary"]).page(0).starts_with("No canary runs"));
    for (sequence, pop) in [(1, "ams1"), (1, "fra1")] {
        report(&asked, pop, sequence, version, 0);
    }
    let known = || asked.run(&["fleet", "--json"]).json(0)["pops"].as_array().unwrap().len();
    until("both POPs are known", || known() == 2);
    let unknown = asked.run(&["rules", "put", &faster, "--pops", "fra1,fra2"]).wrong(1);
    assert!(unknown.contains("these have not: fra2") && unknown.contains("`weir-sync fleet`"), "{unknown}");
    assert!(asked.run(&["rules", "put", &login, "--pops", "fra1"]).wrong(1).contains("is the same already"));
    assert_eq!(asked.run(&["rules", "put", &login, "--pops", "fra1", "--region", "eu"]).code, Some(2));

    let begun = asked.run(&["rules", "put", &faster, "--pops", "fra1", "--comment", "faster"]).page(0);
    let id = asked.run(&["rules", "canary", "--json"]).json(0)["id"].as_u64().unwrap();
    assert!(begun.starts_with(&format!("Canary {id} is for fra1, beside version r1: ")), "{begun}");
    let page = asked.run(&["rules", "canary"]).page(0);
    assert!(page.contains(" by alice: faster.\nIt runs at 0 of 1 POPs.\nNot yet at fra1.\n"), "{page}");
    assert!(page.ends_with("~ rule login\n    rate: \"5/m\" -> \"10/m\"\n"), "{page}");
    let refused = asked.run(&["rules", "put", &login]).page(0);
    assert!(refused.contains("is the same already"), "{refused}");
    let refused = asked.run(&["rules", "rollback", &version.to_string()]).wrong(1);
    assert!(refused.contains("a canary runs") && refused.contains("`weir-sync rules promote`"), "{refused}");

    report(&asked, "fra1", 2, version + 1, 0);
    until("it runs", || asked.run(&["rules", "canary"]).page(0).contains("It runs at 1 of 1 POPs."));
    let fleet = asked.run(&["fleet", "--strict"]).page(0);
    assert!(fleet.starts_with(&format!("Version r1 runs at 1 of 2 POPs. A canary runs: {id};")), "{fleet}");
    let taken = asked.run(&["rules", "withdraw", "--comment", "too fast"]).page(0);
    assert_eq!(taken, format!("Canary {id} is withdrawn: fra1 runs what all others do.\n"));

    let begun = asked.run(&["rules", "put", &faster, "--region", "default", "--json"]).json(0);
    assert_eq!((&begun["region"], &begun["changes"]["changed"][0]["rule"]), (&"default".into(), &"login".into()));
    let other = asked.run(&["rules", "promote", "--canary", &id.to_string()]).wrong(1);
    assert!(other.contains(&format!("the canary that runs is {}", begun["canary"])), "{other}");
    let promoted = asked.run(&["rules", "promote"]).page(0);
    let expected = format!("Version r2 is the rule set of canary {}, for all POPs.\n", begun["canary"]);
    assert_eq!(promoted, expected);
    assert_eq!(asked.run(&["rules", "get", "--json"]).json(0)["version"], version + 1);
}
