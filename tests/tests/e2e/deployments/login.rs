use std::time::{Duration, Instant};

use hyper::Method;
use tokio::time::sleep;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{drain, repeat};
use weir_tests::redis::Redis;
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
    let ((at_a, logins_at_a), (at_b, logins_at_b)) =
        tokio::join!(drain(&mut a, &ask, 8), drain(&mut b, &ask, 8));
    assert_eq!(logins_at_a + logins_at_b, 5);
    for first in [at_a, at_b] {
        let wait = first.number("retry-after");
        assert!((40..=65).contains(&wait), "until the first is a minute old, and the jitter: {first:?}");
        assert_eq!(first.text(), format!("Too many tries. Come back in {wait} s.\n"));
    }
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
