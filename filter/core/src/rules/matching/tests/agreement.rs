//! The compiled condition, and the index, against what the page says, read off the JSON for each request.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use std::format;

/// What a sample may have.
const NAMES: [&str; 10] =
    ["method", "path", "host", "route", "address", "x", "y", "cookie", "claim x", "claim y"];

/// What the specification says of `condition`, with nothing compiled.
fn naive(condition: &Value, has: &BTreeMap<String, Vec<u8>>) -> bool {
    condition.as_object().unwrap().iter().all(|(field, value)| field_holds(field, value, has))
}

fn text<'a>(has: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Option<&'a str> {
    has.get(name).map(|bytes| core::str::from_utf8(bytes).unwrap())
}

fn field_holds(field: &str, value: &Value, has: &BTreeMap<String, Vec<u8>>) -> bool {
    let list = || value.as_array().unwrap().iter();
    let path = text(has, "path").map(|path| path.split('?').next().unwrap());
    match field {
        "methods" => list().any(|method| text(has, "method") == method.as_str()),
        "routes" => list().any(|route| text(has, "route") == route.as_str()),
        "hosts" => text(has, "host").is_some_and(|host| {
            let host = host.split(':').next().unwrap().to_lowercase();
            list().any(|asked| match asked.as_str().unwrap().strip_prefix('*') {
                Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
                None => host == asked.as_str().unwrap(),
            })
        }),
        "path" => path.is_some_and(|path| path_holds(value, path)),
        "paths" => path.is_some_and(|path| list().any(|test| path_holds(test, path))),
        "headers" => list().all(|test| value_holds(test, text(has, test["name"].as_str().unwrap()))),
        "cookies" => list().all(|test| {
            let mut pairs =
                text(has, "cookie").unwrap_or_default().split("; ").filter_map(|pair| pair.split_once('='));
            value_holds(test, pairs.find(|(name, _)| *name == test["name"]).map(|(_, value)| value))
        }),
        "claims" => list().all(|test| {
            let name = format!("claim {}", test["name"][0].as_str().unwrap());
            value_holds(test, text(has, &name))
        }),
        "query" => list().all(|test| {
            let query =
                text(has, "path").and_then(|path| path.split_once('?')).map_or("", |(_, query)| query);
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            value_holds(test, pairs.find(|(name, _)| *name == test["name"]).map(|(_, value)| value))
        }),
        "addresses" => text(has, "address").is_some_and(|address| {
            let address: core::net::Ipv4Addr = address.parse().unwrap();
            list().any(|network| {
                let (network, bits) = network.as_str().unwrap().split_once('/').unwrap();
                let network: core::net::Ipv4Addr = network.parse().unwrap();
                u64::from(address.to_bits() ^ network.to_bits()) >> (32 - bits.parse::<u32>().unwrap()) == 0
            })
        }),
        "any" => list().any(|condition| naive(condition, has)),
        "not" => !naive(value, has),
        other => panic!("{other}"),
    }
}

fn path_holds(test: &Value, path: &str) -> bool {
    let (kind, asked) = test.as_object().unwrap().iter().next().unwrap();
    let asked = asked.as_str().unwrap();
    match kind.as_str() {
        "exact" => path == asked,
        "prefix" => path.starts_with(asked),
        _ => glob::tests::naive(asked.as_bytes(), path.as_bytes(), false),
    }
}

fn value_holds(test: &Value, value: Option<&str>) -> bool {
    let test = test.as_object().unwrap();
    let (kind, asked) = test.iter().find(|(kind, _)| *kind != "name").unwrap();
    match (kind.as_str(), value) {
        ("present", value) => asked == value.is_some(),
        (_, None) => false,
        ("equals", Some(value)) => asked == value,
        ("in", Some(value)) => asked.as_array().unwrap().iter().any(|asked| asked == value),
        ("prefix", Some(value)) => value.starts_with(asked.as_str().unwrap()),
        // The only expression there is here.
        (_, Some(value)) => value.starts_with('a') && value.len() == 2,
    }
}

