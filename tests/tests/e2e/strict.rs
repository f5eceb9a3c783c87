//! Strict rules in real Envoys: requests are held for one exchange, and the quota is never overshot.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::{repeat, together};
use weir_tests::redis::Redis;
use weir_tests::redis_cluster::Cluster;
use weir_tests::server::Server;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{one, rule, rules, with};
use crate::sync::synced;

/// Five a minute for each address, never more.
fn login(pop: &str) -> Value {
    let mut plugin = one("login", "5/m", 5);
    plugin["rules"][0]["strict"] = json!(true);
    synced(plugin, pop)
}

// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_obedient_client_is_admitted_at_its_next_try() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let mut plugin = one("login", "15/m", 1);
    plugin["rules"][0]["strict"] = json!(true);
    let edge = Envoy::in_touch(Setup::with(synced(plugin, "fra1")).pop("fra1", &weir_sync)).await;
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
    assert_eq!(client.send(&ask).await.status, 200);
    for _ in 0..2 {
        let refused = client.send(&ask).await;
        let after_s = refused.number("retry-after");
        assert!(refused.status == 429 && (1..=4).contains(&after_s), "{refused:?}");
        assert_eq!(refused.header("ratelimit"), format!(r#""login";r=0;t={after_s}"#));
        assert_eq!(refused.number("x-ratelimit-reset"), after_s);
        sleep(Duration::from_secs(after_s)).await;
        let next = client.send(&ask).await;
        assert_eq!(next.status, 200, "{next:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_states_what_is_left_of_the_budget() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let quota = json!({"name": "monthly", "key": ["client_address"], "algorithm": "quota", "rate": "5/month"});
    let strict = with(rule("login", "5/h", 5), "strict", json!(true));
    for (host, address) in Host::BOTH.into_iter().zip(["203.0.113.7", "203.0.113.8"]) {
        for rule in [&strict, &quota] {
            let plugin = synced(rules([with(rule.clone(), "response", json!({"on_allowed": true}))]), "fra1");
            let edge = Envoy::in_touch(Setup::with(plugin).pop("fra1", &weir_sync).host(host)).await;
            let (mut client, ask) = (edge.client(), Ask::from(address));
            for left in ["4", "3", "2", "1", "0"] {
                let answer = client.send(&ask).await;
                assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, left), "{answer:?}");
            }
            assert_eq!(client.send(&ask).await.status, 429, "{host:?}");
        }
    }
}

/// A third of what its windows have, and over some ten of their ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_below_the_limit_pass_at_a_windows_end() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let asked = async |host: Host, pop: &str, address: &str| {
        let rule = json!({"name": "api", "key": ["client_address"], "algorithm": "fixed_window",
            "rate": "1000/s", "strict": true});
        let mut plugin = synced(json!({"rules": [rule]}), pop);
        plugin["sync"]["timeout_ms"] = json!(2_000);
        let edge = Envoy::in_touch(Setup::with(plugin).pop(pop, &weir_sync).host(host)).await;
        let (mut client, ask, begin) = (edge.client(), Ask::from(address), Instant::now());
        for n in 0..3_000 {
            let answer = client.send(&ask).await;
            let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_micros();
            assert_eq!(answer.status, 200, "request {n} at {pop}, {at} us into its window: {answer:?}");
            sleep((begin + n * Duration::from_secs(1) / 300).saturating_duration_since(Instant::now())).await;
        }
    };
    tokio::join!(asked(Host::Wasm, "fra1", "203.0.113.7"), asked(Host::Native, "fra2", "203.0.113.8"));
}

/// weir-sync refused it nothing: it was not asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_pop_resumes_at_once() {
    const FALLBACK_MS: u64 = 1_000;
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let mut plugin = login("fra1");
    plugin["sync"]["fallback_after_ms"] = json!(FALLBACK_MS);
    let edge = Envoy::in_touch(Setup::with(plugin).pop("fra1", &weir_sync)).await;
    let mut client = edge.client();
    assert_eq!(client.send(&Ask::from("203.0.113.1")).await.status, 200);
    for n in 2..=4 {
        edge.freeze().await;
        // Sent while it stands still, so that it comes before the answer to any report.
        let ask = Ask::from(&format!("203.0.113.{n}"));
        let (answer, ()) = tokio::join!(client.send(&ask), async {
            sleep(Duration::from_millis(3 * FALLBACK_MS)).await;
            edge.thaw();
        });
        assert_eq!(answer.status, 200, "{answer:?}");
        edge.counter_grows("weir.sync.answered", 4).await;
    }
}

/// Behind the cluster `weir-sync` as it is shipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_requests_miss_a_weir_sync_that_dies() {
    let cluster = Cluster::start_masters().await;
    let store = cluster.url();
    let (mut one, mut other) = (WeirSync::start("fra1", &store).await, WeirSync::start("fra1", &store).await);
    for weir_sync in [&mut one, &mut other] {
        weir_sync.answers("/readyz", 200).await;
    }
    let setup = Setup::with(login("fra1")).node("fra1").as_shipped(&[one.address(), other.address()]);
    let edge = Envoy::start(setup).await;
    edge.stat_reaches("cluster.weir-sync.membership_healthy", 2).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    let mut client = edge.client();
    let (mut failed, mut slowest, mut killed_at) = (Vec::new(), Duration::ZERO, None);
    for n in 0..420u32 {
        if n == 20 {
            one.kill();
            killed_at = Some(Instant::now());
        }
        let asked = Instant::now();
        let answer = client.send(&Ask::from(&format!("203.0.{}.{}", n / 250, n % 250))).await;
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        slowest = slowest.max(asked.elapsed());
        if answer.status == 503 {
            failed.push(killed_at.map(|at| at.elapsed()));
        }
        sleep(Duration::from_millis(20)).await;
    }
    // Of 400, half a hundredth.
    assert!(failed.len() <= 2, "failed at {failed:?} after the kill, the slowest took {slowest:?}");
    let is_late = |at: &Option<Duration>| at.is_none_or(|at| at > Duration::from_secs(2));
    assert!(!failed.iter().any(is_late), "failed at {failed:?} after the kill");
}

