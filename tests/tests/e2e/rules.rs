//! Which rules a request meets, and what happens where it meets several.

use hyper::Method;
use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{drain, repeat};

use crate::plugin::{rule, rules, with};

const CLIENT: &str = "203.0.113.7";

#[tokio::test]
async fn a_limited_request_consumes_from_no_rule() {
    let login = with(rule("login", "1/h", 2), "match", json!({"path": {"exact": "/login"}}));
    let edge = Envoy::start(Setup::with(rules([rule("all", "1/h", 10), login]))).await;
    let mut client = edge.client();
    let to_login = Ask::get("/login").forwarded_for(CLIENT);
    let tally = repeat(&mut client, &to_login, 30).await;
    assert_eq!((tally.admitted(), tally.limited()), (2, 28));
    // Had the 28 consumed from "all", nothing would be left of its 10.
    let (limited, admitted) = drain(&mut client, &Ask::from(CLIENT), 50).await;
    assert_eq!(admitted, 8);
    assert_eq!(limited.json()["violated-policies"], json!(["all"]));
}

#[tokio::test]
async fn the_order_of_rules_changes_nothing() {
    let login = with(rule("login", "1/h", 2), "match", json!({"path": {"exact": "/login"}}));
    let edge = Envoy::start(Setup::with(rules([login, rule("all", "1/h", 10)]))).await;
    let mut client = edge.client();
    assert_eq!(repeat(&mut client, &Ask::get("/login").forwarded_for(CLIENT), 30).await.admitted(), 2);
    assert_eq!(drain(&mut client, &Ask::from(CLIENT), 50).await.1, 8);
}

#[tokio::test]
async fn the_strictest_rule_makes_the_headers() {
    let loud = |rule| with(rule, "response", json!({"on_allowed": true}));
    let plugin = rules([
        loud(rule("wide", "1/m", 100)),
        loud(rule("narrow", "1/m", 3)),
        loud(rule("middle", "1/m", 50)),
    ]);
    let edge = Envoy::start(Setup::with(plugin)).await;
    let mut client = edge.client();
    let allowed = client.send(&Ask::from(CLIENT)).await;
    assert_eq!(allowed.header("x-ratelimit-limit"), "3", "{allowed:?}");
    assert_eq!(allowed.header("x-ratelimit-remaining"), "2");
    let (limited, admitted) = drain(&mut client, &Ask::from(CLIENT), 50).await;
    assert_eq!(admitted, 2);
    assert_eq!(limited.header("x-ratelimit-limit"), "3");
    assert!(limited.header("ratelimit").starts_with(r#""narrow";r=0"#), "{limited:?}");
    assert_eq!(limited.json()["violated-policies"], json!(["narrow"]));
}

/// Asks each of `asks` ten times; whether the rule, which admits one, limited it.
async fn limited<const N: usize>(matching: serde_json::Value, asks: [Ask; N]) -> [bool; N] {
    let edge = Envoy::start(Setup::with(rules([with(rule("some", "1/h", 1), "match", matching)]))).await;
    let mut limited = [false; N];
    for (index, (limited, ask)) in limited.iter_mut().zip(asks).enumerate() {
        // Each as a client of its own, so that none stands in another's bucket.
        let ask = ask.forwarded_for(&format!("203.0.113.{index}"));
        let tally = repeat(&mut edge.client(), &ask, 10).await;
        tally.assert_only_decisions();
        assert!([1, 10].contains(&tally.admitted()), "all or one: {tally:?}");
        *limited = tally.admitted() == 1;
    }
    limited
}

#[tokio::test]
async fn a_rule_matches_methods() {
    let asks = [Method::GET, Method::POST, Method::PUT, Method::DELETE].map(|method| Ask::new(method, "/"));
    assert_eq!(limited(json!({"methods": ["POST", "PUT"]}), asks).await, [false, true, true, false]);
}

#[tokio::test]
async fn a_rule_matches_an_exact_path_in_every_spelling_and_without_its_query() {
    let asks = ["/login", "/login?user=1", "/login/", "/logins", "/"].map(Ask::get);
    let matching = json!({"path": {"exact": "/login"}});
    assert_eq!(limited(matching, asks).await, [true, true, true, false, false]);
}

#[tokio::test]
async fn a_rule_matches_a_path_prefix() {
    let asks = ["/api", "/api/v1", "/api/v1?x=/", "/v1/api", "/?/api"].map(Ask::get);
    let matching = json!({"path": {"prefix": "/api"}});
    assert_eq!(limited(matching, asks).await, [true, true, true, false, false]);
}

#[tokio::test]
async fn a_rule_matches_hosts_whatever_their_case_and_port() {
    let hosts = [
        "api.example.com",
        "API.Example.COM",
        "api.example.com:8080",
        "example.com",
        "api.example.com.evil.test",
    ];
    let asks = hosts.map(|host| Ask::get("/").header("host", host));
    let matching = json!({"hosts": ["api.example.com"]});
    assert_eq!(limited(matching, asks).await, [true, true, true, false, false]);
}

#[tokio::test]
async fn every_condition_of_a_match_must_hold() {
    let ask = |method, path, host| Ask::new(method, path).header("host", host);
    let asks = [
        ask(Method::POST, "/api", "a.test"),
        ask(Method::GET, "/api", "a.test"),
        ask(Method::POST, "/", "a.test"),
        ask(Method::POST, "/api", "b.test"),
    ];
    let matching = json!({"methods": ["POST"], "path": {"prefix": "/api"}, "hosts": ["a.test"]});
    assert_eq!(limited(matching, asks).await, [true, false, false, false]);
}
