//! Compares compiled conditions, and the index, with a model that reads a condition's JSON again for each request.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use std::borrow::{Cow, ToOwned};

/// Result of `condition` for the request, by the definition in docs/rules.md.
fn naive(condition: &Value, has: &BTreeMap<String, Vec<u8>>) -> Holds {
    let fields = condition.as_object().unwrap().iter();
    fields.map(|(field, value)| field_holds(condition, field, value, has)).min().unwrap_or(Holds::Yes)
}

/// An attribute as text; bytes that are not UTF-8 become U+FFFD, which no condition has.
fn text<'a>(has: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Option<Cow<'a, str>> {
    has.get(name).map(|bytes| String::from_utf8_lossy(bytes))
}

fn field_holds(condition: &Value, field: &str, value: &Value, has: &BTreeMap<String, Vec<u8>>) -> Holds {
    let list = || value.as_array().unwrap().iter();
    let target = text(has, "path");
    let path = target.as_deref().map(|path| path.split('?').next().unwrap());
    let every = |holds: &dyn Fn(&Value) -> Holds| list().map(holds).min().unwrap();
    let is_one = |name: &str| Holds::of(list().any(|one| text(has, name).as_deref() == one.as_str()));
    match field {
        "methods" => {
            let sent = is_one("method");
            let overrides = text(has, "method-x").unwrap_or_default();
            let mut overrides = overrides.split(['\n', ',']).filter(|method| !method.is_empty());
            let is_one = |method: &str| list().any(|one| one.as_str().unwrap().eq_ignore_ascii_case(method));
            let may_override = condition.get("method_override").is_some();
            if may_override && overrides.any(|method| Holds::of(is_one(method)) != sent) { Holds::Unsure } else { sent }
        }
        "method_override" => Holds::Yes,
        "routes" => is_one("route"),
        "hosts" => text(has, "host").map_or(Holds::No, |host| {
            let host = host.split(':').next().unwrap().to_lowercase();
            let host = host.strip_suffix('.').unwrap_or(&host);
            if host.split('.').any(|label| !label.chars().all(char::is_alphanumeric) || label.is_empty()) {
                return Holds::Unsure;
            }
            Holds::of(list().any(|asked| match asked.as_str().unwrap().strip_prefix('*') {
                Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
                None => host == asked.as_str().unwrap(),
            }))
        }),
        "path" => path.map_or(Holds::No, |path| path_holds(value, path)),
        "paths" => path.map_or(Holds::No, |path| list().map(|test| path_holds(test, path)).max().unwrap()),
        "headers" => every(&|test| header_holds(test, text(has, test["name"].as_str().unwrap()).as_deref())),
        "cookies" => every(&|test| {
            let lines = text(has, "cookie").unwrap_or_default();
            let cookies = lines.split('\n').flat_map(|line| line.split("; "));
            values_hold(test, cookies.filter_map(|pair| pair.split_once('=')))
        }),
        "claims" => every(&|test| {
            let name = format!("claim {}", test["name"][0].as_str().unwrap());
            value_holds(test, text(has, &name).as_deref())
        }),
        "query" => every(&|test| {
            let query = target.as_deref().and_then(|path| path.split_once('?')).map_or("", |(_, query)| query);
            values_hold(test, query.split('&').filter_map(|pair| pair.split_once('=')))
        }),
        "addresses" => Holds::of(text(has, "address").is_some_and(|address| {
            let address: core::net::Ipv4Addr = address.parse().unwrap();
            list().any(|network| {
                let (network, bits) = network.as_str().unwrap().split_once('/').unwrap();
                let network: core::net::Ipv4Addr = network.parse().unwrap();
                u64::from(address.to_bits() ^ network.to_bits()) >> (32 - bits.parse::<u32>().unwrap()) == 0
            })
        })),
        "any" => list().map(|condition| naive(condition, has)).max().unwrap(),
        "not" => !naive(value, has),
        other => panic!("{other}"),
    }
}

/// `Yes` if the test holds when only the ignored differences are folded away, `Unsure` if it holds when those are too
/// that the test leaves open.
fn path_holds(test: &Value, path: &str) -> Holds {
    let field = |name: &str| test[name].as_str();
    let ignored = ["case", "slashes", "parameters"].map(|name| field(name) == Some("ignore"));
    let open = ["case", "slashes", "parameters"].map(|name| field(name) != Some("exact"));
    let holds = |folded: [bool; 3]| {
        let path = folded_by(path, folded);
        let paths = [path.clone(), path + "/"];
        let paths = if folded[1] { &paths[..] } else { &paths[..1] };
        let asked = |kind: &str| Some(folded_by(field(kind)?, folded));
        if let Some(exact) = asked("exact") {
            return paths[0] == exact;
        }
        if let Some(mut prefix) = asked("prefix") {
            if field("prefix").unwrap().ends_with('/') && !prefix.ends_with('/') {
                prefix.push('/');
            }
            return paths.iter().any(|path| path.starts_with(&prefix));
        }
        let glob = asked("glob").unwrap();
        paths.iter().any(|path| glob::tests::naive(glob.as_bytes(), path.as_bytes(), false))
    };
    if folded_by(path, open).split('/').any(|segment| matches!(segment, "." | "..")) {
        Holds::Unsure
    } else if holds(ignored) {
        Holds::Yes
    } else if holds(open) {
        Holds::Unsure
    } else {
        Holds::No
    }
}

