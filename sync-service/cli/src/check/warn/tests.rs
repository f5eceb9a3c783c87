use crate::document::{Document, Form};

fn warnings(rules: &[&str]) -> Vec<String> {
    let list: Vec<_> = rules.iter().enumerate().map(|(i, rule)| format!("- {{name: r{i}, {rule}}}")).collect();
    let document = Document::read(format!("rules:\n{}\n", list.join("\n")).as_bytes(), Form::Yaml).unwrap();
    warnings_of(&document)
}

fn warnings_of(document: &Document) -> Vec<String> {
    super::warnings(document.rules()).iter().map(ToString::to_string).collect()
}

fn of_match(matches: &str) -> Vec<String> {
    warnings(&[&format!("match: {matches}, key: [client_address], rate: 5/s")])
}

#[test]
fn values_that_no_request_has_are_warned_of() {
    for (matches, reason) in [
        ("{methods: [post]}", "capitals"),
        ("{path: {exact: '/x?a=1'}}", "query"),
        ("{path: {prefix: '/x#a'}}", "#"),
        ("{path: {prefix: '/\u{e9}'}}", "percent-encoded"),
    ] {
        let found = warnings(&[&format!("match: {matches}, key: [client_address], rate: 5/s")]);
        assert!(found.len() == 1 && found[0].contains(reason), "{matches}: {found:?}");
        assert!(found[0].starts_with("rules[0].match.") && found[0].contains("(r0)"), "{found:?}");
    }
    let found = of_match("{paths: [{exact: /a}, {exact: '/b?c'}]}");
    assert!(found.len() == 1 && found[0].starts_with("rules[0].match.paths[1] (r0): "), "{found:?}");
    for good in ["{hosts: [a.example, '::1', '*.b.example']}", "{methods: [GET, M-SEARCH]}", "{path: {prefix: /a%20b}}"]
    {
        assert_eq!(of_match(good), [""; 0], "{good}");
    }
}

#[test]
fn a_path_that_looks_like_a_pattern_is_warned_of() {
    let wildcard = "rules[0].match.path (r0): \"/api/*\" is compared to the letter: did you mean {glob: /api/*}?";
    for matches in ["{path: {exact: '/api/*'}}", "{path: {prefix: '/api/*'}}"] {
        assert_eq!(of_match(matches), [wildcard], "{matches}");
    }
    for path in ["/(a", "/a|b", "/^a", "/a$", "/v(1|2)/.*"] {
        for matches in [format!("{{path: {{exact: '{path}'}}}}"), format!("{{path: {{prefix: '{path}'}}}}")] {
            let found = of_match(&matches);
            assert!(found.len() == 1 && found[0].contains("a path is no regular expression"), "{found:?}");
        }
    }
    for good in ["{path: '/api/*'}", "{path: {glob: '/api/*'}}", "{path: {glob: '/odata/$metadata'}}", "{path: /a.b}"] {
        assert_eq!(of_match(good), [""; 0], "{good}");
    }
}

#[test]
fn a_rule_that_another_always_limits_first_is_warned_of() {
    let narrow = "match: {methods: [POST], path: {exact: /a/b}}, key: [client_address], rate: 5/s";
    for tighter in [
        "key: [client_address], rate: 4/s",
        "key: [client_address: {ipv4: 24}], rate: 5/s",
        "match: {path: {prefix: /a}}, key: [client_address], rate: 5/s, strict: true",
        "match: {methods: [PUT, POST]}, key: [client_address], rate: 5/s, local_burst: 2",
    ] {
        for rules in [[narrow, tighter], [tighter, narrow]] {
            let (found, at) = (warnings(&rules), rules.iter().position(|rule| *rule == narrow).unwrap());
            assert_eq!(found.len(), 1, "{tighter}: {found:?}");
            assert!(
                found[0].starts_with(&format!("rules[{at}].match (r{at}): never limits: r{}", 1 - at)),
                "{found:?}"
            );
        }
    }
    for other in [
        "key: [client_address], rate: 4/s, burst: 6",
        "key: [client_address], rate: 6/s, burst: 4",
        "key: [client_address: {ipv6: 65}], rate: 5/s",
        "match: {path: {prefix: /a/b/}}, key: [client_address], rate: 1/s",
        "match: {methods: [GET]}, key: [client_address], rate: 1/s",
        "match: {hosts: [a.example]}, key: [client_address], rate: 1/s",
        "key: [client_address], rate: 4/s, min_share: {eu: 30}",
    ] {
        assert_eq!(warnings(&[narrow, other]), [""; 0], "{other}");
    }
    let strict = |algorithm: &str| format!("key: [client_address], strict: true, algorithm: {algorithm}");
    let refill_policies = [
        "sliding_window, rate: 5/m",
        "sliding_log, rate: 5/m",
        "leaky_bucket, rate: 5/s, queue: 4",
        "concurrency, limit: 5",
    ];
    for (i, refill_policy) in refill_policies.iter().enumerate() {
        for other in &refill_policies[i + 1..] {
            assert_eq!(warnings(&[&strict(refill_policy), &strict(other)]), [""; 0], "{refill_policy} and {other}");
        }
        assert_eq!(warnings(&[&strict(refill_policy), &strict(refill_policy)]).len(), 1, "{refill_policy} twice");
    }
    let deny = format!("{narrow}, on_sync_loss: deny");
    assert_eq!(warnings(&[&deny, "key: [client_address], rate: 4/s"]), [""; 0], "it fails closed");
}

