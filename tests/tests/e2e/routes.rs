//! The name that Envoy gives a request's route, which it knows when the filter is asked.

use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::repeat;

use crate::plugin::rules;

/// An Envoy with the routes `login` and `api`, and one that has no name.
async fn edge(rule: Value) -> Envoy {
    let setup = Setup::with(rules([rule])).route("login", "/login").route("api", "/v1").route("api", "/v2");
    Envoy::start(setup).await
}

#[tokio::test]
async fn a_rule_matches_the_name_of_a_route() {
    let edge =
        edge(json!({"name": "r", "match": {"routes": ["login"]}, "key": ["all"], "rate": "1/h"})).await;
    let mut client = edge.client();
    for (path, admitted) in [("/login/x", 1), ("/v1", 5), ("/", 5)] {
        assert_eq!(repeat(&mut client, &Ask::get(path), 5).await.admitted(), admitted, "{path}");
    }
}

#[tokio::test]
async fn a_rule_counts_each_route_for_itself() {
    let edge = edge(json!({"name": "r", "key": ["route"], "rate": "1/h", "burst": 2})).await;
    let mut client = edge.client();
    // Two routes of one name are one; a route without a name is none, and is not counted.
    for (path, admitted) in [("/login", 2), ("/v1", 2), ("/v2", 0), ("/", 5)] {
        assert_eq!(repeat(&mut client, &Ask::get(path), 5).await.admitted(), admitted, "{path}");
    }
}
