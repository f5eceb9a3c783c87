//! Overrides in a fleet: two regions, each an Envoy of two workers and a weir-sync, one Redis.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::Setup;
use weir_tests::redis::Redis;
use weir_tests::region::{self, Region};
use weir_tests::wait::until;

use crate::plugin::{rule, rules, with};

/// The longest time until an override is in force everywhere, from the answer to it.
pub(crate) const WITHIN: Duration = Duration::from_secs(1);
pub(crate) const REGIONS: [&str; 2] = ["fra1", "nyc1"];

/// A connection to each worker of each POP.
pub(crate) struct Clients(pub(crate) Vec<Client>);

impl Clients {
    /// Asks over every connection until all are answered with `status`; how long that took.
    pub(crate) async fn all_get(&mut self, status: u16, ask: &Ask, since: Instant) -> Duration {
        for client in &mut self.0 {
            let mut last = 0;
            while last != status {
                assert!(since.elapsed() < 10 * WITHIN, "{last} and not {status} after {:?}", since.elapsed());
                last = client.send(ask).await.status;
            }
        }
        since.elapsed()
    }
}

/// Two regions that run `document`.
pub(crate) async fn fleet(redis: &Redis, document: &Value) -> Vec<Region> {
    let setup = Setup::with(document.clone()).concurrency(2);
    let regions = Region::start_all(&REGIONS, &redis.url(), &setup, &[]).await;
    region::put(&regions, document).await;
    regions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_begin_and_end_in_two_regions_within_a_second() {
    let redis = Redis::start().await;
    // A client has one request, and no more while the test lasts.
    let document = rules([with(rule("few", "1/d", 1), "match", json!({"path": {"exact": "/few"}}))]);
    let regions = fleet(&redis, &document).await;
    let mut clients = Clients(regions.iter().flat_map(|region| region.edge.clients(2)).collect());
    let (mut fra, mut nyc) = (regions[0].operator(), regions[1].operator());
    let of = |path: &str, address: &str| Ask::get(path).forwarded_for(address);
    let (culprit, bystander) = (of("/", "203.0.113.7"), of("/", "198.51.100.7"));
    let (limited, customer) = (of("/few", "192.0.2.1"), of("/few", "192.0.2.2"));
    for ask in [&limited, &customer] {
        clients.all_get(429, ask, Instant::now()).await;
    }

    fra.order("/v1/bans", &json!({"address": "203.0.113.0/24", "for": "1h", "reason": "scans"})).await;
    let banned = clients.all_get(403, &culprit, Instant::now()).await;
    nyc.order("/v1/allows", &json!({"address": "192.0.2.1", "for": "1h"})).await;
    let allowed = clients.all_get(200, &limited, Instant::now()).await;
    let more = json!({"rate": "1000/s", "burst": 1_000, "for": "1h"});
    fra.order("/v1/keys/few/192.0.2.2/override", &more).await;
    let overridden = clients.all_get(200, &customer, Instant::now()).await;
    let key = json!({"rule": "few", "key": "192.0.2.2", "for": "1h"});
    let ban = nyc.order("/v1/bans", &key).await["id"].clone();
    let key_banned = clients.all_get(429, &customer, Instant::now()).await;
    fra.lift(&format!("/v1/bans/{ban}")).await;
    let key_lifted = clients.all_get(200, &customer, Instant::now()).await;
    nyc.lift("/v1/bans/203.0.113.0%2F24").await;
    let lifted = clients.all_get(200, &culprit, Instant::now()).await;
    fra.order("/v1/bans", &json!({"address": "203.0.113.7", "for": "1s"})).await;
    let banned_at = Instant::now();
    clients.all_get(403, &culprit, banned_at).await;
    let ended = clients.all_get(200, &culprit, banned_at + Duration::from_secs(1)).await;

    let took = [banned, allowed, overridden, key_banned, key_lifted, lifted, ended];
    println!(
        "a ban, an allow, an override, a ban of a key and its end, a lifted and an ended ban are in force at all \
         after {took:?}"
    );
    for took in took {
        assert!(took <= WITHIN, "{took:?}");
    }
    clients.all_get(200, &bystander, Instant::now()).await;
    until("every POP to run the last revision", async || {
        let (revision, pops) = fra.fleet().await;
        (pops == REGIONS.map(|name| (name.to_owned(), revision))).then_some(())
    })
    .await;
}
