//! Checks that wait for their turns in a queue of the whole fleet.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use weir_sync::config::Config;

use crate::gateway::{check, gateway, in_force};
use crate::rules::page;
use crate::stores::Shared;
use crate::{Server, until};

const TURN: Duration = Duration::from_millis(100);

/// True if every worker of the gateway has the rule: idle ones answer in turn, in a bounded number.
async fn are_all_ruled(server: &Server) -> bool {
    for _ in 0..64 {
        if check(server, &json!({"peek": true})).await["rule"] != "upstream" {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn queued_checks_at_two_gateways_go_on_one_by_one() {
    let store = Shared::new(Config::default().pop_ttl);
    let one = Server::start_over(gateway(), store.clone()).await;
    let other = Server::start_over(Config { replica: Some("b".into()), ..gateway() }, store.clone()).await;
    let rules = json!({"rules": [{"name": "upstream", "key": ["all"], "algorithm": "leaky_bucket", "rate": "10/s",
        "queue": 4, "strict": true}]});
    in_force(&one, &rules).await;
    until("it is so", async || page(&other, "/readyz").await.status == 200).await;
    until("it is so", async || are_all_ruled(&other).await).await;
    let begun = Instant::now();
    let checks = (0..8).map(|n| {
        let server = if n % 2 == 0 { &one } else { &other };
        async move { (check(server, &json!({})).await, begun.elapsed()) }
    });
    let (mut went, limited): (Vec<(Value, _)>, Vec<_>) =
        join_all(checks).await.into_iter().partition(|(answer, _)| answer["decision"] == "allow");
    went.sort_by_key(|(_, at)| *at);
    // While the checks come in, a turn may be over.
    assert!((5..8).contains(&went.len()), "{went:?}");
    for (n, (answer, at)) in (0..).zip(&went) {
        assert!(*at >= TURN * n, "turn {n} at {at:?}: {went:?}, {limited:?}");
        assert_eq!((&answer["limit"], &answer["status"]), (&json!(5), &json!(200)));
    }
    for (answer, _) in &limited {
        assert_eq!((&answer["decision"], &answer["retry_after_s"]), (&json!("limit"), &json!(1)), "{answer}");
    }
    // A cost takes as many turns at once; more than the queue has never fits.
    let dear = check(&one, &json!({"cost": 6})).await;
    assert_eq!(dear["decision"], "limit", "{dear}");
}
