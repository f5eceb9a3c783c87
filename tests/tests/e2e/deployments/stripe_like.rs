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
async fn a_key_reads_and_writes_apart_less_in_test_mode_and_made_up_ones_are_stopped_at_their_address() {
    let edge = Edge::start("stripe-like").await;
    for (key, burst, per_second) in [("Bearer sk_live_one", 100, 100.0), ("Bearer sk_test_one", 25, 25.0)] {
        edge.assert_limited_after(&read(key), burst, per_second).await;
        edge.assert_limited_after(&write(key), burst, per_second).await;
    }
    for ask in [read("Bearer sk_live_two"), write("Bearer sk_live_two")] {
        let answer = edge.envoy.client().send(&ask).await;
        assert_eq!(answer.status, 200, "another key at the same address: {answer:?}");
    }
    let (mut client, mut tally) = (edge.envoy.client(), Tally::default());
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
