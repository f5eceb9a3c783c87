//! The table under an attacker that rotates addresses.

use std::time::Instant;

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Tally, drain, together};

use crate::plugin::{one, with};

/// The burst of each address.
const BURST: u32 = 2;
/// Buckets that the table has places for.
const ADDRESSES: usize = 2_048;
/// The growth of a worker through noise of its allocators, in KiB. A shared-data entry per address
/// would gain several times as much.
const NOISE_KIB: u64 = 3 * 1_024;
const CLIENTS: usize = 8;

/// One request from each of `count` addresses, from number `first` on.
async fn rotate(edge: &Envoy, first: usize, count: usize) -> Tally {
    let share = count / CLIENTS;
    let asks = move |client: usize| {
        let first = first + client * share;
        (first..first + share).map(|n| Ask::from(&format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)))
    };
    let tally = together(edge.clients(CLIENTS), asks).await;
    assert_eq!(tally.total(), count);
    tally.assert_only_decisions();
    tally
}

// I2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotating_addresses_neither_grow_memory_nor_free_a_limited_one() {
    let plugin = with(one("per-address", "1/h", BURST), "table", json!({"addresses": ADDRESSES}));
    let mut edge = Envoy::start(Setup::with(plugin)).await;
    let throttled = Ask::from("203.0.113.7");
    let (limited, admitted) = drain(&mut edge.client(), &throttled, 20).await;
    assert_eq!(admitted, 2);
    let (limited_at, wait) = (Instant::now(), limited.number("retry-after"));

    // More than the table holds, so that all of it is in use before memory is measured.
    let warm_up = rotate(&edge, 0, 3 * ADDRESSES).await;
    assert!(warm_up.admitted() > ADDRESSES / 2, "the first addresses find room: {warm_up:?}");
    let before = edge.resident_kib();
    let rotated = rotate(&edge, 3 * ADDRESSES, 50_000).await;
    let grown = edge.resident_kib().saturating_sub(before);
    assert!(grown < NOISE_KIB, "50,000 addresses cost {grown} KiB, of {before} KiB before");

    let still = drain(&mut edge.client(), &throttled, 1).await;
    assert_eq!(still.1, 0, "the throttled address is still throttled");
    // Each is rounded up to the second, and an answer is older than its arrival.
    let passed = limited_at.elapsed().as_secs() + 2;
    assert!(still.0.number("retry-after") + passed >= wait, "and for as long as before: {:?}", still.0);
    // The table distinguishes three times as many as have places, and has no more tokens than they have.
    assert!(warm_up.admitted() + rotated.admitted() < 4 * ADDRESSES * BURST as usize, "{rotated:?}");
    assert!(rotated.limited() > 40_000, "{rotated:?}");
    edge.counter_reaches("weir.table.overflowed", 40_000).await;
    edge.assert_alive();
}
