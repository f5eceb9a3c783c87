//! `weir-sync explain FILE`: the rules that count a request, and the others with the reason.

use weir_cli::explain::{command, described, run};
use weir_gateway::json;

use crate::running::file;

/// The lines about a request under these rules, without the first, which repeats the request.
fn lines_of(document: &str, arguments: &[&str]) -> Vec<String> {
    let (_file, path) = file(document);
    let matches = command().try_get_matches_from([&["explain", &path], arguments].concat());
    let page = run(&matches.unwrap_or_else(|e| panic!("{e}")), json::request).unwrap_or_else(|e| panic!("{e}"));
    page.lines().skip(1).filter(|line| !line.starts_with("(The bytes")).map(str::to_owned).collect()
}

fn of_rule(rule: &str, arguments: &[&str]) -> Vec<String> {
    lines_of(&format!("rules: [{{name: r, rate: 10/s, {rule}}}]"), arguments)
}

#[test]
fn the_key_is_shown_in_clear_and_in_bytes() {
    let address = ["--address", "192.0.2.77"];
    assert_eq!(
        of_rule("key: [client_address: {ipv4: 24}], cost: 3", &address),
        ["Counted by:", "  r: key client address 192.0.2.0/24; bytes 0418c00002; costs 3; enforced"]
    );
    assert_eq!(of_rule("key: [all]", &[])[1], "  r: key of all requests; bytes 03; costs 1; enforced");
    let parts = "key: [{header: X-Key}, client_address, {cookie: sid}, {query: q}, host, method, path, \
                 {path_segments: 2}], mode: shadow, cost: {after: {status: [401]}}";
    let arguments = [
        "--address",
        "[2001:db8::1]:443",
        "--header",
        "x-key: abc",
        "--header",
        "Cookie: a=b; sid=s1",
        "--host",
        "A.Example:80",
        "--method",
        "PUT",
        "--path",
        "/a//b/c?q=%41",
    ];
    let found = of_rule(parts, &arguments);
    let (start, bytes) = found[1].split_once("; bytes ").unwrap();
    assert_eq!(
        start,
        "  r: key header x-key \"abc\", client address 2001:db8::/64, cookie sid \"s1\", query parameter q \"A\", \
         host \"a.example\", method \"PUT\", path \"/a/b/c\", the first 2 segments of the path \"a/b\""
    );
    assert!(bytes.starts_with("064020010db80000000001"), "{bytes}");
    assert!(bytes.ends_with("; costs what its response states; in shadow"), "{bytes}");
    let reserving = parts.replace("[401]}}", "[401]}, reserve: 3}");
    let reserves = &of_rule(&reserving, &arguments)[1];
    assert!(reserves.ends_with("; reserves 3, and costs what its response states; in shadow"), "{reserves}");
    let other = of_rule(parts, &[&arguments[..], &["--header", "x-key: d"]].concat());
    assert!(other[1].contains("\"abc,d\"") && !other[1].contains(bytes), "{other:?}");
}

#[test]
fn a_missing_part_is_named() {
    for (missing, expected) in [
        ("skip", "  r: lacks header x-key (missing: skip)"),
        ("limit", "  r: lacks header x-key (missing: limit): limited at once; enforced"),
        (
            "share",
            "  r: key of all requests that lack a part: lacks header x-key (missing: share); bytes 02; costs 1; \
             enforced",
        ),
    ] {
        let rule = format!("key: [client_address, host, {{header: x-key}}], missing: {missing}");
        let found = of_rule(&rule, &["--address", "::1", "--host", "a"]);
        assert!(found.iter().any(|line| line == expected), "{found:?}");
    }
    let found = of_rule("key: [host, client_address]", &["--host", "a"]);
    assert_eq!(found[2], "  r: lacks a client address (missing: skip)");
}

#[test]
fn the_first_test_that_fails_is_named() {
    for (condition, reason) in [
        ("{methods: [POST]}", "methods does not hold: it is \"GET\""),
        ("{path: {exact: /a}}", "path does not hold: it is \"/b?c=1\""),
        ("{hosts: [a.example]}", "hosts does not hold: the request has none"),
        ("{routes: [main]}", "routes does not hold: the request has none"),
        ("{addresses: [10.0.0.0/8]}", "addresses does not hold: it is \"192.0.2.1\""),
        ("{headers: [{name: X-A, equals: a}]}", "header x-a does not hold: it is \"b\""),
        ("{headers: [{name: x-c, present: true}]}", "header x-c does not hold: the request has none"),
        ("{cookies: [{name: c, equals: d}]}", "cookie c does not hold"),
        ("{query: [{name: c, equals: '2'}]}", "query parameter c does not hold"),
        ("{claims: [{name: [p, plan], equals: gold}]}", "JWT claim p.plan does not hold: it is \"free\""),
        ("{claims: [{name: [p, sub], present: true}]}", "JWT claim p.sub does not hold: the request has none"),
        ("{any: [{methods: [PUT]}, {path: {exact: /}}]}", "none of any holds"),
        ("{not: {methods: [GET]}}", "not does not hold: the request meets it"),
    ] {
        let arguments = ["--path", "/b?c=1", "--header", "x-a: b", "--address", "192.0.2.1", "--claim", "p.plan=free"];
        let found = of_rule(&format!("key: [all], match: {condition}"), &arguments);
        assert_eq!(found, ["Counted by no rule.".into(), "Not counted by:".into(), format!("  r: match: {reason}")]);
    }
}

