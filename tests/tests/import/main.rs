//! `weir-sync import ratelimit` writes rules that decide as the configuration says: each of its features by an example
//! that is played to an edge, and all of them by a model of how envoyproxy/ratelimit looks a descriptor up.

mod model;
mod script;

use std::fs;
use std::path::Path;

use serde_json::Value;
use weir_sync::check::warn::warnings;
use weir_sync::document::{Document, Form};
use weir_sync::import::ratelimit;
use weir_tests::examples::edge::play;

/// The rules for a configuration.
fn rules(yaml: &str) -> String {
    ratelimit(&[("config.yaml", yaml)]).unwrap_or_else(|e| panic!("{e}\n{yaml}"))
}

/// The errors of a configuration, which each name a line.
fn errors(yaml: &str) -> Vec<String> {
    let found = ratelimit(&[("config.yaml", yaml)]).expect_err(yaml);
    found.lines().map(str::to_owned).collect()
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
fn a_limit_with_a_value_counts_that_value_and_one_without_counts_each_apart() {
    decides(
        "domain: shop\ndescriptors:\n- {key: plan, value: free, rate_limit: {unit: minute, requests_per_unit: 2}}\n\
         - {key: user, rate_limit: {unit: second, requests_per_unit: 4}}\n",
        "shop (plan, free) x 3 -> 2 allow, 1 limit by shop_plan-free\n\
         shop (plan, gold) x 9 -> 9 allow\n\
         shop (user, ann) x 5 -> 4 allow, 1 limit by shop_user\n\
         shop (user, bob) x 5 -> 4 allow, 1 limit\n\
         shop (user, ) x 5 -> 4 allow, 1 limit\n\
         bank (plan, free) x 3 -> 3 allow\n\
         shop (user, ann) at 1.02s x 5 -> 4 allow, 1 limit\n",
    );
}

#[test]
fn the_most_specific_sibling_takes_a_descriptor() {
    decides(
        "domain: edge\ndescriptors:\n- {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 3}}\n\
         - {key: remote_address, value: 192.0.2.5, rate_limit: {unit: hour, requests_per_unit: 0}}\n\
         - {key: remote_address, value: 192.0.2.6, rate_limit: {unit: hour, requests_per_unit: 5}}\n\
         - {key: remote_address, value: 192.0.2.7}\n",
        "edge (remote_address, 192.0.2.1) x 4 -> 3 allow, 1 limit by edge_remote_address\n\
         edge (remote_address, 2001:db8::1) x 4 -> 3 allow, 1 limit\n\
         edge (remote_address, 2001:db8::2) x 4 -> 3 allow, 1 limit\n\
         edge (remote_address, 192.0.2.5) x 2 -> 2 limit by edge_remote_address-192-0-2-5\n\
         edge (remote_address, 192.0.2.6) x 6 -> 5 allow, 1 limit by edge_remote_address-192-0-2-6\n\
         edge (remote_address, 192.0.2.7) x 9 -> 9 allow\n",
    );
}

#[test]
fn a_descriptor_has_as_many_entries_as_the_way_and_in_its_order() {
    decides(
        "domain: d\ndescriptors:\n- key: a\n  value: x\n  rate_limit: {unit: hour, requests_per_unit: 1}\n  descriptors:\n\
         \x20 - key: b\n    descriptors:\n    - {key: \"c,d\", rate_limit: {unit: hour, requests_per_unit: 2}}\n",
        "d (a, x) x 2 -> 1 allow, 1 limit by d_a-x\n\
         d (a, x)(b, y) x 5 -> 5 allow\n\
         d (a, x)(b, y)(c,d, z) x 3 -> 2 allow, 1 limit by d_a-x_b_c-d\n\
         d (a, x)(b, y2)(c,d, z) x 3 -> 2 allow, 1 limit\n\
         d (a, x)(b, y)(c, z)(d, z) x 5 -> 5 allow\n\
         d (a, w)(b, y)(c,d, z) x 5 -> 5 allow\n\
         d (b, y)(a, x) x 5 -> 5 allow\n\
         d (b, y)(a, x)(c,d, z) x 5 -> 5 allow\n",
    );
}

#[test]
fn a_value_without_what_follows_hides_the_key_without_one() {
    decides(
        "domain: d\ndescriptors:\n- {key: a, value: x}\n- key: a\n  descriptors:\n\
         \x20 - {key: b, value: y, rate_limit: {unit: hour, requests_per_unit: 7}}\n\
         \x20 - {key: b, value: \"z*\", rate_limit: {unit: hour, requests_per_unit: 7}}\n\
         \x20 - {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
        "d (a, x)(b, w) x 5 -> 5 allow\n\
         d (a, w)(b, w) x 2 -> 1 allow, 1 limit by d_a_b\n\
         d (a, w)(b, y) x 8 -> 7 allow, 1 limit by d_a_b-y\n\
         d (a, x)(b, y) x 9 -> 9 allow\n\
         d (a, w)(b, zz) x 8 -> 7 allow, 1 limit by d_a_b-z-\n",
    );
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
            &format!(
                "domain: d\ndescriptors:\n- {{key: a, rate_limit: {{unit: {unit}, requests_per_unit: 4}}}}\n"
            ),
            &format!(
                "d (a, x) x 6 -> 4 allow, 2 limit\nd (a, x) at {within} -> 1 limit\nd (a, x) at {after} x 6 -> 4 allow, 2 limit\n"
            ),
        );
    }
}

