//! Keys and costs through the host's calls.

use serde_json::json;
use weir_tests::mock_host::Worker;

use crate::harness::{client, plugin, report, shared, synced, with};

#[test]
fn a_rule_counts_by_a_cookie_and_a_token_of_the_request() {
    let key = json!([{"cookie": "sid"}, {"jwt_claim": ["payload", "sub"]}]);
    let rule = json!({"name": "r", "key": key, "missing": "limit", "rate": "1/h", "burst": 2});
    let mut worker = Worker::configured(&shared(), &plugin(&rule));
    let ask = |n: u8, sid: &str, sub: &str| {
        let mut ask = client(n).header("cookie", format!("a=b; sid={sid}"));
        let path = "metadata\0filter_metadata\0envoy.filters.http.jwt_authn\0payload\0sub";
        ask.properties.insert(path.into(), sub.into());
        ask
    };
    // Wherever it comes from.
    assert_eq!((1..=5).filter(|n| worker.request(&ask(*n, "1", "me")).allowed()).count(), 2);
    assert_eq!(worker.allowed_of(5, &ask(1, "2", "me")), 2);
    assert_eq!(worker.allowed_of(5, &ask(1, "1", "you")), 2);
    assert_eq!(worker.request(&client(1)).answer().status, 429);
}

#[test]
fn a_number_of_a_token_is_its_text_and_a_route_without_a_name_is_none() {
    let tier = json!({"name": "big", "keys": ["7"], "times": 2});
    let level = json!({"name": "r", "key": [{"jwt_claim": ["payload", "level"]}], "rate": "1/h", "burst": 2, "tiers": [tier]});
    let mut worker = Worker::configured(&shared(), &plugin(&level));
    let path = "metadata\0filter_metadata\0envoy.filters.http.jwt_authn\0payload\0level";
    for (value, allowed) in
        [(7f64.to_le_bytes().to_vec(), 4), (8f64.to_le_bytes().to_vec(), 2), (b"7".to_vec(), 0)]
    {
        let mut ask = client(1);
        ask.properties.insert(path.into(), value.clone());
        assert_eq!(worker.allowed_of(5, &ask), allowed, "{value:?}");
    }
    let route = json!({"name": "r", "key": ["route"], "rate": "1/h", "burst": 2});
    let mut worker = Worker::configured(&shared(), &plugin(&route));
    for (name, allowed) in [("main", 2), ("", 5)] {
        let mut ask = client(1);
        ask.properties.insert("xds\0route_name".into(), name.into());
        assert_eq!(worker.allowed_of(5, &ask), allowed, "{name:?}");
    }
}

#[test]
fn what_leaves_is_a_hash_that_the_secret_makes() {
    let rule = json!({"name": "r", "key": [{"header": "x-key"}], "rate": "1/h", "burst": 2});
    let value = |secret: Option<&str>, text: &str| {
        let mut configuration = synced(&rule);
        if let Some(secret) = secret {
            configuration["sync"] = with(configuration["sync"].clone(), "key_secret", json!(secret));
        }
        let mut worker = Worker::configured(&shared(), &configuration);
        assert_eq!(worker.allowed_of(3, &client(1).header("x-key", text)), 2);
        worker.tick();
        report(&worker).1.keys[0].value.clone()
    };
    let plain = value(None, "hunter2");
    assert_eq!((plain[0], plain.len()), (1, 17));
    assert_eq!(plain, value(None, "hunter2"));
    assert_ne!(plain, value(None, "hunter3"));
    assert_ne!(plain, value(Some("a secret of a fleet"), "hunter2"));
}

#[test]
fn a_hash_that_everybody_can_make_is_warned_of() {
    let rule = json!({"name": "r", "key": ["host"], "rate": "1/h"});
    let warnings = |configuration: &serde_json::Value| {
        let worker = Worker::configured(&shared(), configuration);
        let logs = worker.host().logs.clone();
        logs.iter().filter(|(_, line)| line.contains("sync.key_secret")).count()
    };
    let mut bare = synced(&rule);
    assert_eq!(warnings(&bare), 0);
    bare["sync"].as_object_mut().unwrap().remove("token");
    assert_eq!(warnings(&bare), 1);
    assert_eq!(warnings(&plugin(&rule)), 0);
}

#[test]
fn a_header_says_what_a_request_costs() {
    let rule = json!({"name": "r", "key": ["client_address"], "rate": "1/h", "burst": 10, "cost": {"header": "x-cost", "max": 6}});
    let mut worker = Worker::configured(&shared(), &plugin(&rule));
    let ask = |cost: &str| client(1).header("x-cost", cost);
    let costs = ["7", "5", "nonsense", "3", "1"];
    assert_eq!(costs.map(|cost| worker.request(&ask(cost)).allowed()), [true, false, true, true, false]);
}
