//! envoy/login, at two points of presence, and where nobody can count. The other rule sets to copy are tried in
//! tests/rules.rs.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;
use tokio::time::sleep;
use weir_tests::artefact;
use weir_tests::client::Ask;
use weir_tests::envoy::{Host, Setup};
use weir_tests::load::{drain, repeat};
use weir_tests::redis::Redis;
use weir_tests::region::Region;

/// A folder's `rules.yaml`, as JSON.
pub(crate) fn rules_in(folder: &str) -> Value {
    artefact::yaml(&format!("envoy/{folder}/rules.yaml"))
}

fn login(address: &str) -> Ask {
    Ask::new(Method::POST, "/login").forwarded_for(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_five_logins_across_all_pops() {
    for host in Host::BOTH {
        let redis = Redis::start().await;
        let setup = Setup::with(rules_in("login")).host(host).concurrency(2);
        let regions = Region::start_all(&["fra1", "nyc1"], &redis.url(), &setup, &[]).await;
        for Region { edge, .. } in &regions {
            edge.counter_grows("weir.sync.answered", 4).await;
        }
        let (ask, mut a, mut b) = (login("203.0.113.7"), regions[0].edge.client(), regions[1].edge.client());
        let ((at_a, logins_at_a), (at_b, logins_at_b)) = tokio::join!(drain(&mut a, &ask, 8), drain(&mut b, &ask, 8));
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_cannot_be_counted_gets_503() {
    let setup = Setup::with(rules_in("login"));
    let Region { edge, mut weir_sync, .. } = Region::start("fra1", "memory", setup, &[]).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    let mut client = edge.client();
    assert_eq!(client.send(&login("203.0.113.1")).await.status, 200);
    weir_sync.kill();
    for n in 2..=9 {
        let answer = client.send(&login(&format!("203.0.113.{n}"))).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!((1..=6).contains(&answer.number("retry-after")), "a second and the jitter: {answer:?}");
    }
    assert_eq!(client.send(&Ask::from("203.0.113.2")).await.status, 200, "everything but the login goes on");
    weir_sync.restart().await;
    edge.counter_grows("weir.sync.answered", 4).await;
    assert_eq!(client.send(&login("203.0.113.10")).await.status, 200);
}
