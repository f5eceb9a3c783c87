//! Different spellings of one path and of the same credentials, and values that are sent twice.

use super::*;

/// Paths that many upstreams take for /login.
const LOGINS: [&str; 9] = [
    "/login/",
    "/LOGIN",
    "/login;x=1",
    "/;a/login",
    "/login%20",
    "/%6cogin",
    "//login",
    "/Login;/?next=/",
    "/login%09;a//",
];

fn listed(list: &str, condition: &Value, sample: &Sample) -> Listed {
    super::listed(&json!({list: [condition]}), sample)
}

#[test]
fn only_the_written_spelling_of_a_path_is_allowed() {
    let condition = json!({"path": {"exact": "/login"}});
    let not = json!({"not": condition});
    for path in LOGINS {
        let has = &[("path", path)];
        assert!(holds(&condition, has), "{path}");
        assert!(holds(&not, has), "what may be another path is not let off: {path}");
        let sample = Sample::of(has);
        assert_eq!(listed("deny", &condition, &sample), Listed::Blocked, "{path}");
        assert_eq!(listed("allow", &condition, &sample), Listed::No, "{path}");
        assert_eq!(listed("allow", &not, &sample), Listed::No, "{path}");
    }
    let sample = Sample::of(&[("path", "/login?x")]);
    assert_eq!(listed("allow", &condition, &sample), Listed::Allowed);
    assert!(!holds(&not, &[("path", "/login?x")]));
    for other in ["/logins", "/login/x", "/log", "/login%2F", "/x;/login"] {
        assert!(!holds(&condition, &[("path", other)]), "{other}");
    }
    for (condition, path) in [
        (json!({"path": {"prefix": "/api/"}}), "/API"),
        (json!({"path": {"prefix": "/api/v1"}}), "/;x/api//V1beta"),
        (json!({"path": {"glob": "/users/*/posts/**"}}), "/Users/7;a/posts"),
        (json!({"path": {"glob": "/Users/*/"}}), "/users/7"),
        (json!({"path": {"exact": "/"}}), "//"),
        (json!({"path": {"exact": "/caf%C3%A9"}}), "/caf\u{e9}"),
        (json!({"path": {"exact": "/a;b"}}), "/A;b"),
    ] {
        assert!(holds(&condition, &[("path", path)]), "{condition} {path}");
    }
    assert!(!holds(&json!({"path": {"exact": "/a;b"}}), &[("path", "/a")]));
}

/// Paths that upstreams take for /login if they resolve dot segments once parameters are gone, as Tomcat and Jetty do.
const DOTTED: [&str; 7] = [
    "/x/%2e%2e;/login",
    "/x/..;a=b/login",
    "/x/..%3b/login",
    "/x/%2e;/../login",
    "/.;/login",
    "/login//..;/",
    "/x/../login",
];

#[test]
fn a_path_with_dot_segments_is_undecided() {
    let public = json!({"path": {"prefix": "/x/"}});
    for condition in [json!({"path": {"exact": "/login"}}), json!({"paths": [{"glob": "/log*"}]}), public] {
        for path in DOTTED {
            let has = &[("path", path)];
            assert!(holds(&condition, has) && holds(&json!({"not": condition}), has), "{condition} {path}");
            assert_eq!(listed("deny", &condition, &Sample::of(has)), Listed::Blocked, "{condition} {path}");
            assert_eq!(listed("allow", &condition, &Sample::of(has)), Listed::No, "{condition} {path}");
        }
    }
    let login = json!({"path": {"exact": "/login"}});
    for path in ["/...", "/x/.well-known/login", "/x/..a/login", "/x/a..;/login", "/x.;/login"] {
        assert!(!holds(&login, &[("path", path)]), "{path}");
    }
    for (field, path) in [("parameters", "/x/..;/login"), ("encoding", "/x/%2e%2e/login")] {
        let exact = json!({"path": {"exact": "/login", field: "exact"}});
        assert!(!holds(&exact, &[("path", path)]), "{exact} {path}");
    }
}

#[test]
fn a_method_that_a_header_may_override_is_undecided() {
    let deletes = json!({"methods": ["DELETE"], "method_override": ["X-HTTP-Method-Override", "x-method"]});
    for (method, header, value, deny, allow) in [
        ("POST", "x-http-method-override", "delete", Listed::Blocked, Listed::No),
        ("POST", "x-method", "PUT\nDELETE", Listed::Blocked, Listed::No),
        ("POST", "x-method", "put, Delete", Listed::Blocked, Listed::No),
        ("DELETE", "x-method", "GET", Listed::Blocked, Listed::No),
        ("DELETE", "x-method", "DELETE", Listed::Blocked, Listed::Allowed),
        ("POST", "x-method", "PUT", Listed::No, Listed::No),
        ("POST", "x-other", "DELETE", Listed::No, Listed::No),
    ] {
        let sample = Sample::of(&[("method", method), (header, value)]);
        assert_eq!(listed("deny", &deletes, &sample), deny, "{method} {value:?}");
        assert_eq!(listed("allow", &deletes, &sample), allow, "{method} {value:?}");
        assert_eq!(holds(&deletes, &[("method", method), (header, value)]), deny == Listed::Blocked);
    }
}

