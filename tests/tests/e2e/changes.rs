//! Changes in a running fleet, as operators make them: rules, the kill switch, overrides, canaries. Each is in force at
//! every worker of two regions within a second of its answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{drain, open_loop_until};
use weir_tests::redis::Redis;
use weir_tests::region::{self, Region};
use weir_tests::wait::until;

use crate::plugin::{rule, rules, with};

/// The longest time until a change is in force everywhere, from the answer to it.
pub(crate) const WITHIN: Duration = Duration::from_secs(1);
const REGIONS: [&str; 2] = ["fra1", "nyc1"];

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

/// Two regions that run `document`, each an Envoy of two workers and a weir-sync.
pub(crate) async fn fleet(redis: &Redis, document: &Value) -> Vec<Region> {
    let setup = Setup::with(document.clone()).concurrency(2);
    let regions = Region::start_all(&REGIONS, &redis.url(), &setup, &[]).await;
    region::put(&regions, document).await;
    regions
}

/// Asserts [`WITHIN`] of the median: a busy machine delays some.
fn assert_quick(what: &str, mut took: Vec<Duration>) {
    println!("{what}: in force everywhere after {took:?}");
    took.sort();
    assert!(took[took.len() / 2] <= WITHIN && took.iter().all(|took| *took <= 4 * WITHIN), "{what}: {took:?}");
}

/// Waits until every POP runs the revision that is current at this weir-sync.
async fn all_current(region: &Region) {
    let mut operator = region.operator();
    until("every POP to run the last revision", async || {
        let (revision, pops) = operator.fleet().await;
        (pops == REGIONS.map(|name| (name.to_owned(), revision))).then_some(())
    })
    .await;
}

fn at(path: &str, rule: Value) -> Value {
    with(rule, "match", json!({"path": {"exact": path}}))
}

/// A rule that gives a client one request, and no more while a test lasts.
fn single(name: &str) -> Value {
    at(&format!("/{name}"), rule(name, "1/d", 1))
}

