//! A canary in a fleet: two regions, each an Envoy of two workers and a weir-sync, one Redis.

use std::time::Instant;

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::overrides::{Clients, REGIONS, WITHIN, fleet};
use crate::plugin::{rule, rules, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_limits_in_one_region_until_withdrawn_or_promoted() {
    let redis = Redis::start().await;
    let path = |rule, path: &str| with(rule, "match", json!({"path": {"exact": path}}));
    // A client has one request, and no more while the test lasts.
    let (old, tried) = (path(rule("old", "1/d", 1), "/old"), path(rule("tried", "1/d", 1), "/tried"));
    let regions = fleet(&redis, &rules([old.clone()])).await;
    let mut each: Vec<Clients> = regions.iter().map(|region| Clients(region.edge.clients(2))).collect();
    let [fra, nyc] = each.as_mut_slice() else { panic!("two regions") };
    let (mut here, mut there) = (regions[0].operator(), regions[1].operator());
    let of = |path: &str| Ask::get(path).forwarded_for("192.0.2.1");
    let (tried_path, old_path) = (of("/tried"), of("/old"));
    let candidate = rules([old, tried]);
    for clients in [&mut *fra, &mut *nyc] {
        clients.all_get(429, &old_path, Instant::now()).await;
        clients.all_get(200, &tried_path, Instant::now()).await;
    }

    // From the other region's weir-sync.
    there.begin_canary("region=fra1", &candidate).await;
    let limited = fra.all_get(429, &tried_path, Instant::now()).await;
    nyc.all_get(200, &tried_path, Instant::now()).await;
    let canary = until("the POP to report that it runs it", async || {
        let canary = there.get("/v1/rules/canary").await.json();
        (canary["running"] == json!(["fra1"])).then_some(canary)
    })
    .await;
    assert_eq!((&canary["region"], &canary["waiting"]), (&json!("fra1"), &json!([])));
    nyc.all_get(200, &tried_path, Instant::now()).await;
    fra.all_get(429, &old_path, Instant::now()).await;
    here.withdraw_canary().await;
    let let_through = fra.all_get(200, &tried_path, Instant::now()).await;

    here.begin_canary("pops=nyc1", &candidate).await;
    let by_name = nyc.all_get(429, &tried_path, Instant::now()).await;
    fra.all_get(200, &tried_path, Instant::now()).await;
    there.promote_canary().await;
    let promoted = fra.all_get(429, &tried_path, Instant::now()).await;
    nyc.all_get(429, &tried_path, Instant::now()).await;

    let took = [limited, let_through, by_name, promoted];
    println!("a canary limits, is withdrawn, limits by a POP's name and is promoted after {took:?}");
    for took in took {
        assert!(took <= WITHIN, "{took:?}");
    }
    for clients in [fra, nyc] {
        clients.all_get(429, &old_path, Instant::now()).await;
    }
    until("every POP to run the same", async || {
        let (revision, pops) = here.fleet().await;
        (pops == REGIONS.map(|name| (name.to_owned(), revision))).then_some(())
    })
    .await;
}
