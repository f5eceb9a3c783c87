//! Views of a POP and of an operator in normal operation, without the store, and at shutdown.

use std::time::Duration;

use tokio::net::TcpListener;
use weir_protocol::messages::{AdmitRatio, Message, Reply, Report};
use weir_sync::config::{Config, Secret, StoreAddress};

use crate::Server;
use crate::client::{Answer, Client, get, media_type, one_key, post, report};
use crate::rules::REPORTER;

/// The reply in `answer`, which must hold one.
pub(crate) fn reply(answer: &Answer) -> Reply {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/vnd.weir.sync"));
    Reply::decode(&answer.body).unwrap()
}

/// The reply to a report of a POP.
pub(crate) async fn replied(server: &Server, sent: &Report) -> Reply {
    reply(&report(server.address, REPORTER, sent).await)
}

/// The address of a store that refuses connections: the port is taken, but nothing listens.
async fn gone() -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://user:secret-word@{}", listener.local_addr().unwrap());
    drop(listener);
    Config { store: StoreAddress::Redis(Secret::new(url)), ..Config::default() }
}

/// A metric's value.
pub(crate) async fn metric(server: &Server, name: &str) -> f64 {
    let page = get(server.address, "/metrics").await;
    assert_eq!(page.status, 200);
    let text = page.text();
    let (name, labels) = name.split_once('{').unwrap_or((name, ""));
    let labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
    let rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    let row = rows.into_iter().find(|(has, _)| labels.iter().all(|label| has.contains(label)));
    row.unwrap_or_else(|| panic!("no {name} with {labels:?} in\n{text}")).1.parse().unwrap()
}

#[tokio::test]
async fn a_report_is_charged_and_answered_with_a_grant() {
    let server = Server::start(Config::default()).await;
    let first = replied(&server, &one_key("fra1", 1, 40, 40, 50)).await;
    assert_eq!((first.sequence, first.pops, first.grants.len()), (1, 1, 1));
    let grant = first.grants[0].grant().unwrap();
    // 60 of 100 are left; what refills at one a day until the next report is less than a thousandth.
    assert_eq!((grant.ratio, grant.level_milli, grant.lease_ms), (AdmitRatio::ONE, 60_000, 2_000), "one POP alone");
    let second = replied(&server, &one_key("iad1", 1, 80, 80, 90)).await;
    let grant = second.grants[0].grant().unwrap();
    // A debt of 20 tokens, or days, cut to the longest lease.
    assert_eq!((second.pops, grant.ratio, grant.lease_ms), (2, AdmitRatio::ZERO, 60_000), "two POPs ask");
}

// I7
#[tokio::test]
async fn repeats_are_answered_but_not_charged_again() {
    let server = Server::start(Config::default()).await;
    let same = one_key("fra1", 1, 40, 40, 50);
    for _ in 0..2 {
        assert_eq!(replied(&server, &same).await.grants[0].grant().unwrap().level_milli, 60_000);
    }
    assert!(metric(&server, "weir_sync_reports_stale_total").await >= 1.0);
}

#[tokio::test]
async fn the_pages_of_a_weir_sync_show_its_state() {
    let server = Server::start(Config::default()).await;
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    let ready = get(server.address, "/readyz").await;
    assert_eq!((ready.status, ready.text().as_str()), (200, r#"{"ready":true}"#));
    report(server.address, "", &one_key("fra1", 1, 130, 130, 150)).await;
    for (name, least) in [
        (r#"reports_total{outcome="answered"}"#, 1.0),
        ("tokens_charged_total", 130.0),
        ("keys_charged_total", 1.0),
        ("grants_total", 1.0),
        (r#"pops{region="default"}"#, 1.0),
        ("store_up", 1.0),
        ("store_latency_seconds_count", 1.0),
        // In debt.
        ("deficit_bursts_sum", 1.01),
    ] {
        assert!(metric(&server, &format!("weir_sync_{name}")).await >= least, "{name}");
    }
}

#[tokio::test]
async fn without_its_store_it_answers_at_once_and_is_not_ready() {
    let server = Server::start(gone().await).await;
    let answered = replied(&server, &one_key("fra1", 3, 40, 40, 50)).await;
    assert_eq!((answered.sequence, answered.pops, answered.settled.is_all()), (3, 1, false));
    let grant = answered.grants[0].grant().expect("out of its own share: the whole, as far as it knows");
    assert_eq!((answered.grants.len(), grant.level_milli, grant.burst), (1, 60_000, 100));
    let ready = get(server.address, "/readyz").await;
    // Anybody may ask here, so the store's address and its error go to the logs only.
    assert_eq!((ready.status, ready.text().as_str()), (503, r#"{"ready":false}"#));
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    assert!(metric(&server, r#"weir_sync_reports_total{outcome="partial"}"#).await >= 1.0);
    assert!(metric(&server, r#"weir_sync_store_errors_total{kind="unreachable"}"#).await >= 1.0);
    assert!(metric(&server, "weir_sync_store_up").await < 1.0);
}

#[tokio::test]
async fn stopping_answers_what_is_in_flight_and_takes_no_more() {
    let server = Server::start(Config { body_timeout: Duration::from_secs(10), ..Config::default() }).await;
    let address = server.address;
    let request = post("/v1/report", &media_type(), &one_key("fra1", 1, 1, 1, 1).encode());
    let (head, rest) = request.split_at(request.len() - 5);
    let mut in_flight = Client::connect(address).await;
    // The interim answer shows that the server is reading the body.
    let mut expecting = head.to_vec();
    let at = expecting.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    expecting.splice(at..at, b"\r\nexpect: 100-continue".iter().copied());
    in_flight.send(&expecting).await;
    assert_eq!(in_flight.receive().await.unwrap().status, 100);
    let mut silent = Client::connect(address).await;
    // Connections are accepted in order, so once this one is answered, the silent one is accepted too.
    let mut idle = Client::connect(address).await;
    idle.send(b"GET /healthz HTTP/1.1\r\nhost: weir\r\n\r\n").await;
    idle.receive().await.unwrap();
    let stopped = server.stop();
    assert!(idle.is_ended().await, "a connection at rest is closed");
    assert!(silent.is_ended().await, "and so is one that sent nothing");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nothing listens any more");
    assert!(!stopped.is_finished(), "a request is still in flight");
    in_flight.send(rest).await;
    assert_eq!(reply(&in_flight.receive().await.unwrap()).sequence, 1);
    stopped.await.unwrap().unwrap();
}

#[tokio::test]
async fn stopping_does_not_wait_longer_than_the_drain() {
    let config =
        Config { body_timeout: Duration::from_mins(1), drain_timeout: Duration::from_millis(100), ..Config::default() };
    let server = Server::start(config).await;
    let mut stuck = Client::connect(server.address).await;
    let head = "POST /v1/report HTTP/1.1\r\nhost: weir\r\nexpect: 100-continue\r\ncontent-length: 9\r\n";
    stuck.send(format!("{head}{}\r\n", media_type()).as_bytes()).await;
    assert_eq!(stuck.receive().await.unwrap().status, 100);
    tokio::time::timeout(Duration::from_secs(5), server.stop()).await.expect("it ends").unwrap().unwrap();
}
