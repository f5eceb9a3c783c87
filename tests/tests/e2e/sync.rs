//! The budget loop beside the request path: whatever weir-sync does, requests never notice.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use weir_protocol::messages::{AdmitRatio, Allowance, Grant, Message, Reply, Report, Settled};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Run, drain, open_loop_until};
use weir_tests::redis::Redis;
use weir_tests::server::{Asked, Respond, Server};
use weir_tests::weir_sync::{TOKEN, WeirSync};

use crate::plugin::{one, with};

/// Time after which the filter gives an answer of weir-sync up. A request that waited for a lost one takes longer;
/// no other does, even on a busy machine.
const TIMEOUT_MS: u64 = 2_000;

/// `plugin` with a budget loop to the cluster "weir-sync".
pub(crate) fn synced(plugin: Value, pop: &str) -> Value {
    let sync = json!({
        "cluster": "weir-sync", "pop": pop, "token": TOKEN, "interval_ms": 100, "timeout_ms": TIMEOUT_MS,
    });
    with(plugin, "sync", sync)
}

/// Requests of one client, one after the other, until stopped.
struct Traffic {
    stop: watch::Sender<bool>,
    task: JoinHandle<Run>,
}

impl Traffic {
    fn start(edge: &Envoy, ask: Ask, per_second: u32) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut client = edge.client();
        let task = tokio::spawn(async move { open_loop_until(&mut client, &ask, per_second, stopped).await });
        Self { stop, task }
    }

    /// Stops it; panics if a request was neither admitted nor limited.
    async fn stop(self) -> Run {
        self.stop.send_replace(true);
        let run = self.task.await.unwrap_or_else(|e| panic!("the traffic broke off: {e}"));
        run.assert_only_decisions();
        run
    }
}

/// A reply that grants everything to every key of the report.
fn honest(asked: &Asked) -> Respond {
    let report = Report::decode(&asked.body).unwrap_or_else(|e| panic!("the filter sent no report: {e}"));
    let ratio = AdmitRatio::ONE;
    let grant = Grant { ratio, level_milli: 1_000_000, burst: u32::MAX, divisor: 1, lease_ms: 60_000 };
    let reply = Reply {
        sequence: report.sequence,
        pops: 2,
        settled: Settled::All,
        grants: vec![Allowance::Hot(grant); report.keys.len()],
        ..Reply::default()
    };
    Respond::Now(StatusCode::OK, reply.encode().into())
}

fn garbage(_: &Asked) -> Respond {
    Respond::Now(StatusCode::OK, Bytes::from_static(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff<html>"))
}

fn oversize(_: &Asked) -> Respond {
    Respond::Now(StatusCode::OK, vec![1; 4 * 1_024 * 1_024].into())
}

fn nothing(_: &Asked) -> Respond {
    Respond::Now(StatusCode::OK, Bytes::new())
}

fn an_error(_: &Asked) -> Respond {
    Respond::Now(StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(b"{}"))
}

/// A well-formed reply to nothing that was asked, with grants for nobody.
fn another_conversation(_: &Asked) -> Respond {
    let grant = Grant { ratio: AdmitRatio::ZERO, level_milli: i64::MIN, burst: 0, divisor: 1, lease_ms: u32::MAX };
    Respond::Now(
        StatusCode::OK,
        Reply {
            sequence: u64::MAX,
            pops: u32::MAX,
            settled: Settled::All,
            grants: vec![Allowance::Hot(grant); 999],
            ..Reply::default()
        }
        .encode()
        .into(),
    )
}

fn silence(_: &Asked) -> Respond {
    Respond::Nothing
}

type Lie = fn(&Asked) -> Respond;

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_decided_despite_false_replies() {
    let liar = Server::start(honest).await;
    let plugin = synced(one("per-address", "1000/d", 1_000), "a");
    let mut edge = Envoy::start(Setup::with(plugin).cluster("weir-sync", liar.address())).await;
    // A key to reply to, before the first lie.
    drain(&mut edge.client(), &Ask::from("192.0.2.1"), 2_000).await;
    let lies: [(&str, Lie); 6] = [
        ("garbage", garbage),
        ("oversize", oversize),
        ("an empty body", nothing),
        ("an error", an_error),
        ("grants for nobody", another_conversation),
        ("silence", silence),
    ];
    for (number, (lie, respond)) in lies.into_iter().enumerate() {
        let asking = Ask::from(&format!("203.0.113.{number}"));
        let traffic = Traffic::start(&edge, asking, 50);
        liar.answer(respond);
        edge.counter_grows("weir.sync.failed", 2).await;
        let run = traffic.stop().await;
        assert!(run.tally.admitted() > 0 && run.tally.limited() == 0, "after {lie}: {:?}", run.tally);
        assert!(run.slowest < Duration::from_millis(TIMEOUT_MS), "a request took {:?} after {lie}", run.slowest);
        // A whole burst, no more, no less, whatever the reply was.
        let fresh = Ask::from(&format!("198.51.100.{number}"));
        assert_eq!(drain(&mut edge.client(), &fresh, 2_000).await.1, 1_000, "after {lie}");
        edge.assert_alive();
    }
    liar.answer(honest);
    edge.counter_grows("weir.sync.answered", 2).await;
}

/// Requests per second that the rule admits, and at once; twice as many come.
const RATE: u32 = 50;
/// Time for which the budget is out of reach. Its admissions are worth six bursts.
const OUTAGE: Duration = Duration::from_secs(6);
/// Time for which the rate is measured afterwards.
const AFTER: Duration = Duration::from_secs(5);

/// A POP's right admissions during an outage are no debt that locks its client out afterwards.
// I5, I8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_keeps_its_rate_while_redis_hangs_and_after() {
    let redis = Redis::start().await;
    let mut weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let plugin = synced(one("per-address", &format!("{RATE}/s"), RATE), "fra1");
    let edge = Envoy::in_touch(Setup::with(plugin).pop("fra1", &weir_sync)).await;
    let traffic = Traffic::start(&edge, Ask::from("203.0.113.7"), 2 * RATE);
    edge.counter_grows("weir.rule.per-address.limited", 50).await;
    edge.counter_grows("weir.sync.answered", 4).await;

    redis.freeze().await;
    sleep(OUTAGE).await;
    redis.thaw();
    weir_sync.answers("/readyz", 200).await;
    edge.counter_grows("weir.sync.answered", 1).await;
    let back = Instant::now();
    sleep(AFTER).await;
    let run = traffic.stop().await;
    let (rate, expected) = (run.admitted_per_second_from(back, AFTER), f64::from(RATE));
    assert!(rate >= 0.9 * expected, "{rate:.1} of {expected} a second after the outage");
    // One for the instant between a decision and the arrival of its answer.
    let ahead = run.most_ahead(expected, expected);
    assert!(ahead <= 1.0, "{ahead:.1} more than the quota: {:?}", run.tally);
}
