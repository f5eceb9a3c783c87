//! Different spellings of one path and of the same credentials, and values that are sent twice.

use super::*;
use crate::Listed;
use proptest::prelude::*;
use std::format;
use std::string::String;

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
    let rule = json!({"name": "a", "key": ["client_address"], "rate": "1/s"});
    let document = json!({"rules": [rule], list: [condition]});
    let (errors, mut values) = (Errors::default(), Values::default());
    let rules = crate::document::read(&document, &errors);
    let (rules, mut sample) = (errors.into_result(rules).unwrap(), sample.clone());
    rules.listed(&mut Fetched::new(&mut sample, rules.attributes(), &mut values), &mut Bits::default())
}

#[test]
fn any_spelling_of_a_path_is_counted_and_refused_but_only_the_written_one_is_allowed() {
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

#[test]
fn an_operator_says_what_counts() {
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

#[test]
fn several_values_are_undecided_unless_the_rule_says_which_counts() {
    for (field, name, value) in [
        ("cookies", "cookie", "plan=gold; plan=free"),
        ("query", "path", "/?plan=gold&plan=free"),
        ("headers", "plan", "gold, free"),
    ] {
        let sample = Sample::of(&[(name, value)]);
        let test = |equals: &str, duplicates: Option<&str>| {
            let mut test = json!({"name": "plan", "equals": equals});
            test.as_object_mut().unwrap().extend(duplicates.map(|said| ("duplicates".into(), json!(said))));
            json!({field: [test]})
        };
        for (equals, duplicates, allow, deny) in [
            ("gold", Some("first"), Listed::Allowed, Listed::Blocked),
            ("free", Some("first"), Listed::No, Listed::No),
            ("gold", Some("last"), Listed::No, Listed::No),
            ("free", Some("last"), Listed::Allowed, Listed::Blocked),
            ("gold", Some("limit"), Listed::No, Listed::Blocked),
            ("x", Some("limit"), Listed::No, Listed::Blocked),
        ] {
            let condition = test(equals, duplicates);
            assert_eq!(listed("allow", &condition, &sample), allow, "{condition}");
            assert_eq!(listed("deny", &condition, &sample), deny, "{condition}");
        }
        if field != "headers" {
            assert_eq!(listed("allow", &test("gold", None), &sample), Listed::No, "{field}");
            assert_eq!(listed("deny", &test("free", None), &sample), Listed::Blocked, "{field}");
            assert_eq!(listed("deny", &test("x", None), &sample), Listed::No, "{field}");
        }
    }
}

proptest! {
    /// If the index missed a path, no rule would count it.
    #[test]
    fn the_index_finds_a_path_however_it_is_written(
        tests in prop::collection::vec(
            ("(exact|prefix|glob)", "/[aA/;%2041*]{0,7}", prop::option::of("(case|slashes|parameters|encoding)")),
            1..9,
        ),
        paths in prop::collection::vec("/[aA/;%2041*]{0,9}", 1..9),
    ) {
        let condition = |(kind, text, ignored): (String, String, Option<String>)| {
            let mut path = json!({kind: text});
            if let Some(what) = ignored.filter(|what| what != "parameters" || !text.contains(';')) {
                path[what] = json!("ignore");
            }
            json!({"path": path})
        };
        let rules = rules(&tests.into_iter().map(condition).collect::<Vec<_>>());
        for path in paths {
            let (indexed, plain) = met(&rules, &mut Sample::of(&[("path", &path)]));
            prop_assert_eq!(indexed, plain, "{}", format!("{path} {rules:?}"));
        }
    }
}