fn folded_by(path: &str, [case, slashes, parameters]: [bool; 3]) -> String {
    let path = if case { path.to_lowercase() } else { path.into() };
    let mut folded = String::new();
    for (n, written) in path.split('/').enumerate() {
        let segment = if parameters { written.split(';').next().unwrap() } else { written };
        if n > 0 && !(segment.is_empty() && (slashes || written != segment)) {
            folded.push('/');
        }
        folded.push_str(segment);
    }
    if folded.is_empty() { "/".into() } else { folded }
}

/// The result for a header: for each line and for all as one text, or for the values that commas separate.
fn header_holds(test: &Value, lines: Option<&str>) -> Holds {
    let Some(lines) = lines else { return value_holds(test, None) };
    let values = |text: &str| values_hold(test, text.split(',').map(|value| (test["name"].as_str().unwrap(), value)));
    let joined = lines.replace('\n', ",");
    if test.get("duplicates").is_some() {
        return values(&joined);
    }
    let first = value_holds(test, Some(&joined));
    let is_alike = !lines.contains('\n') || lines.split('\n').all(|line| value_holds(test, Some(line)) == first);
    if is_alike { first } else { Holds::Unsure }
}

/// The result for several values of one name; undecided if they differ and the test does not pick one.
fn values_hold<'a>(test: &Value, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Holds {
    let values: Vec<_> = pairs.filter(|(name, _)| *name == test["name"]).map(|(_, value)| value).collect();
    let results: Vec<_> = values.iter().map(|value| value_holds(test, Some(value))).collect();
    match (results.first(), results.last()) {
        (None, _) | (_, None) => value_holds(test, None),
        (_, Some(last)) if test["duplicates"] == "last" => *last,
        (Some(first), _) if test["duplicates"] == "first" => *first,
        _ if results.len() > 1 && (test["duplicates"] == "limit" || test.get("regex").is_some()) => Holds::Unsure,
        (Some(first), _) => {
            if results.iter().all(|result| result == first) {
                *first
            } else {
                Holds::Unsure
            }
        }
    }
}

fn value_holds(test: &Value, value: Option<&str>) -> Holds {
    let test = test.as_object().unwrap();
    let is_kind = |kind: &&String| !["name", "duplicates"].contains(&kind.as_str());
    let (kind, asked) = test.iter().find(|(kind, _)| is_kind(kind)).unwrap();
    Holds::of(match (kind.as_str(), value) {
        ("present", value) => asked == value.is_some(),
        (_, None) => false,
        ("equals", Some(value)) => asked == value,
        ("in", Some(value)) => asked.as_array().unwrap().iter().any(|asked| asked == value),
        ("prefix", Some(value)) => value.starts_with(asked.as_str().unwrap()),
        (_, Some(value)) if value.contains('\u{fffd}') => return Holds::Unsure,
        // The only expression here is ^a.$.
        (_, Some(value)) => value.starts_with('a') && value.len() == 2,
    })
}

fn list(items: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(items, 1..4).prop_map(Value::from)
}

fn one(texts: &'static [&'static str]) -> impl Strategy<Value = Value> {
    select(texts).prop_map(Value::from)
}

fn path_test() -> impl Strategy<Value = Value> {
    let choice = || prop::option::weighted(0.3, select(vec!["exact", "ignore"]));
    let kinds = select(vec!["exact", "prefix", "glob"]);
    (kinds, "/[abA/]{0,4}", "(\\*{1,2}[ab/]{0,2}){0,2}", [choice(), choice(), choice()]).prop_map(
        |(kind, head, tail, choices)| {
            let mut test = json!({kind: if kind == "glob" { head + &tail } else { head }, "encoding": "exact"});
            for (name, choice) in ["case", "slashes", "parameters"].into_iter().zip(choices) {
                test.as_object_mut().unwrap().extend(choice.map(|choice| (name.into(), json!(choice))));
            }
            test
        },
    )
}

fn value_test() -> impl Strategy<Value = Value> {
    let value = || "[ab]{1,2}";
    (
        select(vec!["x", "y"]),
        prop_oneof![
            value().prop_map(|v| ("equals", json!(v))),
            value().prop_map(|v| ("prefix", json!(v))),
            prop::collection::vec(value(), 1..3).prop_map(|v| ("in", json!(v))),
            any::<bool>().prop_map(|v| ("present", json!(v))),
            Just(("regex", json!("^a.$"))),
        ],
    )
        .prop_map(|(name, (kind, value))| json!({"name": name, kind: value}))
}

fn test_of_several() -> impl Strategy<Value = Value> {
    let duplicates = prop::option::weighted(0.3, select(vec!["first", "last", "limit"]));
    (value_test(), duplicates).prop_map(|(mut test, duplicates)| {
        test.as_object_mut().unwrap().extend(duplicates.map(|which| ("duplicates".into(), json!(which))));
        test
    })
}