#[test]
fn shadow_mode_limits_nobody_and_counts() {
    decides(
        "domain: d\ndescriptors:\n- key: service\n  descriptors:\n\
         \x20 - {key: user, value: ann, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         \x20 - {key: user, value: bob, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
        "d (service, auth)(user, ann) x 5 -> 5 allow\n  would be limited: 4\n\
         d (service, auth)(user, bob) x 3 -> 2 allow, 1 limit\n\
         d (service, shop)(user, bob) x 3 -> 2 allow, 1 limit\n",
    );
}

#[test]
fn unlimited_is_counted_by_no_rule() {
    let yaml = "domain: d\ndescriptors:\n- {key: ldap, rate_limit: {unlimited: true}}\n\
                - {key: azure, rate_limit: {unit: minute, requests_per_unit: 1}}\n\
                - {key: azure, value: own, rate_limit: {unlimited: true}}\n";
    decides(
        yaml,
        "d (ldap, x) x 9 -> 9 allow\nd (azure, x) x 2 -> 1 allow, 1 limit\nd (azure, own) x 9 -> 9 allow\n",
    );
    assert!(rules(yaml).contains("# config.yaml:3: ldap\n# It is unlimited, so no rule counts it.\n"));
}

#[test]
fn a_limit_replaces_those_of_other_descriptors_in_the_request() {
    decides(
        "domain: d\ndescriptors:\n- key: kind\n  value: read\n  descriptors:\n\
         \x20 - {key: user, rate_limit: {name: reads, unit: hour, requests_per_unit: 2}}\n\
         - key: path\n  value: /a;b,c=d%\n  descriptors:\n\
         \x20 - {key: user, rate_limit: {unit: hour, requests_per_unit: 4, replaces: [{name: reads}]}}\n\
         - key: page\n  value: /p*/q\n  rate_limit: {unlimited: true, replaces: [{name: reads}, {name: nobody}]}\n",
        "d (kind, read)(user, ann) & (path, /a;b,c=d%)(user, ann) x 9 -> 9 allow\n\
         d (path, /a;b,c=d%)(user, ann) & (kind, read)(user, ann) x 5 -> 4 allow, 1 limit by d_path--a-b-c-d-_user\n\
         d (kind, read)(user, ann) & (page, /p,%2C/q) x 9 -> 9 allow\n\
         d (kind, read)(user, ann) & (page, /p/r) & (page, /p1/q) x 9 -> 9 allow\n\
         d (kind, read)(user, ann) & (page, /p/r) & (path, /a)(user, ann) x 3 -> 2 allow, 1 limit by reads\n\
         d (kind, read)(user, bob) & (path, /a;b,c=d%)(user, ann)(x, y) x 3 -> 2 allow, 1 limit by reads\n\
         d (kind, read)(user, eve) x 3 -> 2 allow, 1 limit by reads\n",
    );
}

