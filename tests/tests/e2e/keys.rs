//! The bucket of a request: by its client's address, or by the name of its route.

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::repeat;

use crate::plugin::{one, rule, rules, with};

/// One token per address.
fn single() -> Setup {
    Setup::with(one("per-address", "1/h", 1))
}

#[tokio::test]
async fn an_address_comes_from_the_trusted_hops() {
    let key = json!([{"client_address": {"ipv4": 24, "ipv6": 48}}]);
    let networks = Setup::with(rules([with(rule("per-network", "1/h", 1), "key", key)]));
    let cases: [(Setup, &[(&str, u16)]); 3] = [
        (
            single(),
            &[
                // The addresses of a /64 share a bucket.
                ("2001:db8:1:2::1", 200),
                ("2001:db8:1:2:ffff:ffff:ffff:ffff", 429),
                ("2001:db8:1:3::1", 200),
                ("203.0.113.7", 200),
                ("::ffff:203.0.113.7", 429),
                // The one trusted proxy appended the last address; the client made up the rest.
                ("198.51.100.1, 203.0.113.7", 429),
                ("198.51.100.2,203.0.113.7", 429),
                ("203.0.113.7, 203.0.113.8", 200),
            ],
        ),
        (
            single().trusted_hops(2),
            &[
                ("203.0.113.7, 10.0.0.1", 200),
                ("198.51.100.1, 203.0.113.7, 10.0.0.1", 429),
                ("203.0.113.7, 203.0.113.8, 10.0.0.1", 200),
            ],
        ),
        (
            networks,
            &[
                ("203.0.113.7", 200),
                ("203.0.113.200", 429),
                ("203.0.114.7", 200),
                ("2001:db8:1:2::1", 200),
                ("2001:db8:1:3::1", 429),
                ("2001:db8:2::1", 200),
            ],
        ),
    ];
    for (setup, asked) in cases {
        let edge = Envoy::start(setup).await;
        for (addresses, status) in asked {
            assert_eq!(edge.client().send(&Ask::from(addresses)).await.status, *status, "{addresses}");
        }
    }
}

/// An address of a link has a zone, which makes it no other client.
#[tokio::test]
async fn a_client_with_a_zone_in_its_address_is_limited() {
    for host in Host::BOTH {
        let edge = Envoy::start(Setup::with(one("per-address", "3/h", 3)).host(host)).await;
        let zoned = ["fe80::7%1", "fe80::7%eth0", "fe80::7", "fe80::7%1"];
        let mut found = Vec::new();
        for address in zoned {
            found.push(edge.client().send(&Ask::from(address)).await.status);
        }
        assert_eq!(found, [200, 200, 200, 429], "{host:?}");
    }
}

#[tokio::test]
async fn without_a_trusted_hop_the_header_is_ignored() {
    let edge = Envoy::start(single().trusted_hops(0)).await;
    for (address, status) in [("203.0.113.7", 200), ("203.0.113.8", 429), ("203.0.113.9", 429)] {
        // A new connection, and so another port, is no new client.
        assert_eq!(edge.client().send(&Ask::from(address)).await.status, status, "{address}");
    }
}

/// Envoy knows the name of a request's route when the filter is asked.
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
