//! The rules that a request meets, and their decision together.

use hyper::Method;
use serde_json::{Value, json};
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

/// Asks `asks` twice each, as a client of its own, and returns the rule that limited the second; each rule admits one.
async fn limited_by<const N: usize>(edge: &Envoy, asks: [Ask; N]) -> [Value; N] {
    let mut limited = [const { Value::Null }; N];
    for (index, (limited, ask)) in limited.iter_mut().zip(asks).enumerate() {
        let ask = ask.forwarded_for(&format!("203.0.113.{index}"));
        assert_eq!(edge.client().send(&ask).await.status, 200, "{ask:?}");
        let second = edge.client().send(&ask).await;
        if second.status == 429 {
            *limited = second.json()["violated-policies"][0].clone();
        }
    }
    limited
}

#[tokio::test]
async fn a_rule_counts_requests_that_meet_every_condition() {
    let of = |name: &str, matching: Value| with(rule(name, "1/h", 1), "match", matching);
    let edge = Envoy::start(Setup::with(rules([
        of("methods", json!({"path": {"prefix": "/form"}, "methods": ["POST", "PUT"]})),
        of("exact", json!({"path": {"exact": "/login"}})),
        of("prefix", json!({"path": {"prefix": "/api"}})),
        of("hosts", json!({"hosts": ["api.example.com"]})),
    ])))
    .await;
    let asks = [Method::GET, Method::POST, Method::PUT].map(|method| Ask::new(method, "/form"));
    assert_eq!(limited_by(&edge, asks).await, [json!(null), json!("methods"), json!("methods")]);
    let asks = ["/login", "/login?user=1", "/login/", "/logins", "/"].map(Ask::get);
    let exact = json!("exact");
    assert_eq!(limited_by(&edge, asks).await, [exact.clone(), exact.clone(), exact, json!(null), json!(null)]);
    let asks = ["/api/v2", "/api/v1?x=/", "/v1/api", "/?/api"].map(Ask::get);
    let prefix = json!("prefix");
    assert_eq!(limited_by(&edge, asks).await, [prefix.clone(), prefix, json!(null), json!(null)]);
    let hosts = ["API.Example.COM", "api.example.com:8080", "example.com", "api.example.com.evil.test"];
    let asks = hosts.map(|host| Ask::get("/").header("host", host));
    let host = json!("hosts");
    assert_eq!(limited_by(&edge, asks).await, [host.clone(), host, json!(null), json!(null)]);
}

/// The name that Envoy gives a request's route, which it knows when the filter is asked.
#[tokio::test]
async fn a_rule_matches_and_counts_routes_by_their_names() {
    for (rule, expected) in [
        // Two routes of one name are one; a route without a name is none, and is not counted.
        (
            json!({"name": "r", "key": ["route"], "rate": "1/h", "burst": 2}),
            [("/login", 2), ("/v1", 2), ("/v2", 0), ("/", 5)],
        ),
        (
            json!({"name": "r", "match": {"routes": ["login"]}, "key": ["all"], "rate": "1/h"}),
            [("/login/x", 1), ("/v1", 5), ("/v2", 5), ("/", 5)],
        ),
    ] {
        let setup = Setup::with(rules([rule.clone()]));
        let edge = Envoy::start(setup.route("login", "/login").route("api", "/v1").route("api", "/v2")).await;
        let mut client = edge.client();
        for (path, admitted) in expected {
            assert_eq!(repeat(&mut client, &Ask::get(path), 5).await.admitted(), admitted, "{path}: {rule}");
        }
    }
}
