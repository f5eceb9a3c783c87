//! The response to a limited request, and to an allowed one if the rule advertises.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::Method;
use serde_json::json;
use tokio::time::sleep_until;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::{drain, repeat};
use weir_tests::server::Server;

use crate::plugin::{one, rule, rules, with};

/// The time of a token at one per hour, in seconds: long enough that a stall refills none.
const HOUR: u64 = 3_600;

#[tokio::test]
async fn a_burst_is_admitted_and_the_rest_is_limited() {
    let upstream = Server::upstream().await;
    let edge = Envoy::start(Setup::with(one("per-address", "1/h", 5)).upstream(upstream.address())).await;
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
    let tally = repeat(&mut client, &ask, 20).await;
    assert_eq!((tally.admitted(), tally.limited()), (5, 15));
    assert_eq!(upstream.count(), 5, "a limited request never reaches the upstream");
    assert_eq!(client.send(&Ask::from("203.0.113.8")).await.status, 200, "another address has its own bucket");
}

#[tokio::test]
async fn a_limited_response_names_the_rule_and_the_wait() {
    let edge = Envoy::start(Setup::with(one("per-address", "1/h", 5))).await;
    let mut client = edge.client();
    let start = Instant::now();
    let (answer, admitted) = drain(&mut client, &Ask::from("203.0.113.7"), 50).await;
    // What may have passed since the first request, in whole seconds.
    let passed = start.elapsed().as_secs() + 1;
    assert_eq!((answer.status, admitted), (429, 5));
    let wait = answer.number("retry-after");
    assert!((HOUR - passed..=HOUR).contains(&wait), "{wait} s until the next token");
    assert_eq!(answer.header("ratelimit-policy"), r#""per-address";q=5;w=18000"#);
    assert_eq!(answer.header("ratelimit"), format!(r#""per-address";r=0;t={wait}"#));
    assert_eq!(answer.header("x-ratelimit-limit"), "5");
    assert_eq!(answer.header("x-ratelimit-remaining"), "0");
    assert_eq!(answer.number("x-ratelimit-reset"), wait, "when the next request may pass");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem = answer.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], json!(["per-address"]));
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
}

#[tokio::test]
async fn retry_after_is_exact_to_the_second() {
    let edge = Envoy::start(Setup::with(one("per-address", "10/m", 2))).await;
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
    let emptying_began = Instant::now();
    let (limited, admitted) = drain(&mut client, &ask, 10).await;
    let limited_at = Instant::now();
    assert_eq!(admitted, 2);
    let wait = Duration::from_secs(limited.number("retry-after"));
    let passed = (limited_at - emptying_began).as_secs() + 1;
    assert!(wait.as_secs() <= 6 && wait.as_secs() + passed >= 6, "one token refills in 6 s: {wait:?}");

    // The token that the first request took cannot be back before 6 s have passed since.
    sleep_until((emptying_began + Duration::from_millis(5_800)).into()).await;
    let early = client.send(&ask).await;
    // Only a probe that was answered in time proves anything; the machine may have stalled.
    if emptying_began.elapsed() < Duration::from_secs(6) {
        assert_eq!(early.status, 429, "a request before Retry-After has passed is limited");
        assert_eq!(early.header("retry-after"), "1");
    }
    sleep_until((limited_at + wait).into()).await;
    let first = client.send(&ask).await;
    assert_eq!(first.status, 200, "a request when Retry-After has passed is admitted");
    assert_eq!(client.send(&ask).await.status, 429, "there was one token");
}

#[tokio::test]
async fn allowed_responses_carry_the_quota_if_configured() {
    let on_allowed = with(rule("loud", "10/m", 5), "response", json!({"on_allowed": true}));
    let plugin = rules([
        with(on_allowed, "match", json!({"path": {"exact": "/loud"}})),
        with(rule("quiet", "10/m", 5), "match", json!({"path": {"exact": "/quiet"}})),
    ]);
    let edge = Envoy::start(Setup::with(plugin)).await;
    let loud = edge.client().send(&Ask::get("/loud").forwarded_for("203.0.113.7")).await;
    assert_eq!(loud.status, 200);
    assert_eq!(loud.header("ratelimit-policy"), r#""loud";q=5;w=30"#);
    assert!(loud.header("ratelimit").starts_with(r#""loud";r=4;t="#), "{loud:?}");
    assert_eq!(loud.header("x-ratelimit-limit"), "5");
    assert_eq!(loud.header("x-ratelimit-remaining"), "4");
    assert_eq!(loud.header("x-ratelimit-reset"), "6", "one token is missing");
    assert_eq!(loud.header("retry-after"), "", "nothing to wait for");

    let quiet = edge.client().send(&Ask::get("/quiet").forwarded_for("203.0.113.7")).await;
    assert_eq!(quiet.status, 200);
    for name in ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining"] {
        assert_eq!(quiet.header(name), "", "{name}");
    }
}

#[tokio::test]
async fn the_reset_is_unix_time_if_configured() {
    let plugin = rules([with(rule("per-address", "10/m", 5), "response", json!({"reset": "epoch"}))]);
    let edge = Envoy::start(Setup::with(plugin)).await;
    let unix = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let before = unix();
    let (answer, _) = drain(&mut edge.client(), &Ask::from("203.0.113.7"), 10).await;
    let reset = answer.number("x-ratelimit-reset");
    // The next token comes 6 s after the burst; whole seconds, rounded up.
    assert!((before + 5..=unix() + 7).contains(&reset), "{reset} is not 6 s from {before}");
}

#[tokio::test]
async fn a_limited_grpc_request_gets_resource_exhausted() {
    let edge = Envoy::start(Setup::with(one("per-address", "1/h", 1))).await;
    let mut client = edge.client().over_http2();
    let ask = Ask::new(Method::POST, "/weir.Test/Ask")
        .forwarded_for("203.0.113.7")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body("\0\0\0\0\0");
    let allowed = client.send(&ask).await;
    assert_ne!(allowed.header("grpc-status"), "8", "{allowed:?}");
    let limited = client.send(&ask).await;
    assert_eq!(limited.status, 200, "gRPC has its errors in grpc-status: {limited:?}");
    assert_eq!(limited.header("grpc-status"), "8");
    assert_eq!(limited.header("grpc-message"), "The limit per-address is reached");
    assert_eq!(limited.header("content-type"), "application/grpc");
    // Its content is tested in tests/mock_host.
    assert!(limited.header("grpc-status-details-bin").len() > 100, "{limited:?}");
    let after_s = limited.number("retry-after");
    assert_eq!(limited.number("grpc-retry-pushback-ms"), after_s * 1_000);
}

#[tokio::test]
async fn a_limited_grpc_web_request_gets_resource_exhausted() {
    let grpc_web = json!({"name": "envoy.filters.http.grpc_web", "typed_config":
        {"@type": "type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb"}});
    for host in [Host::Wasm, Host::Native] {
        let mut plugin = one("per-address", "1/h", 1);
        plugin["deny"] = json!([{"addresses": ["198.51.100.1"]}]);
        let edge = Envoy::start(Setup::with(plugin).host(host).before(grpc_web.clone())).await;
        let mut client = edge.client();
        for kind in ["application/grpc-web+proto", "application/grpc-web-text"] {
            let ask = Ask::new(Method::POST, "/weir.Test/Ask").header("content-type", kind).body("\0\0\0\0\0");
            client.send(&ask.clone().forwarded_for("203.0.113.7")).await;
            let limited = client.send(&ask.clone().forwarded_for("203.0.113.7")).await;
            assert_eq!((limited.status, limited.header("grpc-status")), (200, "8"), "{host:?} {kind}: {limited:?}");
            assert_eq!(limited.header("grpc-message"), "The limit per-address is reached");
            assert!(limited.header("content-type").starts_with("application/grpc-web"), "{limited:?}");
            assert!(limited.number("retry-after") > 3_000 && limited.body.is_empty(), "{limited:?}");
            let blocked = client.send(&ask.forwarded_for("198.51.100.1")).await;
            assert_eq!((blocked.status, blocked.header("grpc-status")), (200, "7"), "{host:?} {kind}: {blocked:?}");
        }
    }
}