/// The limit of a client's requests in flight.
const IN_FLIGHT: usize = 3;
/// For how long one may be, and a lease.
const EXPIRES_S: u64 = 3;
const LEASE: Duration = Duration::from_secs(2);

async fn counting_in_flight(pop: &str, weir_sync: &WeirSync, upstream: &Server) -> Envoy {
    let rule = json!({"name": "jobs", "key": ["client_address"], "algorithm": "concurrency", "limit": IN_FLIGHT,
        "expires_after_s": EXPIRES_S, "strict": true});
    let setup = Setup::with(synced(json!({"rules": [rule]}), pop)).pop(pop, weir_sync);
    Envoy::in_touch(setup.upstream(upstream.address())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pops_share_the_limit_of_requests_in_flight() {
    let (redis, upstream) = (Redis::start().await, Server::obedient().await);
    let weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let a = counting_in_flight("fra1", &weir_sync, &upstream).await;
    let b = counting_in_flight("nyc1", &weir_sync, &upstream).await;
    let slow = Ask::from("203.0.113.7").header("x-late-ms", "1500");
    let (at_a, at_b) =
        tokio::join!(together(a.clients(5), |_| vec![slow.clone()]), together(b.clients(5), |_| vec![slow.clone()]));
    at_a.assert_only_decisions();
    at_b.assert_only_decisions();
    assert_eq!(at_a.admitted() + at_b.admitted(), IN_FLIGHT, "{at_a:?}, {at_b:?}");
    // All have ended. One after the other, there is always room, and wherever it is asked for.
    let ask = Ask::from("203.0.113.7");
    for edge in [&a, &b, &a] {
        let mut client = edge.client();
        until("room for one", async || (client.send(&ask).await.status == 200).then_some(())).await;
        assert_eq!(repeat(&mut client, &ask, 20).await.admitted(), 20);
    }
    // All places are taken at one, which dies.
    let before = upstream.count();
    let never = Ask::from("203.0.113.7").header("x-late-ms", "60000");
    let in_flight: Vec<_> = (a.clients(IN_FLIGHT).into_iter())
        .map(|mut client| {
            let never = never.clone();
            // The last free place may still be on its way back from the other.
            tokio::spawn(async move { while client.send(&never).await.status == 429 {} })
        })
        .collect();
    until("they are in flight", async || (upstream.count() >= before + IN_FLIGHT).then_some(())).await;
    drop(a);
    let (died_at, mut client) = (Instant::now(), b.client());
    for task in in_flight {
        task.abort();
    }
    let refused = client.send(&ask).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"), "{refused:?}");
    until("its places are free", async || (client.send(&ask).await.status == 200).then_some(())).await;
    let least = Duration::from_secs(EXPIRES_S);
    assert!((least..least + 3 * LEASE).contains(&died_at.elapsed()), "{:?}", died_at.elapsed());
}

/// A turn of the fleet's queue, and how many have a place in it.
const TURN: Duration = Duration::from_millis(200);
const PLACES: usize = 6;

async fn one_by_one(pop: &str, weir_sync: &WeirSync) -> Envoy {
    let rule = json!({"name": "upstream", "key": ["all"], "algorithm": "leaky_bucket", "rate": "5/s",
        "queue": PLACES - 1, "strict": true});
    let plugin = synced(json!({"rules": [rule]}), pop);
    Envoy::in_touch(Setup::with(plugin).pop(pop, weir_sync).concurrency(2)).await
}

// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pops_release_queued_requests_one_by_one() {
    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let (a, b) = (one_by_one("fra1", &weir_sync).await, one_by_one("nyc1", &weir_sync).await);
    let (mut asked, begin) = (JoinSet::new(), Instant::now());
    for mut client in a.clients(PLACES).into_iter().chain(b.clients(PLACES)) {
        asked.spawn(async move {
            let answer = client.send(&Ask::from("203.0.113.7")).await;
            (answer.status, begin.elapsed())
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_unstable_by_key(|(_, at)| *at);
    let at_status = |status| answers.iter().filter(move |(found, _)| *found == status).map(|(_, at)| *at);
    let went: Vec<_> = at_status(200).collect();
    assert_eq!(went.len() + at_status(429).count(), 2 * PLACES, "{answers:?}");
    // While requests come in, a turn or two may be over.
    assert!((PLACES..PLACES + 4).contains(&went.len()), "{answers:?}");
    for (turn, at) in (0..).zip(&went) {
        // Never before its turn; late by the answer's way, a tick, and what a busy machine costs.
        assert!((TURN * turn..TURN * turn + Duration::from_secs(2)).contains(at), "turn {turn}: {answers:?}");
    }
}
