//! Whose bucket a request counts in.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::json;
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::drain;

use crate::plugin::{one, rule, rules, with};

/// One token per address.
fn single() -> Setup {
    Setup::with(one("per-address", "1/h", 1))
}

async fn statuses<const N: usize>(edge: &Envoy, forwarded_for: [&str; N]) -> [u16; N] {
    let mut client = edge.client();
    let mut statuses = [0; N];
    for (status, addresses) in statuses.iter_mut().zip(forwarded_for) {
        *status = client.send(&Ask::from(addresses)).await.status;
    }
    statuses
}

#[tokio::test]
async fn the_addresses_of_an_ipv6_64_share_a_bucket() {
    let edge = Envoy::start(single()).await;
    let asked = ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:3::1"];
    assert_eq!(statuses(&edge, asked).await, [200, 429, 429, 200]);
}

#[tokio::test]
async fn a_rule_says_how_much_of_an_address_counts() {
    let key = json!([{"client_address": {"ipv4": 24, "ipv6": 48}}]);
    let edge = Envoy::start(Setup::with(rules([with(rule("per-network", "1/h", 1), "key", key)]))).await;
    let asked = [
        "203.0.113.7",
        "203.0.113.200",
        "203.0.114.7",
        "2001:db8:1:2::1",
        "2001:db8:1:3::1",
        "2001:db8:2::1",
    ];
    assert_eq!(statuses(&edge, asked).await, [200, 429, 200, 200, 429, 200]);
}

#[tokio::test]
async fn an_ipv4_mapped_address_is_the_ipv4_address() {
    let edge = Envoy::start(single()).await;
    let asked = ["203.0.113.7", "::ffff:203.0.113.7", "::ffff:203.0.113.8", "203.0.113.8"];
    assert_eq!(statuses(&edge, asked).await, [200, 429, 200, 429]);
}

#[tokio::test]
async fn what_stands_left_of_the_trusted_hop_is_no_address() {
    let edge = Envoy::start(single()).await;
    // The one trusted proxy appended the last address; the client made up the rest.
    let asked =
        ["203.0.113.7", "198.51.100.1, 203.0.113.7", "198.51.100.2,203.0.113.7", "203.0.113.7, 203.0.113.8"];
    assert_eq!(statuses(&edge, asked).await, [200, 429, 429, 200]);
}

#[tokio::test]
async fn two_trusted_hops_name_the_second_address_from_the_right() {
    let edge = Envoy::start(single().trusted_hops(2)).await;
    let asked = [
        "203.0.113.7, 10.0.0.1",
        "198.51.100.1, 203.0.113.7, 10.0.0.1",
        "203.0.113.7, 203.0.113.8, 10.0.0.1",
    ];
    assert_eq!(statuses(&edge, asked).await, [200, 429, 200]);
}

#[tokio::test]
async fn without_a_trusted_hop_the_header_buys_nothing() {
    let edge = Envoy::start(single().trusted_hops(0)).await;
    assert_eq!(statuses(&edge, ["203.0.113.7", "203.0.113.8", "203.0.113.9"]).await, [200, 429, 429]);
    let mut other: Client = edge.client().bound_to(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    assert_eq!(other.send(&Ask::from("203.0.113.7")).await.status, 200, "another peer is another client");
    assert_eq!(other.send(&Ask::get("/")).await.status, 429);
}

#[tokio::test]
async fn a_request_without_a_readable_address_gets_through_and_is_counted() {
    let mut edge = Envoy::start(single().trusted_hops(0).on_a_pipe()).await;
    let mut client = edge.client();
    for _ in 0..5 {
        assert_eq!(client.send(&Ask::get("/")).await.status, 200);
    }
    edge.counter_reaches("weir.address.unreadable", 5).await;
    edge.assert_alive();
}

#[tokio::test]
async fn a_rotating_port_changes_nothing() {
    let edge = Envoy::start(single().trusted_hops(0)).await;
    let (_, admitted) = drain(&mut edge.client(), &Ask::get("/"), 5).await;
    assert_eq!(admitted, 1);
    for mut client in edge.clients(5) {
        assert_eq!(client.send(&Ask::get("/")).await.status, 429, "a new connection is no new client");
    }
}