fn list(items: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(items, 1..4).prop_map(Value::from)
}

fn one(texts: &'static [&'static str]) -> impl Strategy<Value = Value> {
    select(texts).prop_map(Value::from)
}

fn path_test() -> impl Strategy<Value = Value> {
    (select(vec!["exact", "prefix", "glob"]), "/[ab/]{0,4}", "(\\*{1,2}[ab/]{0,2}){0,2}")
        .prop_map(|(kind, head, tail)| json!({kind: if kind == "glob" { head + &tail } else { head }}))
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
        list(value_test()).prop_map(|v| ("headers", v)),
        list(value_test()).prop_map(|v| ("cookies", v)),
        list(value_test()).prop_map(|v| ("query", v)),
        list(claim_test()).prop_map(|v| ("claims", v)),
        list(network).prop_map(|v| ("addresses", v)),
    ];
    prop::collection::vec(field, 1..4).prop_map(|fields| {
        let mut clause: Value = fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        if clause.get("path").is_some() {
            clause.as_object_mut().unwrap().remove("paths");
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

fn sample() -> impl Strategy<Value = Sample> {
    let query = prop::option::of("\\?([xy]=[ab]{0,2}&){0,3}");
    let path = ("/[ab/]{0,5}", query).prop_map(|(path, query)| path + &query.unwrap_or_default());
    let has = (
        prop::option::weighted(0.9, select(vec!["GET", "PUT", "get"])),
        prop::option::weighted(0.9, path),
        prop::option::weighted(0.9, select(vec!["a", "B.a:80", "c.b.A", "x.a", "c", ".a", "xa"])),
        prop::option::of(select(vec!["r", "s"])),
        prop::option::weighted(0.9, select(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"])),
        prop::option::of("[ab]{0,2}"),
        prop::option::of("[ab]{0,2}"),
        prop::option::of("([xy]=[ab]{0,2}; ){0,3}z=a"),
        (prop::option::of("[ab]{0,2}"), prop::option::of("[ab]{0,2}")),
    );
    has.prop_map(|(method, path, host, route, address, x, y, cookie, (claim_x, claim_y))| {
        let texts = [
            method.map(str::to_string),
            path,
            host.map(str::to_string),
            route.map(str::to_string),
            address.map(str::to_string),
            x,
            y,
            cookie,
            claim_x,
            claim_y,
        ];
        let names = NAMES.map(str::to_string);
        let has = names.into_iter().zip(texts).filter_map(|(name, text)| Some((name, text?.into_bytes())));
        Sample { has: has.collect(), asked: vec![] }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_index_and_every_rule_agree_with_the_page(
        conditions in prop::collection::vec(condition(), 1..70),
        samples in prop::collection::vec(sample(), 1..12),
    ) {
        let rules = rules(&conditions);
        for mut sample in samples {
            let expected: Vec<u16> = (0..)
                .zip(&conditions)
                .filter_map(|(i, condition)| naive(condition, &sample.has).then_some(i))
                .collect();
            let (indexed, plain) = met(&rules, &mut sample);
            prop_assert_eq!(&plain, &expected, "{:?} {:?}", &sample, &conditions);
            prop_assert_eq!(&indexed, &expected, "the index: {:?} {:?}", &sample, &conditions);
            let fetched_once = sample.asked.iter().collect::<std::collections::BTreeSet<_>>().len();
            prop_assert_eq!(fetched_once, sample.asked.len());
        }
    }

    #[test]
    fn any_bytes_give_an_answer(
        conditions in prop::collection::vec(condition(), 1..9),
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), NAMES.len()),
    ) {
        let names = NAMES.map(str::to_string);
        let mut sample = Sample { has: names.into_iter().zip(values).collect(), asked: vec![] };
        let (indexed, plain) = met(&rules(&conditions), &mut sample);
        prop_assert_eq!(indexed, plain);
    }
}