#[test]
fn wildcards_match_in_the_order_they_are_written() {
    decides(
        "domain: d\ndescriptors:\n- {key: path, value: \"/api/*/do\", rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: path, value: \"/api/*\", rate_limit: {unit: hour, requests_per_unit: 2}}\n\
         - {key: path, value: \"*.(png\", rate_limit: {unit: hour, requests_per_unit: 3}}\n\
         - {key: path, value: /api/v1/do, rate_limit: {unit: hour, requests_per_unit: 4}}\n\
         - {key: path, value: \"img*\", rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: path, rate_limit: {unit: hour, requests_per_unit: 5}}\n",
        "d (path, /api/7/do) x 2 -> 1 allow, 1 limit by d_path--api---do\n\
         d (path, /api/8/do) x 2 -> 1 allow, 1 limit\n\
         d (path, /api/) x 3 -> 2 allow, 1 limit by d_path--api--\n\
         d (path, /api/7/done) x 3 -> 2 allow, 1 limit by d_path--api--\n\
         d (path, a.(png) x 4 -> 3 allow, 1 limit by d_path----png\n\
         d (path, /api/v1/do) x 5 -> 4 allow, 1 limit by d_path--api-v1-do\n\
         d (path, img.(png) x 4 -> 3 allow, 1 limit by d_path----png\n\
         d (path, img) x 2 -> 1 allow, 1 limit by d_path-img-\n\
         d (path, /) x 6 -> 5 allow, 1 limit by d_path\n",
    );
}

#[test]
fn a_wildcard_may_have_several_stars() {
    decides(
        "domain: d\ndescriptors:\n- {key: route, value: /v*/of/*/do, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: name, value: \"*-test-*\", share_threshold: true, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
        "d (route, /v1/of/7/do) x 2 -> 1 allow, 1 limit by d_route--v--of---do\n\
         d (route, /v2/of/7/do) x 2 -> 1 allow, 1 limit\n\
         d (route, /v/of//do) x 2 -> 1 allow, 1 limit\n\
         d (route, /v2/of/do) x 9 -> 9 allow\n\
         d (route, /v1/of/7/done) x 9 -> 9 allow\n\
         d (route, x/v1/of/7/do) x 9 -> 9 allow\n\
         d (name, a-test-b) -> 1 allow\nd (name, -test-) x 2 -> 1 allow, 1 limit\n\
         d (name, atestb) x 9 -> 9 allow\n",
    );
}

#[test]
fn entries_without_values_count_each_combination() {
    decides(
        "domain: d\ndescriptors:\n- key: route\n  value_to_metric: true\n  descriptors:\n  - key: method\n    value_to_metric: true\n\
         \x20   descriptors:\n    - {key: subject, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}\n",
        "d (route, a)(method, GET)(subject, 1) x 3 -> 2 allow, 1 limit by d_route_method_subject\n\
         d (route, b)(method, GET)(subject, 1) x 3 -> 2 allow, 1 limit\n\
         d (route, a)(method, PUT)(subject, 1) x 3 -> 2 allow, 1 limit\n\
         d (route, a)(method, GET)(subject, 2) x 3 -> 2 allow, 1 limit\n\
         d (route, a)(method, GET) x 9 -> 9 allow\n",
    );
}

#[test]
fn texts_may_look_like_something_else_to_yaml() {
    decides(
        "---\ndomain: 7\ndescriptors:\n- {key: code, value: 404, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: code, value: 1.50, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: code, value: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: code, value: 0x10, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: code, value: ~, rate_limit: {unit: hour, requests_per_unit: 2}}\n\
         - {key: 1, rate_limit: {unit: hour, requests_per_unit: 1, name: 5}}\n\
         - {key: no, value: No, rate_limit: {unit: hour, requests_per_unit: 1, name: \"null\"}}\n",
        "7 (code, 404) x 2 -> 1 allow, 1 limit by 7_code-404\n7 (code, 1.50) x 2 -> 1 allow, 1 limit by 7_code-1-50\n\
         7 (code, true) x 2 -> 1 allow, 1 limit by 7_code-true\n7 (code, 0x10) x 2 -> 1 allow, 1 limit by 7_code-0x10\n\
         7 (code, x) x 3 -> 2 allow, 1 limit by 7_code\n7 (1, x) x 2 -> 1 allow, 1 limit by 5\n\
         7 (no, No) x 2 -> 1 allow, 1 limit by null\n",
    );
}