#[test]
fn an_operator_chooses_which_differences_count() {
    for (what, path) in
        [("case", "/LOGIN"), ("slashes", "/login/"), ("parameters", "/login;a"), ("encoding", "/%6cogin")]
    {
        let sample = Sample::of(&[("path", path)]);
        let ignores = json!({"path": {"exact": "/login", what: "ignore"}});
        assert_eq!(listed("allow", &ignores, &sample), Listed::Allowed, "{path}");
        assert!(!holds(&json!({"not": ignores}), &[("path", path)]));
        let exact = json!({"path": {"exact": "/login", what: "exact"}});
        assert_eq!(listed("deny", &exact, &sample), Listed::No, "{path}");
        assert!(!holds(&exact, &[("path", path)]), "{path}");
        assert!(holds(&json!({"not": exact}), &[("path", path)]));
    }
    let all = json!({"path": {"exact": "/login", "case": "exact", "slashes": "exact", "parameters": "exact",
                              "encoding": "exact"}});
    assert!(LOGINS.iter().all(|path| !holds(&all, &[("path", path)])));
}

#[test]
fn credentials_are_tested_in_one_form() {
    let spellings = ["Bearer sk_test_1", "bearer sk_test_1", "BEARER   sk_test_1 ", " bEARER\tsk_test_1"];
    for test in [
        json!({"equals": "Bearer sk_test_1"}),
        json!({"in": ["x", "bearer  sk_test_1"]}),
        json!({"prefix": "Bearer sk_test_"}),
        json!({"prefix": "Bearer  "}),
        json!({"prefix": "Bear"}),
        json!({"regex": "^Bearer sk_test_"}),
        json!({"regex": "^bearer sk_test_[0-9]$"}),
    ] {
        let mut test = test.clone();
        test["name"] = json!("Authorization");
        let condition = json!({"headers": [test]});
        for spelling in spellings {
            assert!(holds(&condition, &[("authorization", spelling)]), "{condition} {spelling:?}");
        }
        assert!(!holds(&condition, &[("authorization", "Basic sk_test_1")]), "{condition}");
    }
    let secret = json!({"headers": [{"name": "authorization", "equals": "Bearer aB"}]});
    assert!(!holds(&secret, &[("authorization", "Bearer ab")]), "a token's case counts");
}

// I9
#[test]
fn a_rule_may_pick_one_of_the_values_between_commas() {
    let sample = Sample::of(&[("plan", "gold, free")]);
    for (equals, duplicates, allow, deny) in [
        ("gold", "first", Listed::Allowed, Listed::Blocked),
        ("free", "first", Listed::No, Listed::No),
        ("gold", "last", Listed::No, Listed::No),
        ("free", "last", Listed::Allowed, Listed::Blocked),
        ("gold", "limit", Listed::No, Listed::Blocked),
        ("x", "limit", Listed::No, Listed::Blocked),
    ] {
        let condition = json!({"headers": [{"name": "plan", "equals": equals, "duplicates": duplicates}]});
        assert_eq!(listed("allow", &condition, &sample), allow, "{condition}");
        assert_eq!(listed("deny", &condition, &sample), deny, "{condition}");
    }
}

/// Envoy joins the lines of some headers, `user-agent` among them.
#[test]
fn each_line_of_a_header_is_tested_even_if_joined() {
    let (no, yes, unsure) =
        ((Listed::No, Listed::No), (Listed::Blocked, Listed::Allowed), (Listed::Blocked, Listed::No));
    let in_eight = json!(["p", "evil", "q", "r", "s", "t", "u", "v"]);
    for (name, test, value, lines, expected) in [
        ("x", "equals", json!("evil"), "good\nevil", unsure),
        ("x", "equals", json!("evil"), "evil\nevil", unsure),
        ("x", "equals", json!("a,b"), "a\nb", unsure),
        ("x", "equals", json!("a,b"), "a,b", yes),
        ("x", "equals", json!("c"), "a\nb", no),
        ("x", "prefix", json!("ev"), "good\nevil", unsure),
        ("x", "prefix", json!("ev"), "evil\nevil", yes),
        ("x", "in", in_eight.clone(), "a\nb\nevil", unsure),
        ("x", "regex", json!("^evil"), "good\nevil", unsure),
        ("x", "regex", json!("good"), "a good\nb good", yes),
        ("x", "regex", json!("evil"), "a\nb", no),
        ("x", "present", json!(false), "a\nb", no),
        ("user-agent", "prefix", json!("evil"), "good,evil/1", unsure),
        ("user-agent", "prefix", json!("good"), "good,evil/1", yes),
        ("user-agent", "equals", json!("evil"), "a,evil,b", unsure),
        ("user-agent", "in", in_eight, "good,evil", unsure),
        ("user-agent", "regex", json!("^evil"), "good,evil", unsure),
        ("user-agent", "prefix", json!("evil"), "Mozilla/5.0 (KHTML, evil)", no),
        ("user-agent", "prefix", json!("Mozilla"), "Mozilla/5.0 (iPhone12,1)", yes),
        ("user-agent", "present", json!(false), "good,evil", no),
        // A list has commas of its own.
        ("accept", "equals", json!("*/*"), "application/json,*/*", no),
    ] {
        let (sample, condition) = (Sample::of(&[(name, lines)]), json!({"headers": [{"name": name, test: value}]}));
        let (indexed, plain) = met(&rules(&vec![condition.clone(); 9]), &mut sample.clone());
        assert_eq!(indexed, plain, "{condition} {lines:?}");
        let found = (listed("deny", &condition, &sample), listed("allow", &condition, &sample));
        assert_eq!(found, expected, "{condition} {lines:?}");
    }
}
