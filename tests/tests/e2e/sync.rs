//! The budget loop beside the request path: whatever weir-sync does, requests never notice.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_protocol::messages::{AdmitRatio, Allowance, Grant, Message, Reply, Report, Settled};
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Run, Tally, drain, open_loop, repeat};
use weir_tests::server::{Asked, Respond, Server};
use weir_tests::wait::until;
use weir_tests::weir_sync::{TOKEN, WeirSync};

use crate::plugin::{one, rule, rules, with};

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

/// Two rules: one that the traffic of these tests never reaches, and one for `/slow` that it exhausts at
/// once, so that there is always a key to report.
pub(crate) fn fast_and_slow() -> Value {
    let slow = with(rule("slow", "1/h", 5), "match", json!({"path": {"exact": "/slow"}}));
    let fast = with(rule("fast", "1000/s", 1_000), "match", json!({"path": {"exact": "/"}}));
    rules([fast, slow])
}

/// Traffic in the background, until stopped.
pub(crate) struct Traffic {
    status: u16,
    stop: watch::Sender<bool>,
    task: JoinHandle<Vec<Run>>,
}

impl Traffic {
    /// Traffic of `ask`, all of which is to be answered with `status`.
    fn start(mut client: Client, ask: Ask, status: u16) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut runs = vec![];
            while !*stopped.borrow() {
                runs.push(open_loop(&mut client, &ask, 50, Duration::from_millis(100)).await);
            }
            runs
        });
        Self { status, stop, task }
    }

    /// Traffic to both rules of [`fast_and_slow`].
    pub(crate) async fn start_both(edge: &Envoy) -> [Self; 2] {
        let [fast, slow] = ["/", "/slow"].map(|path| Ask::get(path).forwarded_for("203.0.113.7"));
        assert_eq!(drain(&mut edge.client(), &slow, 10).await.1, 5);
        [Self::start(edge.client(), fast, 200), Self::start(edge.client(), slow, 429)]
    }

    /// Stops it, and panics if a request was answered late, or otherwise than it was to be.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        let runs = self.task.await.unwrap_or_else(|e| panic!("the traffic broke off: {e}"));
        let mut tally = Tally::default();
        for run in &runs {
            tally.merge(&run.tally);
            let waited_for_it = run.slowest >= Duration::from_millis(TIMEOUT_MS);
            assert!(!waited_for_it, "a request took {:?}", run.slowest);
        }
        assert!(tally.total() > 0, "there was no traffic");
        assert_eq!(tally.of(self.status), tally.total(), "all were to be {}: {tally:?}", self.status);
    }
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_pass_while_weir_sync_restarts() {
    let mut weir_sync = WeirSync::start("fra1", "memory").await;
    let plugin = synced(fast_and_slow(), "a");
    let edge = Envoy::start(Setup::with(plugin).cluster("weir-sync", weir_sync.address())).await;
    let traffic = Traffic::start_both(&edge).await;
    edge.counter_grows("weir.sync.answered", 5).await;

    weir_sync.kill();
    edge.counter_grows("weir.sync.failed", 5).await;

    weir_sync.restart().await;
    edge.counter_grows("weir.sync.answered", 5).await;
    for traffic in traffic {
        traffic.stop().await;
    }
}

/// A reply that grants everything to every key of the report.
pub(crate) fn honest(asked: &Asked) -> Respond {
    let report = Report::decode(&asked.body).unwrap_or_else(|e| panic!("the filter sent no report: {e}"));
    let ratio = AdmitRatio::ONE;
    let grant = Grant { ratio, level_milli: 1_000_000, burst: u32::MAX, divisor: 1, lease_ms: 60_000 };
    let reply = Reply {
        sequence: report.sequence,
        pops: 2,
        settled: Settled::All,
        grants: vec![Allowance::Hot(grant); report.keys.len()],
        rules: vec![],
        pushed: vec![],
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
            rules: vec![],
            pushed: vec![],
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
        let traffic = Traffic::start(edge.client(), asking, 200);
        liar.answer(respond);
        edge.counter_grows("weir.sync.failed", 2).await;
        traffic.stop().await;
        // A whole burst, no more, no less, whatever the reply was.
        let fresh = Ask::from(&format!("198.51.100.{number}"));
        assert_eq!(drain(&mut edge.client(), &fresh, 2_000).await.1, 1_000, "after {lie}");
        edge.assert_alive();
    }
    liar.answer(honest);
    edge.counter_grows("weir.sync.answered", 2).await;
}

/// The reports that the server got, oldest first.
fn reports(server: &Server) -> Vec<Report> {
    let decode = |asked: &Asked| Report::decode(&asked.body).unwrap_or_else(|e| panic!("no report: {e}"));
    server.asked().iter().map(decode).collect()
}

// I7
#[tokio::test]
async fn requests_admitted_during_an_outage_are_reported_later() {
    let server = Server::start(an_error).await;
    let plugin = synced(one("per-address", "1/h", 10), "fra1");
    let edge = Envoy::start(Setup::with(plugin).cluster("weir-sync", server.address())).await;
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
    assert_eq!(repeat(&mut client, &ask, 15).await.admitted(), 10);
    // Nobody confirms: the whole count stays unconfirmed in every report.
    let all = |report: &Report| report.keys.iter().any(|key| (key.admitted, key.unconfirmed) == (10, 10));
    until("three reports of all 10", async || {
        (reports(&server).iter().filter(|report| all(report)).count() >= 3).then_some(())
    })
    .await;

    server.answer(honest);
    let failed = server.count();
    until("a report of what is confirmed", async || {
        client.send(&ask).await;
        let confirmed = |report: &Report| report.keys.iter().any(|key| (key.admitted, key.unconfirmed) == (10, 0));
        reports(&server).iter().skip(failed).any(confirmed).then_some(())
    })
    .await;
    let mut numbers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for report in reports(&server) {
        numbers.entry(report.worker).or_default().push(report.sequence);
    }
    let ascending = numbers.values().all(|numbers| numbers.is_sorted_by(|a, b| a < b));
    assert!(ascending, "each worker numbers its reports: {numbers:?}");
    assert!(reports(&server).iter().all(|report| report.pop == "fra1"));
}