#[test]
fn a_limit_that_is_replaced_is_replaced_by_several_and_may_replace_itself() {
    decides(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {name: a, unit: hour, requests_per_unit: 1}}\n\
         - {key: b, rate_limit: {name: b, unit: hour, requests_per_unit: 2, replaces: [{name: a}]}}\n\
         - {key: c, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: a}, {name: b}]}}\n\
         - {key: a, value: x, rate_limit: {name: a, unit: hour, requests_per_unit: 1}}\n",
        "d (a, 1) & (b, 1) x 9 -> 9 allow\nd (a, x) & (b, 1) x 9 -> 9 allow\n\
         d (b, 1) & (a, 1) x 3 -> 2 allow, 1 limit by b\n\
         d (b, 1) & (c, 1) x 9 -> 9 allow\n\
         d (a, 1) & (b, 1) & (c, 1) x 9 -> 9 allow\n\
         d (a, 1) & (d, 1) x 2 -> 1 allow, 1 limit by a\n\
         d (c, 1) & (a, 1) x 3 -> 3 allow\n  would be limited: 2\n",
    );
}

#[test]
fn share_threshold_counts_what_a_wildcard_matches_together() {
    decides(
        "domain: d\ndescriptors:\n- {key: files, value: \"f/*\", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}\n\
         - {key: apart, value: \"f/*\", share_threshold: false, rate_limit: {unit: hour, requests_per_unit: 2}}\n\
         - key: route\n  value: \"api/*\"\n  share_threshold: true\n  descriptors:\n\
         \x20 - {key: method, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
        "d (files, f/a) -> 1 allow\nd (files, f/b) -> 1 allow\nd (files, f/c) -> 1 limit\n\
         d (apart, f/a) x 3 -> 2 allow, 1 limit\nd (apart, f/b) x 3 -> 2 allow, 1 limit\n\
         d (route, api/a)(method, GET) -> 1 allow\nd (route, api/b)(method, GET) x 2 -> 1 allow, 1 limit\n\
         d (route, api/a)(method, PUT) x 3 -> 2 allow, 1 limit\n",
    );
}

#[test]
fn what_is_lost_without_harm_is_said() {
    let rules = rules(
        "domain: d\ndescriptors:\n- {key: a, detailed_metric: true, metadata: {x: [1]}, rate_limit: {unit: day, requests_per_unit: 1}}\n\
         - {key: b, shadow_mode: true, descriptors: [{key: c, value_to_metric: true}]}\n",
    );
    for line in [
        "# warning: config.yaml:3: values are not in Weir's metrics",
        "# warning: config.yaml:3: metadata is left out",
        "# warning: config.yaml:4: shadow_mode without a rate_limit says nothing",
        "# warning: config.yaml:4: values are not in Weir's metrics",
    ] {
        assert!(rules.contains(line), "no `{line}` in\n{rules}");
    }
}

#[test]
fn several_files_may_be_of_one_domain() {
    let limit = |domain: &str, key: &str| {
        format!(
            "domain: {domain}\ndescriptors:\n- {{key: {key}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n"
        )
    };
    let (a, b, c) = (limit("d", "a"), limit("e", "a"), limit("d", "b"));
    let rules = ratelimit(&[("1.yaml", &a), ("2.yaml", &b), ("3.yaml", &c)]).unwrap();
    for name in
        ["# 1.yaml:3: a\n- name: d_a\n", "# 2.yaml:3: a\n- name: e_a\n", "# 3.yaml:3: b\n- name: d_b\n"]
    {
        assert!(rules.contains(name), "{rules}");
    }
    assert_eq!(
        ratelimit(&[("1.yaml", &a), ("2.yaml", &a)]).unwrap_err(),
        "2.yaml:3: expected each key and value once in a list, found them at 1.yaml:3, too"
    );
}

#[test]
fn names_are_those_of_rules() {
    let (long, limit) = ("x".repeat(100), "rate_limit: {unit: hour, requests_per_unit: 1}");
    let rules = rules(&format!(
        "domain: D\u{e9}\ndescriptors:\n- {{key: a b, {limit}}}\n- {{key: a.b, {limit}}}\n\
         - {{key: {long}, value: 1, {limit}}}\n- {{key: {long}, value: 2, {limit}}}\n"
    ));
    let names: Vec<_> = rules.lines().filter_map(|line| line.strip_prefix("- name: ")).collect();
    let (first, second) = (format!("d-_{}", &long[..61]), format!("d-_{}-2", &long[..59]));
    assert_eq!(names, ["d-_a-b", "d-_a-b-2", &first, &second], "{rules}");
}

