//! All protocols at once: requests through Envoy's own filter, Weir's module and `/v1/check` share one quota.
//!
//! Each of the three asks for the same client all the time, and for many times its quota. The rule is strict, and
//! its acquires wait for a replica, so the quota holds at every moment from the first request on, whatever happens to
//! the store.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::operator::Operator;
use weir_tests::redis_sentinels::Sentinels;
use weir_tests::server::Server;
use weir_tests::wait::until;

use super::{Gateway, in_force, login};
use crate::fleet::measuring;
use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// The quota of the one client.
const RATE: u32 = 5;
const BURST: u32 = 10;
const CLIENT: &str = "203.0.113.7";
/// Time for which everybody asks, and the time at which the master dies.
const LASTS: Duration = Duration::from_secs(26);
const KILLED_AT: Duration = Duration::from_secs(6);
/// Time for which the protocols may deny after the new master has a replica.
const BACK_WITHIN: Duration = Duration::from_secs(3);
/// Between the answer to a request and the next request.
const PAUSE: Duration = Duration::from_millis(20);

/// The one rule.
fn quota() -> Value {
    let rule = with(rule("login", &format!("{RATE}/s"), BURST), "strict", true.into());
    rules([with(rule, "match", json!({"path": {"exact": "/login"}}))])
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Admitted,
    Limited,
    /// It could not be checked.
    Unchecked,
}

/// Asks until the end; returns the time of each answer, from `began` on.
async fn asks(began: Instant, mut ask: impl AsyncFnMut() -> Fate) -> Vec<(Duration, Fate)> {
    let mut answers = Vec::new();
    while began.elapsed() < LASTS {
        let fate = ask().await;
        answers.push((began.elapsed(), fate));
        sleep(PAUSE).await;
    }
    answers
}

/// Asks an Envoy, which answers with `unchecked` if a request cannot be checked.
async fn asks_envoy(began: Instant, mut client: Client, unchecked: u16) -> Vec<(Duration, Fate)> {
    asks(began, async || match client.send(&login(CLIENT)).await.status {
        200 => Fate::Admitted,
        429 => Fate::Limited,
        status => {
            assert_eq!(status, unchecked);
            Fate::Unchecked
        }
    })
    .await
}

/// Asks `/v1/check`.
async fn asks_gateway(began: Instant, mut client: Client) -> Vec<(Duration, Fate)> {
    let asked = json!({"method": "POST", "path": "/login", "address": CLIENT});
    let ask = Ask::new(Method::POST, "/v1/check").header("content-type", "application/json");
    let ask = ask.body(asked.to_string());
    asks(began, async || match client.send(&ask).await.json()["decision"].as_str() {
        Some("allow") => Fate::Admitted,
        Some("limit") => Fate::Limited,
        Some("deny") => Fate::Unchecked,
        other => panic!("no decision but {other:?}"),
    })
    .await
}

fn admitted(answers: &[(Duration, Fate)]) -> impl Iterator<Item = Duration> {
    answers.iter().filter(|(_, fate)| *fate == Fate::Admitted).map(|(at, _)| *at)
}

/// The quota of `span`.
fn given(span: Duration) -> f64 {
    f64::from(BURST) + f64::from(RATE) * span.as_secs_f64()
}

// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_protocols_share_one_quota_while_redis_fails_over() {
    let _place = measuring().await;
    let mut group = Sentinels::start_with(2).await;
    let waits = ["--store-wait-ms", "100"];
    let fra = Gateway::start("fra", &group.url(), &waits).await;
    let nyc = Gateway::start("nyc", &group.url(), &waits).await;
    Operator::of(&fra.weir_sync).put_good(&quota()).await;
    in_force(&fra.weir_sync, &["gateway/fra", "gateway/nyc"]).await;
    let upstream = Server::obedient().await;
    let asking = fra.edge(&upstream).await;
    let setup = Setup::with(synced(quota(), "fra1")).node("fra1").cluster("weir-sync", fra.weir_sync.address());
    let deciding = Envoy::start(setup).await;
    deciding.counter_grows("weir.sync.answered", 4).await;

    let began = Instant::now();
    let failing = async {
        sleep_until(began + KILLED_AT).await;
        group.servers[0].kill();
        until("another server to take over", async || group.master().await.filter(|master| *master != 0)).await;
        let taken_over = began.elapsed();
        until("it to have a replica", async || group.is_in_step(0).await.then_some(())).await;
        (taken_over, began.elapsed())
    };
    let (by_filter, by_module, by_check, (taken_over, in_step)) = tokio::join!(
        asks_envoy(began, asking.client(), 500),
        asks_envoy(began, deciding.client(), 503),
        asks_gateway(began, Client::of_port(nyc.weir_sync.address().port())),
        failing,
    );

    let protocols = [("the filter", &by_filter), ("the module", &by_module), ("/v1/check", &by_check)];
    for (protocol, answers) in protocols {
        let of = |fate| answers.iter().filter(|(_, found)| *found == fate).count();
        let (limited, unchecked) = (of(Fate::Limited), of(Fate::Unchecked));
        println!("{protocol}: {} admitted, {limited} limited, {unchecked} unchecked", admitted(answers).count());
        let (before, after) = (admitted(answers).any(|at| at < KILLED_AT), admitted(answers).any(|at| at > in_step));
        assert!(before && after, "{protocol} admitted nothing before the fail-over ({before}) or after it ({after})");
        assert!(limited > 0, "{protocol} was asked for more than the quota");
    }
    let mut all: Vec<_> = protocols.into_iter().flat_map(|(_, answers)| admitted(answers)).collect();
    all.sort_unstable();
    for (index, at) in all.iter().enumerate() {
        let count = f64::from(u32::try_from(index + 1).expect("some hundreds"));
        assert!(count <= given(*at), "{count} were admitted within {at:?}, {:.1} at most", given(*at));
    }
    let out = in_step.saturating_sub(KILLED_AT) + BACK_WITHIN;
    let least = given(LASTS.saturating_sub(out));
    let count = f64::from(u32::try_from(all.len()).expect("some hundreds"));
    println!(
        "{count} of {:.0} admitted; a replica took over after {:?}",
        given(LASTS),
        taken_over.saturating_sub(KILLED_AT)
    );
    assert!(count >= least, "{count} were admitted, {least:.1} at least");
}
