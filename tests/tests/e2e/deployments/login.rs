use std::time::{Duration, Instant};

use hyper::Method;
use tokio::time::sleep;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::repeat;
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use super::{Edge, rules_in};
use crate::sync::synced;

fn login(address: &str) -> Ask {
    Ask::new(Method::POST, "/login").forwarded_for(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_five_logins_at_all_points_of_presence_together() {
    let redis = Redis::start().await;
    let (mut syncs, mut edges) = (vec![], vec![]);
    for name in ["fra1", "nyc1"] {
        let weir_sync = WeirSync::start(name, &redis.url()).await;
        let setup = Setup::with(synced(rules_in("login"), name)).node(name).concurrency(2);
        edges.push(Envoy::start(setup.cluster("weir-sync", weir_sync.address())).await);
        syncs.push(weir_sync);
    }
    for edge in &edges {
        edge.counter_grows("weir.sync.answered", 4).await;
    }
    let (ask, mut a, mut b) = (login("203.0.113.7"), edges[0].client(), edges[1].client());
    let (at_a, at_b) = tokio::join!(repeat(&mut a, &ask, 8), repeat(&mut b, &ask, 8));
    at_a.assert_only_decisions();
    at_b.assert_only_decisions();
    assert_eq!(at_a.admitted() + at_b.admitted(), 5, "{at_a:?}, {at_b:?}");

    // Until it is known that all five were spent, one might come back soon.
    let limited = until("a refusal until the first is a minute old, and the jitter", async || {
        let limited = a.send(&ask).await;
        (40..=65).contains(&limited.number("retry-after")).then_some(limited)
    })
    .await;
    let wait = limited.number("retry-after");
    assert_eq!(limited.text(), format!("Too many tries. Come back in {wait} s.\n"));
    assert_eq!(a.send(&login("203.0.113.8")).await.status, 200, "another address");
    // A token bucket of this rate gives another after 12 s.
    let later = Instant::now() + Duration::from_secs(14);
    while Instant::now() < later {
        assert_eq!(b.send(&ask).await.status, 429, "five in any minute");
        sleep(Duration::from_millis(500)).await;
    }
    let form = Ask::get("/login").forwarded_for("203.0.113.7");
    assert_eq!(repeat(&mut a, &form, 20).await.admitted(), 20, "to look at the form is no login");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_nobody_can_count_is_answered_503() {
    let mut edge = Edge::start("login").await;
    assert_eq!(edge.status(&login("203.0.113.1")).await, 200);
    edge.weir_sync.kill();
    for n in 2..=9 {
        let answer = edge.envoy.client().send(&login(&format!("203.0.113.{n}"))).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!((1..=6).contains(&answer.number("retry-after")), "a second and the jitter: {answer:?}");
    }
    assert_eq!(edge.status(&Ask::from("203.0.113.2")).await, 200, "everything but the login goes on");
    edge.weir_sync.restart().await;
    edge.envoy.counter_grows("weir.sync.answered", 4).await;
    assert_eq!(edge.status(&login("203.0.113.10")).await, 200);
}