#[test]
fn what_rules_cannot_say_is_refused_at_its_line() {
    let one = |descriptor: &str| errors(&format!("domain: d\ndescriptors:\n- {descriptor}\n"));
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    for (descriptor, expected) in [
        (format!("{{key: \"a*\", {limit}}}"), "config.yaml:3: key: expected a key without *"),
        (format!("{{value: a, {limit}}}"), "config.yaml:3: key: missing"),
        (format!("{{key: a, quota_mode: true, {limit}}}"), "config.yaml:3: quota_mode: "),
        (format!("{{key: a, value: b, share_threshold: true, {limit}}}"), "config.yaml:3: share_threshold: "),
        (
            "{key: a, rate_limit: {unit: eon, requests_per_unit: 1}}".into(),
            "config.yaml:3: unit: expected one of",
        ),
        ("{key: a, rate_limit: {requests_per_unit: 1}}".into(), "config.yaml:3: unit: missing"),
        ("{key: a, rate_limit: {unit: day}}".into(), "config.yaml:3: requests_per_unit: missing"),
        ("{key: a, rate_limit: {unit: day, unlimited: true}}".into(), "config.yaml:3: unit: expected none"),
        (
            "{key: a, rate_limit: {unit: day, requests_per_unit: 1000001}}".into(),
            "config.yaml:3: requests_per_unit: expected at most 1000000",
        ),
        (
            "{key: a, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{}]}}".into(),
            "config.yaml:3: replaces: expected the name",
        ),
        (
            "{key: a, rate_limit: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}]}}".into(),
            "config.yaml:3: replaces: expected another",
        ),
        (format!("{{key: a, descriptors: [{{key: a, {limit}}}]}}"), "config.yaml:3: a key comes twice"),
        (
            format!("{{key: a, value: \"*{}\", {limit}}}", "x".repeat(300)),
            "config.yaml:3: the rule for it cannot be written: rules[0].match.claims[2].regex: ",
        ),
        ("{key: a}".into(), "expected a rate_limit: "),
    ] {
        let found = one(&descriptor);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{descriptor}: {found:?}");
    }
    let several = errors("domain: d\ndescriptors:\n- {value: a}\n- {key: \"*\"}\n- {key: a}\n- {key: a}\n");
    assert_eq!(several.len(), 3, "{several:?}");
    let hidden = errors(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {name: n, unit: day, requests_per_unit: 1}}\n\
         - {key: b, value: x}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: n}]}}\n",
    );
    assert!(hidden.len() == 1 && hidden[0].starts_with("config.yaml:5: replaces: a sibling"), "{hidden:?}");
}

#[test]
fn what_is_no_configuration_is_refused() {
    for (yaml, expected) in [
        ("", "config.yaml: domain: missing"),
        ("domain: ''\n", "config.yaml: domain: missing"),
        ("domain: d\ndescriptors: [", "config.yaml: expected a configuration of envoyproxy/ratelimit: "),
        ("domain: d\ndescriptors:\n- {key: a, rat_limit: {}}\n", "config.yaml: expected a configuration of"),
        (
            "domain: d\ndescriptors:\n- {key: a, rate_limit: {requests_per_unit: -1}}\n",
            "config.yaml: expected a",
        ),
    ] {
        let found = errors(yaml);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{yaml}: {found:?}");
    }
    assert!(errors("domain: d\ndescriptors:\n- {key: a, rat_limit: {}}\n")[0].contains("line 3"));
}

/// The block in `language` of the page's chapter.
fn block<'a>(chapter: &'a str, language: &str) -> &'a str {
    let begin = format!("```{language}\n");
    let block = chapter.split_once(&begin).and_then(|(_, rest)| rest.split_once("```"));
    block.expect("an example").0
}

#[test]
fn the_example_in_the_page_decides_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gateway.md");
    let page = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (_, chapter) = page.split_once("\n## Coming from envoyproxy/ratelimit\n").expect("the chapter");
    decides(block(chapter, "yaml"), block(chapter, "requests"));
}