#[test]
fn the_later_of_two_equal_rules_is_warned_of() {
    let same = "key: [client_address], rate: 5/s";
    let found = warnings(&[same, same, same]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("rules[1]") && found[1].starts_with("rules[2]"), "{found:?}");
}

/// The warnings about a document, in which `RULE` stands for a plain rule.
fn of_document(text: &str) -> Vec<String> {
    let text = text.replace("RULE", "name: r, key: [client_address], rate: 5/s");
    warnings_of(&Document::read(text.as_bytes(), Form::Yaml).unwrap())
}

#[test]
fn a_condition_that_excludes_itself_is_warned_of() {
    for (matches, warning) in [
        (
            "{headers: [{name: a, present: false}, {name: A, equals: b}]}",
            "rules[0].match (r0): never matches: its tests of header a exclude each other",
        ),
        (
            "{cookies: [{name: a, equals: b}, {name: a, equals: c}]}",
            "rules[0].match (r0): never matches: its tests of cookie a exclude each other",
        ),
        (
            "{claims: [{name: [a, b], equals: b}, {name: [a, b], present: false}]}",
            "rules[0].match (r0): never matches: its tests of JWT claim a.b exclude each other",
        ),
        (
            "{methods: [GET], any: [{methods: [PUT]}]}",
            "rules[0].match (r0): never matches: none of any can hold: no request is in both of its lists of methods",
        ),
        (
            "{methods: [GET], path: {exact: /a}, not: {path: {prefix: /}}}",
            "rules[0].match (r0): never matches: its not holds wherever the rest does",
        ),
        (
            "{any: [{methods: [GET]}, {methods: [PUT]}], not: {methods: [PUT, GET]}}",
            "rules[0].match (r0): never matches: its not holds wherever the rest does",
        ),
        (
            "{any: [{methods: [get]}, {routes: [a]}]}",
            "rules[0].match.any[0].methods (r0): \"get\" never matches: methods are compared to the letter, and \
             clients send them in capitals",
        ),
        (
            "{not: {query: [{name: a, equals: b}, {name: a, equals: c}]}}",
            "rules[0].match.not (r0): excludes nothing: its tests of query parameter a exclude each other",
        ),
    ] {
        assert_eq!(of_match(matches), [warning], "{matches}");
    }
    for good in [
        "{methods: [GET], any: [{methods: [PUT]}, {routes: [a]}]}",
        "{methods: [GET], not: {path: {prefix: /}, methods: [PUT]}}",
        "{path: {prefix: /}, not: {path: {prefix: /a}}}",
        "{any: [{methods: [GET]}, {methods: [PUT]}], not: {methods: [PUT]}}",
        "{headers: [{name: a, present: true}, {name: a, prefix: b}]}",
        "{headers: [{name: a, equals: b}], cookies: [{name: a, equals: c}, {name: A, equals: d}]}",
        "{claims: [{name: [a, b], equals: b}, {name: [a.b], equals: c}]}",
    ] {
        assert_eq!(of_match(good), [""; 0], "{good}");
    }
}

#[test]
fn lists_that_leave_nothing_to_a_rule_are_warned_of() {
    for (document, warning) in [
        (
            "{allow: [{methods: [GET]}], rules: [{RULE, match: {methods: [GET], path: {exact: /}}}]}",
            "rules[0].match (r): never counts: allow[0] holds wherever it does",
        ),
        (
            "{deny: [{path: {prefix: /a}}], rules: [{RULE, match: {path: {prefix: /a/b}}}]}",
            "rules[0].match (r): never limits: deny[0] holds wherever it does",
        ),
        (
            "{allow: [{methods: [GET, PUT]}], deny: [{methods: [PUT]}], rules: [{RULE}]}",
            "deny[0]: never refuses: allow[0] holds wherever it does",
        ),
        (
            "{deny: [{path: {exact: '/a?b'}}], rules: [{RULE}]}",
            "deny[0].path: \"/a?b\" never matches: the query is no part of the path",
        ),
        (
            "{allow: [{methods: [PUT], not: {methods: [PUT, GET]}}], rules: [{RULE}]}",
            "allow[0]: never matches: its not holds wherever the rest does",
        ),
    ] {
        assert_eq!(of_document(document), [warning], "{document}");
    }
    let apart = "{allow: [{methods: [GET]}], deny: [{methods: [PUT]}], rules: [{RULE, match: {methods: [POST]}}, \
                 {name: s, key: [host], rate: 1/s}]}";
    assert_eq!(of_document(apart), [""; 0]);
}