fn claim_test() -> impl Strategy<Value = Value> {
    value_test().prop_map(|mut test| {
        test["name"] = json!([test["name"]]);
        test
    })
}

fn clause() -> impl Strategy<Value = Value> {
    let network = one(&["10.0.0.0/30", "10.0.0.2/32", "10.0.0.0/31", "0.0.0.0/0"]);
    let hosts = one(&["a", "b.a", "*.a", "*.b.a", "*.c"]);
    let field = prop_oneof![
        list(one(&["GET", "PUT"])).prop_map(|v| ("methods", v)),
        list(one(&["r", "s"])).prop_map(|v| ("routes", v)),
        list(hosts).prop_map(|v| ("hosts", v)),
        path_test().prop_map(|v| ("path", v)),
        list(path_test()).prop_map(|v| ("paths", v)),
        list(test_of_several()).prop_map(|v| ("headers", v)),
        list(test_of_several()).prop_map(|v| ("cookies", v)),
        list(test_of_several()).prop_map(|v| ("query", v)),
        list(claim_test()).prop_map(|v| ("claims", v)),
        list(network).prop_map(|v| ("addresses", v)),
    ];
    prop::collection::vec(field, 1..4).prop_map(|fields| {
        let mut clause: Value = fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        if clause.get("path").is_some() {
            clause.as_object_mut().unwrap().remove("paths");
        }
        // Some methods may be overridden.
        if clause.get("methods").is_some_and(|methods| methods[0] == "PUT") {
            clause["method_override"] = json!(["Method-X"]);
        }
        clause
    })
}

fn condition() -> impl Strategy<Value = Value> {
    (clause(), prop::option::weighted(0.2, list(clause())), prop::option::weighted(0.2, clause())).prop_map(
        |(mut condition, any, not)| {
            for (name, value) in [("any", any), ("not", not)] {
                condition.as_object_mut().unwrap().extend(value.map(|value| (name.into(), value)));
            }
            condition
        },
    )
}

/// Each attribute that a request may have, how often it has it, and its values. A `?` in `x` and `y` stands for a byte
/// that is not UTF-8.
const ATTRIBUTES: [(&str, f64, &str); 11] = [
    ("method", 0.9, "GET|PUT|get"),
    ("path", 0.9, "/[abA;/.]{0,5}(\\?([xy]=[ab]{0,2}&){0,3})?"),
    ("host", 0.9, "a|B\\.a:80|c\\.b\\.A|x\\.a|c|\\.a|a\\.\\.|x@a|a\\.|xa"),
    ("route", 0.5, "r|s"),
    ("address", 0.9, "10\\.0\\.0\\.[1-4]"),
    ("x", 0.5, "[ab?]{0,2}([,\n][ab?]{0,2}){0,2}"),
    ("y", 0.5, "[ab?]{0,2}(\n[ab?]{0,2}){0,2}"),
    ("cookie", 0.5, "([xy]=[ab]{0,2}(; |\n)){0,3}z=a"),
    ("claim x", 0.5, "[ab?]{0,2}"),
    ("claim y", 0.5, "[ab]{0,2}"),
    ("method-x", 0.5, "put|GET\nPUT|get,x|x"),
];

fn sample() -> impl Strategy<Value = Sample> {
    let attribute = |(name, often, texts): (&'static str, f64, &'static str)| {
        let is_value = name.ends_with(['x', 'y']);
        let byte = move |b| if is_value && b == b'?' { 0xff } else { b };
        let has = move |text: String| (name.to_owned(), text.bytes().map(byte).collect());
        prop::option::weighted(often, texts.prop_map(has))
    };
    let has = ATTRIBUTES.map(attribute).to_vec();
    has.prop_map(|has| Sample { has: has.into_iter().flatten().collect(), asked: vec![] })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // I1
    #[test]
    fn the_index_and_every_rule_agree_with_the_page(
        conditions in prop::collection::vec(condition(), 1..70),
        samples in prop::collection::vec(sample(), 1..12),
    ) {
        let rules = rules(&conditions);
        for mut sample in samples {
            let expected: Vec<u16> = (0..)
                .zip(&conditions)
                .filter_map(|(i, condition)| naive(condition, &sample.has).may().then_some(i))
                .collect();
            let (indexed, plain) = met(&rules, &mut sample);
            let (mut plain_sample, mut values) = (sample.clone(), Values::default());
            let mut request = Fetched::new(&mut plain_sample, rules.attributes(), &mut values);
            for (rule, condition) in rules.rules().iter().zip(&conditions) {
                let expected = naive(condition, &sample.has);
                prop_assert_eq!(rule.matches.holds(&mut request), expected, "{:?} {}", &sample, condition);
            }
            prop_assert_eq!(&plain, &expected, "{:?} {:?}", &sample, &conditions);
            prop_assert_eq!(&indexed, &expected, "the index: {:?} {:?}", &sample, &conditions);
            let fetched_once = sample.asked.iter().collect::<std::collections::BTreeSet<_>>().len();
            prop_assert_eq!(fetched_once, sample.asked.len());
        }
    }
}
