//! `weir-sync explain --live`: a request's keys, as the fleet has them.

use super::Asked;
use crate::running::file;

#[test]
fn a_request_is_explained_by_the_fleet() {
    let asked = Asked::start();
    let request = ["--address", "192.0.2.7", "--path", "/login", "--header", "x-plan: a", "--claim", "payload.sub=me"];
    let explain = |more: &[&str]| asked.run(&[&["explain", "--live"], &request[..], more].concat());
    assert!(explain(&[]).wrong(1).contains("there is no rule set"));
    let text = "rules:\n- {name: login, key: [client_address], rate: 5/m}\n\
                - {name: other, key: [client_address], rate: 5/m, match: {path: {prefix: /x}}}\n";
    let (_file, rules) = file(text);
    asked.run(&["rules", "put", &rules]).page(0);
    let page = explain(&[]).page(0);
    assert!(page.starts_with("It goes through: counted by login.\n\n"), "{page}");
    assert!(page.contains("key:  ") && page.contains("192.0.2.7") && page.contains("free_in_s:"), "{page}");
    assert!(page.contains("OTHER RULE") && page.lines().any(|line| line.starts_with("other ")), "{page}");
    assert_eq!(explain(&["--json"]).json(0)["keys"][0]["rule"], "login");
    assert!(explain(&["--route", "r"]).wrong(2).contains("--route"));
    asked.run(&["ban", "192.0.2.0/24", "--for", "1h"]).page(0);
    let page = explain(&[]).page(0);
    assert!(
        page.starts_with("It meets the list deny: it gets 403.\n") && page.contains("192.0.2.0/24"),
        "the override is in force: {page}"
    );
    let one = asked.run(&["keys", "login", "192.0.2.7", "--json"]).json(0);
    assert_eq!(one["overrides"][0]["address"], "192.0.2.0/24");
}
