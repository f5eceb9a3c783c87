//! Algorithms beside the token bucket, and the ends of requests.
//!
//! Tests of I3.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Tally, drain, repeat, together};
use weir_tests::server::Server;
use weir_tests::wait::until;

use crate::plugin::{rule, rules, with};

const CLIENT: &str = "203.0.113.7";

fn counting_by(algorithm: &str, rate: &str) -> serde_json::Value {
    json!({"name": "some", "key": ["client_address"], "algorithm": algorithm, "rate": rate})
}

async fn edge(upstream: &Server, rule: serde_json::Value) -> Envoy {
    Envoy::start(Setup::with(rules([rule])).upstream(upstream.address())).await
}

#[tokio::test]
async fn all_workers_share_the_limit_of_windows_and_logs() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let setup = Setup::with(rules([counting_by(algorithm, "15/h")])).concurrency(2);
        let edge = Envoy::start(setup).await;
        let tally = together(edge.clients(4), |_| vec![Ask::from(CLIENT); 20]).await;
        assert_eq!((tally.admitted(), tally.limited()), (15, 65), "{algorithm}");
        let limited = edge.client().send(&Ask::from(CLIENT)).await;
        assert_eq!(limited.header("x-ratelimit-limit"), "15");
        assert!((1..=7_200).contains(&limited.number("retry-after")), "{limited:?}");
    }
}

/// The time from one turn to the next of the bucket that lets 4 requests go a second.
const TURN_MS: u64 = 250;

#[tokio::test]
async fn a_leaky_bucket_delays_requests_and_limits_the_excess() {
    let upstream = Server::obedient().await;
    let edge = edge(&upstream, with(counting_by("leaky_bucket", "4/s"), "queue", json!(5))).await;
    let (mut tasks, begin) = (JoinSet::new(), Instant::now());
    for mut client in edge.clients(10) {
        tasks.spawn(async move { (client.send(&Ask::from(CLIENT)).await.status, begin.elapsed()) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_unstable_by_key(|(_, at)| *at);
    let of = |status| answers.iter().filter(move |(is, _)| *is == status).map(|(_, at)| *at);
    let (admitted, latest) = (of(200).collect::<Vec<_>>(), of(429).next_back().unwrap_or_default());
    // A request that a busy machine sends late may find a place that has become free by then.
    let freed = usize::try_from(latest.as_millis() / u128::from(TURN_MS)).expect("a few");
    assert!((6..=6 + freed).contains(&admitted.len()) && of(429).count() > 0, "{answers:?}");
    for (turn, at) in (0..).zip(&admitted) {
        // No earlier than their turns; later by a tick, and by what a busy machine costs the others, too.
        let least = Duration::from_millis(TURN_MS * turn);
        assert!((least..least + latest + Duration::from_secs(2)).contains(at), "turn {turn}: {answers:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_disturbs_no_other() {
    let upstream = Server::obedient().await;
    let edge = edge(&upstream, with(counting_by("leaky_bucket", "1/s"), "queue", json!(3))).await;
    let ask = Ask::from(CLIENT);
    let mut clients = edge.clients(3);
    let (mut third, mut second) = (clients.pop().unwrap(), clients.pop().unwrap());
    assert_eq!(clients[0].send(&ask).await.status, 200);
    let left = tokio::time::timeout(Duration::from_millis(100), second.send(&ask)).await;
    assert!(left.is_err(), "it waits for its turn");
    drop(second);
    assert_eq!(third.send(&ask).await.status, 200);
    assert_eq!(edge.client().send(&ask).await.status, 200);
}

fn in_flight(limit: u32) -> serde_json::Value {
    json!({"name": "some", "key": ["client_address"], "algorithm": "concurrency", "limit": limit})
}

#[tokio::test]
async fn a_reset_or_timed_out_request_makes_room_once() {
    let upstream = Server::obedient().await;
    let edge = edge(&upstream, in_flight(1)).await;
    for _ in 0..3 {
        let (mut client, before) = (edge.client(), upstream.count());
        let never = Ask::from(CLIENT).header("x-late-ms", "60000");
        let in_flight = tokio::spawn(async move { client.send(&never).await });
        until("it is in flight", async || (upstream.count() > before).then_some(())).await;
        assert_eq!(edge.client().send(&Ask::from(CLIENT)).await.status, 429, "and counted");
        in_flight.abort();
        until("room again", async || (edge.client().send(&Ask::from(CLIENT)).await.status == 200).then_some(())).await;
    }
    let slow = Ask::from(CLIENT).header("x-late-ms", "2000");
    let tally = together(edge.clients(4), |_| vec![slow.clone()]).await;
    assert_eq!((tally.admitted(), tally.limited()), (1, 3), "released once each, not more");
}

#[tokio::test]
async fn only_failed_logins_count() {
    let upstream = Server::obedient().await;
    let rule = with(rule("login", "3/h", 3), "cost", json!({"after": {"status": [401]}}));
    let edge = edge(&upstream, rule).await;
    let mut client = edge.client();
    assert_eq!(repeat(&mut client, &Ask::from(CLIENT), 20).await.admitted(), 20);
    let failing = Ask::from(CLIENT).header("x-status", "401");
    let mut tally = Tally::default();
    for _ in 0..10 {
        tally.add(client.send(&failing).await.status);
    }
    assert_eq!((tally.of(401), tally.limited()), (3, 7));
    assert_eq!(client.send(&Ask::from(CLIENT)).await.status, 429, "also with the right password");
}

#[tokio::test]
async fn tokens_and_bytes_are_charged_with_the_response() {
    let upstream = Server::obedient().await;
    let by_header = with(rule("tokens", "1000/h", 1_000), "cost", json!({"after": {"header": "x-tokens"}}));
    let edge = edge(&upstream, with(by_header, "response", json!({"on_allowed": true}))).await;
    let mut client = edge.client();
    let ask = Ask::from(CLIENT).header("x-tokens", "400");
    let left: Vec<_> = [client.send(&ask).await, client.send(&ask).await]
        .iter()
        .map(|answer| answer.number("x-ratelimit-remaining"))
        .collect();
    assert_eq!(left, [999, 599], "each asked for a token, and was not charged yet");
    assert_eq!(drain(&mut client, &ask, 10).await.1, 1, "200 are left, and a debt after one more");

    // The upstream's answer has 9 bytes: three tokens each.
    let by_bytes = with(rule("bytes", "10/h", 10), "cost", json!({"after": {"response_bytes_per": 4}}));
    let edge = self::edge(&upstream, by_bytes).await;
    assert_eq!(drain(&mut edge.client(), &Ask::from(CLIENT), 10).await.1, 4);
    let mut other = edge.client().over_http2();
    assert_eq!(drain(&mut other, &Ask::from("203.0.113.8"), 10).await.1, 4);
}