/// Takes `count` of the 20 tokens that a client has under the rule `few` at each POP, each POP's its own; what is left
/// of them there. While more than half of them are, no report lets the fleet give it back.
async fn take_few(regions: &[Region], count: usize) -> Vec<u64> {
    let mut left = vec![];
    for (n, region) in (1..).zip(regions) {
        let ask = Ask::get("/few").forwarded_for(&format!("198.51.100.{n}"));
        let mut client = region.edge.client();
        // The worker of this connection may not have the last change yet. While rules are off, none counts.
        let mut answer = until("rules to be on", async || {
            let answer = client.send(&ask).await;
            (!answer.header("x-ratelimit-remaining").is_empty()).then_some(answer)
        })
        .await;
        for _ in 1..count {
            answer = client.send(&ask).await;
            assert_eq!(answer.status, 200);
        }
        left.push(answer.number("x-ratelimit-remaining"));
    }
    left
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_change_within_a_second_and_others_go_on() {
    let redis = Redis::start().await;
    let kept = at("/kept", rule("kept", "1000/s", 1_000));
    let few = with(at("/few", rule("few", "1/h", 20)), "response", json!({"on_allowed": true}));
    let document = |rate, burst| rules([at("/changed", rule("changed", rate, burst)), kept.clone(), few.clone()]);
    let (wide, narrow) = (document("1000/s", 1_000), document("1/h", 1));
    let regions = fleet(&redis, &wide).await;
    let mut clients = Clients(regions.iter().flat_map(|region| region.edge.clients(2)).collect());
    let (stop, stopped) = watch::channel(false);
    let load = regions.iter().map(|region| {
        let (mut client, ask, stopped) = (region.edge.client(), Ask::get("/kept"), stopped.clone());
        tokio::spawn(async move { open_loop_until(&mut client, &ask, 80, stopped).await })
    });
    let load = load.collect::<Vec<_>>();
    let changed = Ask::get("/changed").forwarded_for("203.0.113.7");
    let (mut fra, mut nyc) = (regions[0].operator(), regions[1].operator());
    assert_eq!(take_few(&regions, 5).await, [15; 2]);

    let lower = nyc.put_good(&narrow).await;
    let mut took = vec![clients.all_get(429, &changed, Instant::now()).await];
    assert_eq!(take_few(&regions, 1).await, [14; 2], "the bucket of a rule that stays keeps its level");
    let off = nyc.enforce(false).await;
    took.push(clients.all_get(200, &changed, Instant::now()).await);
    let on = nyc.enforce(true).await;
    took.push(clients.all_get(429, &changed, Instant::now()).await);
    assert_eq!(take_few(&regions, 1).await, [13; 2], "while rules are off they count nothing, and forget nothing");
    let higher = fra.put_good(&wide).await;
    took.push(clients.all_get(200, &changed, Instant::now()).await);
    // At another weir-sync than the one that put it last.
    let back = nyc.roll_back(lower).await;
    took.push(clients.all_get(429, &changed, Instant::now()).await);
    assert_eq!(take_few(&regions, 1).await, [12; 2]);

    assert!([lower, off, on, higher, back].is_sorted(), "each change is a version of its own");
    stop.send_replace(true);
    for run in load {
        let run = run.await.unwrap_or_else(|e| panic!("the load broke off: {e}"));
        assert_eq!(run.tally.admitted(), run.tally.total(), "the rule that stays: {:?}", run.tally);
    }
    assert_quick("a lower limit, all rules off and on, a higher limit, a rollback", took);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_begin_and_end_within_a_second() {
    let redis = Redis::start().await;
    let regions = fleet(&redis, &rules([single("few")])).await;
    let mut clients = Clients(regions.iter().flat_map(|region| region.edge.clients(2)).collect());
    let (mut fra, mut nyc) = (regions[0].operator(), regions[1].operator());
    let of = |path: &str, address: &str| Ask::get(path).forwarded_for(address);
    let (culprit, bystander) = (of("/", "203.0.113.7"), of("/", "198.51.100.7"));
    let (limited, customer) = (of("/few", "192.0.2.1"), of("/few", "192.0.2.2"));
    for ask in [&limited, &customer] {
        clients.all_get(429, ask, Instant::now()).await;
    }

    fra.order("/v1/bans", &json!({"address": "203.0.113.0/24", "for": "1h", "reason": "scans"})).await;
    let mut took = vec![clients.all_get(403, &culprit, Instant::now()).await];
    nyc.order("/v1/allows", &json!({"address": "192.0.2.1", "for": "1h"})).await;
    took.push(clients.all_get(200, &limited, Instant::now()).await);
    let more = json!({"rate": "1000/s", "burst": 1_000, "for": "1h"});
    fra.order("/v1/keys/few/192.0.2.2/override", &more).await;
    took.push(clients.all_get(200, &customer, Instant::now()).await);
    let key = json!({"rule": "few", "key": "192.0.2.2", "for": "1h"});
    let ban = nyc.order("/v1/bans", &key).await["id"].clone();
    took.push(clients.all_get(429, &customer, Instant::now()).await);
    fra.lift(&format!("/v1/bans/{ban}")).await;
    took.push(clients.all_get(200, &customer, Instant::now()).await);
    nyc.lift("/v1/bans/203.0.113.0%2F24").await;
    took.push(clients.all_get(200, &culprit, Instant::now()).await);
    fra.order("/v1/bans", &json!({"address": "203.0.113.7", "for": "4s"})).await;
    let banned_at = Instant::now();
    clients.all_get(403, &culprit, banned_at).await;
    took.push(clients.all_get(200, &culprit, banned_at + Duration::from_secs(4)).await);
    assert_quick("a ban, an allow, a rate, a ban of a key and its end, a lifted ban, an ended ban", took);
    clients.all_get(200, &bystander, Instant::now()).await;
    all_current(&regions[0]).await;

    redis::cmd("FLUSHALL").query_async::<()>(&mut redis.connection().await).await.unwrap();
    let key = json!({"rule": "few", "key": "198.51.100.7", "for": "1h"});
    nyc.order("/v1/bans", &key).await;
    let overrides = nyc.get("/v1/overrides").await.json()["overrides"].clone();
    assert!(overrides.as_array().unwrap().iter().any(|one| one["key"] == key["key"]), "{overrides}");
    let ask = of("/few", "198.51.100.7");
    until("a ban of a key without rules", async || {
        (is_banned(&regions[0].edge, &ask).await && is_banned(&regions[1].edge, &ask).await).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_limits_in_one_region_until_withdrawn_or_promoted() {
    let redis = Redis::start().await;
    let regions = fleet(&redis, &rules([single("old")])).await;
    let [mut fra, mut nyc] = [0, 1].map(|n| Clients(regions[n].edge.clients(2)));
    let (mut here, mut there) = (regions[0].operator(), regions[1].operator());
    let [tried, old] = ["/tried", "/old"].map(|path| Ask::get(path).forwarded_for("192.0.2.1"));
    let candidate = rules([single("old"), single("tried")]);
    for clients in [&mut fra, &mut nyc] {
        clients.all_get(429, &old, Instant::now()).await;
        clients.all_get(200, &tried, Instant::now()).await;
    }

    // From the other region's weir-sync.
    there.begin_canary("region=fra1", &candidate).await;
    let mut took = vec![fra.all_get(429, &tried, Instant::now()).await];
    nyc.all_get(200, &tried, Instant::now()).await;
    let canary = until("the POP to report that it runs it", async || {
        let canary = there.get("/v1/rules/canary").await.json();
        (canary["running"] == json!(["fra1"])).then_some(canary)
    })
    .await;
    assert_eq!((&canary["region"], &canary["waiting"]), (&json!("fra1"), &json!([])));
    here.withdraw_canary().await;
    took.push(fra.all_get(200, &tried, Instant::now()).await);

    here.begin_canary("pops=nyc1", &candidate).await;
    took.push(nyc.all_get(429, &tried, Instant::now()).await);
    fra.all_get(200, &tried, Instant::now()).await;
    there.promote_canary().await;
    took.push(fra.all_get(429, &tried, Instant::now()).await);
    assert_quick("a canary, its end, another by a POP's name, its promotion", took);
    for clients in [&mut fra, &mut nyc] {
        clients.all_get(429, &old, Instant::now()).await;
        clients.all_get(429, &tried, Instant::now()).await;
    }
    all_current(&regions[0]).await;
}

/// Asks once; true if the answer is that of a ban for an hour, and not that of a client that only asked too fast.
async fn is_banned(edge: &Envoy, ask: &Ask) -> bool {
    let answer = edge.client().send(ask).await;
    assert!([200, 429].contains(&answer.status), "{answer:?}");
    answer.status == 429 && (3_540..=3_600).contains(&answer.number("retry-after"))
}

/// Asks until it is let through; how long after `since` that was.
async fn let_through(edge: &Envoy, ask: &Ask, since: Instant) -> Duration {
    let mut client = edge.client();
    until("it to be let through", async || (client.send(ask).await.status == 200).then(|| since.elapsed())).await
}

/// A client that a penalty bans at one POP is refused at all, and remembered by their caches. Then one that a strict
/// rule has nothing left for.
// I4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_reaches_every_region_within_a_second() {
    let redis = Redis::start().await;
    let penalty = json!({"after": 5, "within": "1m", "deny_for": "1h"});
    let login = at("/login", with(rule("login", "2/h", 2), "strict", json!(true)));
    let regions = fleet(&redis, &rules([with(rule("some", "1/m", 10), "penalty", penalty), login])).await;
    let [a, b] = [&regions[0].edge, &regions[1].edge];
    let (culprit, bystander) = (Ask::from("203.0.113.7"), Ask::from("203.0.113.8"));
    let mut operator = regions[1].operator();
    let mut took = Vec::new();
    for _ in 0..3 {
        for ask in [&culprit, &bystander] {
            until("both to ban it", async || {
                drain(&mut a.client(), ask, 50).await;
                (is_banned(a, ask).await && is_banned(b, ask).await).then_some(())
            })
            .await;
        }
        let since = Instant::now();
        operator.reset("some", "203.0.113.7").await;
        let (at_a, at_b) = tokio::join!(let_through(a, &culprit, since), let_through(b, &culprit, since));
        took.push(at_a.max(at_b));
        assert!(is_banned(a, &bystander).await && is_banned(b, &bystander).await, "another is not reset");
    }
    assert_quick("a reset", took);

    let login = Ask::get("/login").forwarded_for("203.0.113.9");
    drain(&mut a.client(), &login, 3).await;
    assert_eq!(b.client().send(&login).await.status, 429, "the budget is one");
    let since = Instant::now();
    operator.reset("login", "203.0.113.9").await;
    let took = let_through(b, &login, since).await;
    assert!(took < 2 * WITHIN, "of a strict rule after {took:?}");
}
