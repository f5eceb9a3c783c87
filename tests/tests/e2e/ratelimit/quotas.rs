//! Envoy's own filter `rate_limit_quota`, as envoy/gateway/quotas.yaml sets it up: it decides by itself, and what
//! it lets through is of one quota with the other protocols.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::open_loop;
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::server::Server;
use weir_tests::weir_sync::TOKEN;

use super::{Gateway, in_force};
use crate::fleet::measuring;
use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// Time for which everybody asks: some of Envoy's reports, one in 5 s.
const LASTS: Duration = Duration::from_secs(24);

/// An Envoy with the filter of envoy/gateway/quotas.yaml.
async fn edge(gateway: &Gateway, upstream: &Server) -> Envoy {
    gateway.envoy("quotas.yaml", upstream, Value::Null).await
}

/// Asks `/v1/check` this many times a second; returns when it was let through, from `began` on.
async fn checks(began: Instant, mut client: Client, asked: Value, per_second: u32) -> Vec<Duration> {
    let ask = Ask::new(Method::POST, "/v1/check").header("content-type", "application/json");
    let ask = ask.body(asked.to_string());
    let (mut allowed, mut sent) = (Vec::new(), 0);
    while began.elapsed() < LASTS {
        if client.send(&ask).await.json()["decision"] == "allow" {
            allowed.push(began.elapsed());
        }
        sent += 1;
        sleep_until(began + Duration::from_secs(1) / per_second * sent).await;
    }
    allowed
}

/// Sends `ask` this many times a second; returns when it was let through, from `began` on.
async fn requests(began: Instant, mut client: Client, ask: Ask, per_second: u32) -> Vec<Duration> {
    let run = open_loop(&mut client, &ask, per_second, LASTS).await;
    run.assert_only_decisions();
    run.admitted_at.iter().map(|at| at.duration_since(began.into_std())).collect()
}

fn count(admitted: &[Duration]) -> f64 {
    f64::from(u32::try_from(admitted.len()).expect("some hundreds"))
}

/// Panics if at some time more had been let through than `burst`, and `rate` a second.
fn within(mut admitted: Vec<Duration>, rate: f64, burst: f64) {
    admitted.sort_unstable();
    for (index, at) in admitted.iter().enumerate() {
        let (found, given) = (count(&admitted[..=index]), burst + rate * at.as_secs_f64());
        assert!(found <= given, "{found} were admitted within {at:?}, {given:.1} at most");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_quotas_and_v1_check_share_a_bucket() {
    const RATE: f64 = 20.0;
    const BURST: f64 = 20.0;
    let _place = measuring().await;
    let gateway = Gateway::start("fra", "memory", &[]).await;
    let per_key = with(rule("per-key", "20/s", 20), "key", json!([{"header": "x-api-key"}]));
    Operator::of(&gateway.weir_sync).put_good(&rules([per_key])).await;
    in_force(&gateway.weir_sync, &["gateway/fra"]).await;
    let upstream = Server::obedient().await;
    let envoy = edge(&gateway, &upstream).await;

    let asked = json!({"headers": {"x-api-key": "alice"}});
    let check = Client::of_port(gateway.weir_sync.address().port());
    let began = Instant::now();
    let (by_filter, by_check) = tokio::join!(
        requests(began, envoy.client(), Ask::get("/").header("x-api-key", "alice"), 60),
        checks(began, check, asked, 30),
    );
    println!("the filter {}, /v1/check {}, of {}", by_filter.len(), by_check.len(), BURST + RATE * LASTS.as_secs_f64());
    // What Envoy reports late counts late: a burst more, and what comes until the next report and a second.
    within([by_filter.clone(), by_check.clone()].concat(), RATE, 2.0 * BURST + 6.0 * RATE);
    let given = BURST + RATE * LASTS.as_secs_f64();
    let (of_filter, of_check) = (count(&by_filter), count(&by_check));
    assert!(of_filter + of_check >= 0.85 * given, "{of_filter} and {of_check} of {given}");
    assert!(of_filter > 0.15 * given && of_check > 0.15 * given, "{of_filter} and {of_check} of {given}");
}

/// The keys of gateways and Envoys are hidden by one secret, or they would have two budgets.
// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_protocols_share_a_strict_rule_exactly() {
    const RATE: f64 = 10.0;
    const BURST: f64 = 20.0;
    let _place = measuring().await;
    let (redis, secret) = (Redis::start().await, tempfile::NamedTempFile::new().expect("a file"));
    std::fs::write(secret.path(), TOKEN).expect("a file that can be written");
    let hidden = ["--gateway-key-secret-file", secret.path().to_str().expect("a path")];
    let fra = Gateway::start("fra", &redis.url(), &hidden).await;
    let nyc = Gateway::start("nyc", &redis.url(), &hidden).await;
    let strict = with(rule("per-key", "10/s", 20), "strict", true.into());
    let quota = rules([with(strict, "key", json!([{"header": "x-api-key"}]))]);
    Operator::of(&fra.weir_sync).put_good(&quota).await;
    in_force(&fra.weir_sync, &["gateway/fra", "gateway/nyc"]).await;
    let upstream = Server::obedient().await;
    let by_quota = edge(&fra, &upstream).await;
    let setup = Setup::with(synced(quota, "fra1")).node("fra1").cluster("weir-sync", fra.weir_sync.address());
    let by_module = Envoy::in_touch(setup).await;

    let asked = json!({"headers": {"x-api-key": "alice"}});
    let ask = Ask::get("/").header("x-api-key", "alice");
    let check = Client::of_port(nyc.weir_sync.address().port());
    let began = Instant::now();
    // Each at a rate of its own: if all asked at the same multiple of the rule's rate, the protocol that comes first
    // after one token would come first after every token.
    let (by_filter, by_module, by_check) = tokio::join!(
        requests(began, by_quota.client(), ask.clone(), 19),
        requests(began, by_module.client(), ask, 23),
        checks(began, check, asked, 17),
    );
    println!("the filter {}, the module {}, /v1/check {}", by_filter.len(), by_module.len(), by_check.len());
    within([by_filter.clone(), by_module.clone(), by_check.clone()].concat(), RATE, BURST);
    let given = BURST + RATE * LASTS.as_secs_f64();
    let all = count(&by_filter) + count(&by_module) + count(&by_check);
    assert!(all >= 0.8 * given, "{all} of {given}");
    // Their parts of a budget that all acquire from differ, but none is left out.
    for (protocol, admitted) in [("the filter", by_filter), ("the module", by_module), ("/v1/check", by_check)] {
        assert!(count(&admitted) > 0.1 * given, "{protocol}: {} of {given}", admitted.len());
    }
}
