//! Views of a POP and of an operator in normal operation, without the store, and at shutdown.

use std::time::Duration;

use tokio::net::TcpListener;
use weir_protocol::messages::{AdmitRatio, Allowance, Leased, Message, Reply, Settled};
use weir_sync::config::{Config, Secret, StoreAddress};

use crate::Server;
use crate::client::{Answer, Client, get, greeting, media_type, one_key, post, report};

/// The reply in `answer`, which must hold one.
pub(crate) fn reply(answer: &Answer) -> Reply {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/vnd.weir.sync"));
    Reply::decode(&answer.body).unwrap()
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
    let first = reply(&report(server.address, "", &one_key("fra1", 1, 40, 40, 50)).await);
    assert_eq!((first.sequence, first.pops, first.grants.len()), (1, 1, 1));
    assert_eq!(first.grants[0].grant().unwrap().ratio, AdmitRatio::ONE, "one POP alone");
    // 60 of 100 are left; what refills at one a day until the next report is less than a thousandth.
    assert_eq!(first.grants[0].grant().unwrap().level_milli, 60_000);
    assert_eq!(first.grants[0].grant().unwrap().lease_ms, 2_000);
    let second = reply(&report(server.address, "", &one_key("iad1", 1, 80, 80, 90)).await);
    assert_eq!(second.pops, 2);
    assert_eq!(second.grants[0].grant().unwrap().ratio, AdmitRatio::ZERO, "20 tokens of debt, and two POPs ask");
    assert_eq!(second.grants[0].grant().unwrap().lease_ms, 60_000, "a debt of 20 days, cut to the longest lease");
}

// I7
#[tokio::test]
async fn repeats_are_answered_but_not_charged_again() {
    let server = Server::start(Config::default()).await;
    let same = one_key("fra1", 1, 40, 40, 50);
    let levels: Vec<i64> = [
        reply(&report(server.address, "", &same).await).grants[0].grant().unwrap().level_milli,
        reply(&report(server.address, "", &same).await).grants[0].grant().unwrap().level_milli,
    ]
    .into();
    assert_eq!(levels, [60_000, 60_000]);
    assert!(metric(&server, "weir_sync_reports_stale_total").await >= 1.0);
}

#[tokio::test]
async fn keys_of_one_budget_are_answered_each() {
    let server = Server::start(Config::default()).await;
    let mut two = one_key("fra1", 1, 10, 10, 10);
    two.keys.push(two.keys[0].clone());
    two.keys[1].epoch = 2;
    let mut other = two.keys[0].clone();
    other.value = b"192.0.2.2".to_vec();
    two.keys.insert(1, other);
    let levels: Vec<i64> = reply(&report(server.address, "", &two).await)
        .grants
        .iter()
        .map(|allowance| allowance.grant().unwrap().level_milli)
        .collect();
    assert_eq!(levels, [80_000, 90_000, 80_000], "in the report's order");
}

#[tokio::test]
async fn a_greeting_counts_the_pop() {
    let server = Server::start(Config::default()).await;
    let greeting = greeting("fra1");
    let answered = reply(&report(server.address, "", &greeting).await);
    assert_eq!(
        answered,
        Reply {
            sequence: greeting.sequence,
            pops: 1,
            settled: Settled::All,
            grants: vec![],
            rules: vec![],
            pushed: vec![],
            ..Reply::default()
        }
    );
}

#[tokio::test]
async fn connections_are_kept_for_the_next_report() {
    let server = Server::start(Config::default()).await;
    let mut client = Client::connect(server.address).await;
    for sequence in 1..=5 {
        let body = one_key("fra1", sequence, sequence, 1, sequence).encode();
        client.send(&post("/v1/report", &media_type(), &body)).await;
        assert_eq!(reply(&client.receive().await.unwrap()).sequence, sequence);
    }
}

#[tokio::test]
async fn the_pages_of_a_weir_sync_show_its_state() {
    let server = Server::start(Config::default()).await;
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    let ready = get(server.address, "/readyz").await;
    assert_eq!((ready.status, ready.text().as_str()), (200, r#"{"ready":true}"#));
    report(server.address, "", &one_key("fra1", 1, 130, 130, 150)).await;
    assert!(metric(&server, r#"weir_sync_reports_total{outcome="answered"}"#).await >= 1.0);
    assert!(metric(&server, "weir_sync_tokens_charged_total").await >= 130.0);
    assert!(metric(&server, "weir_sync_keys_charged_total").await >= 1.0);
    assert!(metric(&server, "weir_sync_grants_total").await >= 1.0);
    assert!(metric(&server, r#"weir_sync_pops{region="default"}"#).await >= 1.0);
    assert!(metric(&server, "weir_sync_store_up").await >= 1.0);
    assert!(metric(&server, "weir_sync_store_latency_seconds_count").await >= 1.0);
    assert!(metric(&server, "weir_sync_deficit_bursts_sum").await > 1.0, "in debt");
}

#[tokio::test]
async fn without_its_store_it_answers_at_once_and_is_not_ready() {
    let server = Server::start(gone().await).await;
    let answered = reply(&report(server.address, "", &one_key("fra1", 3, 40, 40, 50)).await);
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
    stuck
        .send(
            format!(
                "POST /v1/report HTTP/1.1\r\nhost: weir\r\nexpect: 100-continue\r\ncontent-length: \
        9\r\n{}\r\n",
                media_type()
            )
            .as_bytes(),
        )
        .await;
    assert_eq!(stuck.receive().await.unwrap().status, 100);
    tokio::time::timeout(Duration::from_secs(5), server.stop()).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn one_reply_has_a_lease_and_a_grant() {
    let server = Server::start(Config::default()).await;
    let mut both = one_key("fra1", 1, 0, 0, 0);
    both.rules.push(both.rules[0].clone());
    (both.rules[1].name, both.rules[1].sharing.strict) = ("login".into(), true);
    both.keys.insert(0, both.keys[0].clone());
    (both.keys[0].rule, both.keys[0].ahead) = (1, 30);
    let first = reply(&report(server.address, "", &both).await);
    assert_eq!(first.grants[0], Allowance::Leased(Leased { left: 70, ..Leased::of(30, 2_000) }));
    assert_eq!(first.grants[1], Allowance::Warm, "a budget of its own");
    both.pop = "iad1".into();
    both.keys[0].ahead = 90;
    let other = reply(&report(server.address, "", &both).await);
    let Allowance::Leased(left) = other.grants[0] else { panic!("no lease: {other:?}") };
    assert_eq!((left.charged, left.lease_ms), (70, 2_000), "what is left");
    assert!((86_390_000..=86_400_000).contains(&left.wait_ms), "until a token refills: {left:?}");
    assert!(left.may_return, "the first was leased some");
    assert!(metric(&server, "weir_sync_tokens_charged_total").await >= 100.0);
}