#[test]
fn tiers_that_never_apply_are_warned_of() {
    let of_tiers =
        |tiers: &str| of_document(&format!("rules: [{{RULE, match: {{methods: [GET]}}, tiers: [{tiers}]}}]"));
    for (tiers, warning) in [
        (
            "{name: a, when: {methods: [PUT]}, times: 2}",
            "rules[0].tiers[0].when (r): never applies: no request is in both of its lists of methods",
        ),
        (
            "{name: a, when: {routes: [x]}, times: 2}, {name: b, when: {routes: [x]}, times: 3}",
            "rules[0].tiers[1] (r): never applies: the tier \"a\" comes first",
        ),
        (
            "{name: a, when: {}, times: 2}",
            "rules[0].tiers (r): never applies itself: its tier \"a\" is for all its requests",
        ),
    ] {
        assert_eq!(of_tiers(tiers), [warning], "{tiers}");
    }
    assert_eq!(of_tiers("{name: a, when: {routes: [x]}, times: 2}"), [""; 0]);
    let of_keys = |tiers: &str| of_document(&format!("rules: [{{name: r, key: [host], rate: 5/s, tiers: [{tiers}]}}]"));
    for (tiers, warning) in [
        (
            "{name: a, keys: [x, y], times: 2}, {name: b, keys: [y], times: 3}",
            "rules[0].tiers[1] (r): never applies: the tier \"a\" comes first",
        ),
        (
            "{name: a, keys: [x, y], times: 2}, {name: b, when: {methods: [GET]}, keys: [z, y], times: 3}",
            "rules[0].tiers[1].keys (r): \"y\" never applies: the tier \"a\" has it, and comes first",
        ),
        (
            "{name: a, when: {methods: [GET]}, times: 2}, {name: b, when: {methods: [GET]}, keys: [x], times: 3}",
            "rules[0].tiers[1] (r): never applies: the tier \"a\" comes first",
        ),
    ] {
        assert_eq!(of_keys(tiers), [warning], "{tiers}");
    }
    for good in [
        "{name: a, keys: [x], times: 2}, {name: b, keys: [y], times: 3}",
        "{name: a, keys: [x], times: 2}, {name: b, when: {methods: [GET]}, times: 3}",
        "{name: a, when: {methods: [PUT]}, keys: [x], times: 2}, {name: b, keys: [x], times: 3}",
    ] {
        assert_eq!(of_keys(good), [""; 0], "{good}");
    }
    let never = "rules: [{RULE, enforced_percent: 0}]";
    assert_eq!(of_document(never), ["rules[0].enforced_percent (r): never limits: mode: shadow does the same"]);
}

#[test]
fn a_condition_that_a_client_can_evade_is_warned_of() {
    let found = of_match("{path: {exact: /login, case: exact, slashes: ignore}}");
    assert_eq!(
        found,
        ["rules[0].match.path.case (r0): a client gets past it with another spelling, as /LOGIN is of /login, \
          unless the upstream tells them apart: remove case, or set it to ignore"]
    );
    let found = of_match("{any: [{paths: [{exact: /a}, {prefix: /b, encoding: exact}]}]}");
    assert!(found[0].starts_with("rules[0].match.any[0].paths[1].encoding (r0): "), "{found:?}");
    assert_eq!(of_match("{methods: [GET], not: {path: {exact: /login, case: exact}}}"), [""; 0]);
    let found = of_document("deny: [{path: {prefix: /admin, slashes: exact}}]\nrules: [{RULE}]");
    assert!(found.len() == 1 && found[0].starts_with("deny[0].path.slashes: "), "{found:?}");
    let allowed = of_document("allow: [{path: {prefix: /pub, slashes: exact}}]\nrules: [{RULE}]");
    assert_eq!(allowed, [""; 0]);
    let found = warnings(&["key: [client_address, {header: Authorization}], rate: 5/s"]);
    assert!(
        found.len() == 1 && found[0].starts_with("rules[0].key[1] (r0): a client that sends it twice"),
        "{found:?}"
    );
    assert_eq!(warnings(&["key: [{header: authorization, duplicates: first}], rate: 5/s"]), [""; 0]);
}

#[test]
fn an_allow_list_of_every_client_is_warned_of() {
    for all in ["[0.0.0.0/0]", "[10.0.0.0/8, '::/0']"] {
        let found = of_document(&format!("allow: [{{addresses: {all}}}]\nrules: [{{RULE}}]"));
        assert!(found.iter().any(|line| line.starts_with("allow[0].addresses: every client")), "{found:?}");
    }
    let found = of_document("allow: [{addresses: [0.0.0.0/0], methods: [GET]}]\nrules: [{RULE}]");
    assert_eq!(found, [""; 0]);
}