#[test]
fn the_tier_that_fits_is_named() {
    let rule = "key: [all], tiers: [{name: a, when: {methods: [PUT]}, times: 2}, {name: b, when: {methods: [POST, \
                PUT]}, times: 3}, {name: c, when: {methods: [HEAD, POST]}, unlimited: true}]";
    let of = |method| of_rule(rule, &["--method", method]).join("\n");
    assert_eq!(
        of("PUT"),
        "Counted by:\n  r.a: key of all requests; bytes 03; costs 1; enforced\nNot counted by:\n  \
         r.b: the request is for the tier r.a\n  r.c: when: methods does not hold: it is \"PUT\"\n  \
         r: the request is for the tier r.a"
    );
    assert!(of("POST").contains("  r.c: the request is for the tier r.b"), "{}", of("POST"));
    assert!(of("GET").starts_with("Counted by:\n  r: key"), "{}", of("GET"));
    let unlimited = of("HEAD");
    assert!(unlimited.starts_with("Counted by no rule."), "{unlimited}");
    assert!(unlimited.contains("  r.c: the request is of this tier, which is not limited"), "{unlimited}");
    assert!(unlimited.contains("  r: the request is for the tier r.c"), "{unlimited}");
}

#[test]
fn a_tiers_keys_are_looked_up() {
    let rule = "key: [{header: x-account}], tiers: [{name: big, keys: [acme, big-co], times: 2}, \
                {name: own, when: {methods: [GET]}, keys: [us], unlimited: true}]";
    let of = |account: &str| of_rule(rule, &["--header", &format!("x-account: {account}")]).join("\n");
    let big = of("big-co");
    assert!(big.starts_with("Counted by:\n  r.big: key header x-account \"big-co\""), "{big}");
    assert!(
        big.contains("r.own: keys: the request's key is none of them\n  r: the request is for the tier r.big"),
        "{big}"
    );
    let us = of("us");
    assert!(us.starts_with("Counted by no rule."), "{us}");
    assert!(us.contains("r.own: the request is of this tier, which is not limited"), "{us}");
    assert!(of("small").starts_with("Counted by:\n  r: key header"), "{}", of("small"));
}

#[test]
fn the_lists_come_first() {
    let document = |enforce: bool| {
        format!(
            "{{enforce: {enforce}, allow: [{{methods: [PUT]}}, {{methods: [GET]}}], deny: [{{path: {{prefix: /}}}}], \
             rules: [{{name: a, key: [all], rate: 1/s}}]}}"
        )
    };
    assert_eq!(lines_of(&document(true), &[]), ["It meets allow[1]: it goes through; no rule counts it."]);
    let denied = lines_of(&document(true), &["--method", "POST"]);
    assert_eq!(denied, ["It meets deny[0], and meets nothing in allow: it gets status 403."]);
    let off = lines_of(&document(false), &["--method", "POST"]);
    assert_eq!(off, ["enforce is false: it goes through; no rule and no list is looked at."]);
}

#[test]
fn an_undecided_test_is_shown() {
    let rule = "key: [all], match: {path: {exact: /login}}, tiers: [{name: a, when: {path: {prefix: /LOGIN}}, times: \
        2}]";
    let found = of_rule(rule, &["--path", "/Login"]);
    let reason = "the request may be of this tier, so r counts it, which allows less";
    assert_eq!(found[3], format!("  r.a: {reason}"), "{found:?}");
    assert!(found[1].ends_with("; enforced; the request may not meet its conditions"), "{found:?}");
    let denied = lines_of(
        "{deny: [{methods: [PUT]}, {path: {prefix: /a}}], rules: [{name: a, key: [all], rate: 1/s}]}",
        &["--path", "/A"],
    );
    assert_eq!(denied, ["It may meet deny[1], and meets nothing in allow: it gets status 403."]);
    let found = of_rule("key: [{query: q, duplicates: limit}]", &["--path", "/?q=1&q=1"]);
    assert_eq!(
        found[1],
        "  r: has only query parameter q more than once (duplicates: limit): limited at once; enforced"
    );
}

#[test]
fn a_claim_is_given_once() {
    for again in ["p.plan=gold", "p=gold", "p.plan.of=gold"] {
        let line = ["explain", "-", "--claim", "p.plan=free", "--claim", again];
        let wrong = described(&command().get_matches_from(line), json::request).unwrap_err();
        let path = again.split('=').next().unwrap();
        assert_eq!(wrong, format!("--claim: expected each claim once, found {path} again"));
    }
}
