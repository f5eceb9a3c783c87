use hyper::Method;
use weir_tests::client::Ask;
use weir_tests::load::Tally;

use super::Edge;

fn read(key: &str) -> Ask {
    Ask::get("/v1/charges/ch_1").forwarded_for("203.0.113.7").header("authorization", key)
}

fn write(key: &str) -> Ask {
    Ask::new(Method::POST, "/v1/charges").forwarded_for("203.0.113.7").header("authorization", key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_reads_and_writes_apart() {
    let edge = Edge::start("stripe-like").await;
    let (key, other) = ("Bearer sk_live_one", "Bearer sk_live_two");
    edge.assert_limited_after(&read(key), 100, 100.0).await;
    edge.assert_limited_after(&write(key), 100, 100.0).await;
    for ask in [read(other), write(other)] {
        let answer = edge.envoy.client().send(&ask).await;
        assert_eq!(answer.status, 200, "another key at the same address: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_the_test_mode_has_less() {
    let edge = Edge::start("stripe-like").await;
    edge.assert_limited_after(&read("Bearer sk_test_one"), 25, 25.0).await;
    edge.assert_limited_after(&write("Bearer sk_test_one"), 25, 25.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_makes_keys_up_is_stopped_at_its_address() {
    let edge = Edge::start("stripe-like").await;
    let mut client = edge.envoy.client();
    let mut tally = Tally::default();
    for n in 0..40 {
        let made_up = read(&format!("Bearer sk_live_made_up_{n}")).header("x-say", "401");
        tally.add(client.send(&made_up).await.status);
    }
    let refused = tally.of(401);
    // A twentieth of a minute for each more.
    assert!((20..=25).contains(&refused) && refused + tally.limited() == 40, "{tally:?}");
    let elsewhere = read("Bearer sk_live_one").forwarded_for("203.0.113.8");
    assert_eq!(edge.status(&elsewhere).await, 200);
}
