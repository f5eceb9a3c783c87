//! The response to a limited request.

use std::time::Instant;

use hyper::Method;
use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::{drain, repeat};
use weir_tests::server::Server;

use crate::plugin::one;

/// The time of a token at one per hour, in seconds: long enough that a stall refills none.
const HOUR: u64 = 3_600;

#[tokio::test]
async fn a_response_states_when_the_bucket_is_full_and_a_limited_one_the_rule_and_the_wait() {
    for host in Host::BOTH {
        let (upstream, mut plugin) = (Server::upstream().await, one("per-address", "1/h", 5));
        plugin["rules"][0]["response"] = json!({"on_allowed": true});
        let edge = Envoy::start(Setup::with(plugin).host(host).upstream(upstream.address())).await;
        let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
        let start = Instant::now();
        assert_eq!(client.send(&ask).await.header("x-ratelimit-remaining"), "4", "{host:?}");
        let allowed = client.send(&ask).await;
        assert_eq!((allowed.status, allowed.header("x-ratelimit-remaining")), (200, "3"), "{host:?}");
        let (answer, admitted) = drain(&mut client, &ask, 50).await;
        // What may have passed since the first request, in whole seconds.
        let passed = start.elapsed().as_secs() + 1;
        let until_full = allowed.number("x-ratelimit-reset");
        assert!((2 * HOUR - passed..=2 * HOUR).contains(&until_full), "{until_full} s until the bucket is full");
        assert_eq!((answer.status, admitted), (429, 3), "{host:?}");
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
        assert_eq!(repeat(&mut client, &ask, 9).await.limited(), 9);
        assert_eq!(upstream.count(), 5, "a limited request never reaches the upstream");
        assert_eq!(client.send(&Ask::from("203.0.113.8")).await.status, 200, "another address has its own bucket");
    }
}

#[tokio::test]
async fn a_limited_grpc_web_request_gets_resource_exhausted() {
    let grpc_web = json!({"name": "envoy.filters.http.grpc_web", "typed_config":
        {"@type": "type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb"}});
    for host in Host::BOTH {
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
