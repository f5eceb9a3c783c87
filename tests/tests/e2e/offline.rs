//! Operators act while the store is out of reach, or after it has lost what it knew.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;
use weir_tests::client::Ask;
use weir_tests::envoy::Setup;
use weir_tests::operator::Operator;
use weir_tests::redis::{Redis, Setup as RedisSetup};
use weir_tests::region::Region;
use weir_tests::wait::until;

use crate::changes::{Clients, WITHIN, fleet};
use crate::plugin::{rule, rules, with};

fn of(path: &str, address: &str) -> Ask {
    Ask::get(path).forwarded_for(address)
}

/// A rule that allows a client one request, and no more while a test lasts.
fn few() -> serde_json::Value {
    rules([with(rule("few", "1/d", 1), "match", json!({"path": {"exact": "/few"}}))])
}

/// A weir-sync whose store is its memory is started again: it knows no rule set and no ban, and POPs run both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_lost_by_weir_sync_end_and_changes_replace_them() {
    let setup = Setup::with(few()).concurrency(2);
    let Region { edge, mut weir_sync, .. } = Region::start("fra1", "memory", setup, &[]).await;
    let mut operator = Operator::of(&weir_sync);
    operator.put_good(&few()).await;
    let mut clients = Clients(edge.clients(2));
    let (short, long) = (of("/", "203.0.113.7"), of("/", "203.0.113.8"));
    let banned_at = Instant::now();
    let ban = operator.order("/v1/bans", &json!({"address": "203.0.113.7", "for": "6s"})).await;
    assert!(ban["note"].as_str().is_some_and(|note| note.contains("the store is memory")), "{ban}");
    operator.order("/v1/bans", &json!({"address": "203.0.113.8", "for": "1h"})).await;
    clients.all_get(403, &short, Instant::now()).await;
    clients.all_get(403, &long, Instant::now()).await;

    weir_sync.kill();
    weir_sync.restart().await;
    let mut operator = Operator::of(&weir_sync);
    let ended = clients.all_get(200, &short, banned_at).await;
    assert!((Duration::from_secs(6)..Duration::from_secs(9)).contains(&ended), "{ended:?}");
    clients.all_get(403, &long, Instant::now()).await;
    until("weir-sync to list what its POPs run", async || {
        operator.get("/v1/fleet").await.json()["lost"].is_u64().then_some(())
    })
    .await;
    operator.enforce(false).await;
    clients.all_get(200, &long, Instant::now()).await;
    operator.put_good(&few()).await;
    clients.all_get(429, &of("/few", "192.0.2.1"), Instant::now()).await;
    clients.all_get(200, &long, Instant::now()).await;
}

/// Each weir-sync sends it to its own POPs, and to all others once the store is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_stays_operable_while_the_store_is_stopped() {
    let mut redis = Redis::start_with(RedisSetup { append_only: true, ..RedisSetup::default() }).await;
    let regions = fleet(&redis, &few()).await;
    let [mut fra, mut nyc] = [0, 1].map(|region| Clients(regions[region].edge.clients(2)));
    let mut operator = regions[0].operator();
    let limited = of("/few", "192.0.2.1");
    for clients in [&mut fra, &mut nyc] {
        clients.all_get(429, &limited, Instant::now()).await;
    }

    redis.kill();
    let (culprit, key) = (of("/", "203.0.113.7"), json!({"rule": "few", "key": "192.0.2.1", "for": "1h"}));
    let ban = operator.order("/v1/bans", &json!({"address": "203.0.113.0/24", "for": "1h"})).await;
    assert_eq!(ban["offline"], true, "{ban}");
    let banned = fra.all_get(403, &culprit, Instant::now()).await;
    let listed = operator.get("/v1/overrides").await.json();
    assert_eq!(listed["overrides"][0]["address"], "203.0.113.0/24", "{listed}");
    let seen = operator.get("/v1/fleet").await.json();
    assert!(seen["offline"].is_string(), "{seen}");
    until("its POP to run the change", async || {
        let seen = operator.get("/v1/fleet").await.json();
        let pops = seen["pops"].as_array().cloned().unwrap_or_default();
        let [pop] = pops.as_slice() else { panic!("one POP reports to it: {seen}") };
        (pop["name"] == "fra1" && pop["is_current"] == true).then_some(())
    })
    .await;
    operator.enforce(false).await;
    let off = fra.all_get(200, &culprit, Instant::now()).await;
    fra.all_get(200, &limited, Instant::now()).await;
    operator.enforce(true).await;
    let on = fra.all_get(403, &culprit, Instant::now()).await;
    operator.lift("/v1/bans/203.0.113.0%2F24").await;
    let free = fra.all_get(200, &culprit, Instant::now()).await;
    operator.order("/v1/bans", &key).await;
    operator.order("/v1/bans", &json!({"address": "203.0.113.7", "for": "1h"})).await;
    fra.all_get(403, &culprit, Instant::now()).await;
    nyc.all_get(200, &culprit, Instant::now()).await;
    println!("without the store: a ban after {banned:?}, off {off:?}, on {on:?}, lifted {free:?}");
    for took in [banned, off, on, free] {
        assert!(took <= 4 * WITHIN, "{took:?}");
    }

    redis.restart().await;
    let back = nyc.all_get(403, &culprit, Instant::now()).await;
    println!("the other region has the ban {back:?} after the store is back");
    fra.all_get(403, &culprit, Instant::now()).await;
    until("every POP to run the same revision", async || {
        let (revision, pops) = operator.fleet().await;
        (pops.len() == 2 && pops.iter().all(|(_, version)| *version == revision)).then_some(())
    })
    .await;
    let overrides = regions[1].operator().get("/v1/overrides").await.json();
    let kept: Vec<_> = overrides["overrides"].as_array().into_iter().flatten().map(|order| &order["kind"]).collect();
    assert_eq!(kept, ["ban", "ban"], "{overrides}");
    sleep(WITHIN).await;
    fra.all_get(429, &limited, Instant::now()).await;
    nyc.all_get(429, &limited, Instant::now()).await;
}
