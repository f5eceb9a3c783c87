//! Limits on what a connection may take: a place, memory, time.

use std::future::pending;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use weir_sync::config::{Config, Secret, TokenSource};

use crate::Server;
use crate::client::{Client, get, media_type};
use crate::exchange::metric;

/// Longer than any limit that these tests set.
const LONG: Duration = Duration::from_mins(2);
/// Connections at a time in these tests.
const PLACES: usize = 200;
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: weir\r\n\r\n";
const HALF_A_HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: we";

fn few_places() -> Config {
    Config {
        connections_max: PLACES,
        header_timeout: LONG,
        first_byte_timeout: LONG,
        body_timeout: LONG,
        ..Config::default()
    }
}

async fn opened(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(address).await;
        client.send(bytes).await;
        clients.push(client);
    }
    clients
}

/// Takes every place of `server` with a request whose body does not come.
async fn all_waited_for(server: &Server) -> Vec<Client> {
    let head = format!(
        "POST /v1/report HTTP/1.1\r\nhost: weir\r\nexpect: 100-continue\r\n{}content-length: 1\r\n\r\n",
        media_type()
    );
    let mut busy = opened(server.address, PLACES, head.as_bytes()).await;
    for client in &mut busy {
        assert_eq!(client.receive().await.unwrap().status, 100, "its body is waited for");
    }
    busy
}

async fn within_a_moment<T>(answer: impl Future<Output = T>) -> T {
    timeout(LONG / 4, answer).await.expect("kept out")
}

// I2
#[tokio::test]
async fn requests_without_their_bodies_keep_no_other_out() {
    let server = Server::start(few_places()).await;
    let _held = all_waited_for(&server).await;
    for _ in 0..3 {
        assert_eq!(within_a_moment(get(server.address, "/healthz")).await.status, 200);
    }
}

#[tokio::test]
async fn a_client_with_a_token_is_not_closed_for_those_without() {
    let token = TokenSource::Given(Secret::new("a-token-of-pops-for-the-tests"));
    let server = Server::start(Config { token, ..few_places() }).await;
    let mut known = Client::connect(server.address).await;
    let asked = "GET /v1/rules HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer a-token-of-pops-for-the-tests\r\n\r\n";
    known.send(asked.as_bytes()).await;
    assert_ne!(known.receive().await.unwrap().status, 401);
    for bytes in [&b""[..], HALF_A_HEAD, HEALTH] {
        let _others = opened(server.address, 2 * PLACES, bytes).await;
        known.send(asked.as_bytes()).await;
        assert_ne!(within_a_moment(known.receive()).await.expect("its connection").status, 401);
    }
}

#[tokio::test]
async fn operators_have_an_address_of_their_own() {
    let ops_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = Server::start(Config { ops_listen, ..few_places() }).await;
    let ops = server.ops.unwrap();
    let elsewhere = get(server.address, "/metrics").await;
    assert_eq!(elsewhere.status, 404);
    assert!(elsewhere.detail().contains("ops_listen"));
    let _held = all_waited_for(&server).await;
    for page in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(within_a_moment(get(ops, page)).await.status, 200, "{page}");
    }
    assert_eq!(get(ops, "/v1/rules").await.status, 404, "and nothing else is there");
}

#[tokio::test]
async fn an_answer_that_is_not_read_ends_its_connection() {
    let config = Config { write_timeout: Duration::from_millis(300), header_timeout: LONG, ..Config::default() };
    let server = Server::start(config).await;
    let mut greedy = Client::connect(server.address).await;
    let page = b"GET /metrics HTTP/1.1\r\nhost: weir\r\n\r\n";
    // Megabytes of answers, more than any socket holds.
    let started = Instant::now();
    let _ = timeout(LONG / 2, greedy.send_anyway(&page.repeat(5_000))).await;
    while metric(&server, "weir_sync_connections").await > 1.5 {
        assert!(started.elapsed() < LONG, "it is still held");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Number of bytes that a slow reader takes at a time, and the pause between.
const DROP: usize = 16 * 1024;
const DRIP: Duration = Duration::from_millis(50);

#[tokio::test]
async fn an_answer_that_is_taken_drop_by_drop_has_a_time() {
    let response_timeout = Duration::from_millis(500);
    let server =
        Server::start(Config { response_timeout, write_timeout: LONG, header_timeout: LONG, ..Config::default() })
            .await;
    // Tens of megabytes of answers, which take minutes at this pace. They never stand still for long: the kernel
    // asks for more once a third of its buffer is free.
    let pages = b"GET /metrics HTTP/1.1\r\nhost: weir\r\n\r\n".repeat(20_000);
    let (mut reader, mut writer) = TcpStream::connect(server.address).await.unwrap().into_split();
    let asking = tokio::spawn(async move {
        let _ = writer.write_all(&pages).await;
        pending::<()>().await;
    });
    let dripping = tokio::spawn(async move {
        let mut drop = [0; DROP];
        while matches!(reader.read(&mut drop).await, Ok(1..)) {
            sleep(DRIP).await;
        }
    });
    let started = Instant::now();
    let mut most = 0.0f64;
    loop {
        let open = metric(&server, "weir_sync_connections").await;
        most = most.max(open);
        if most > 1.5 && open < 1.5 {
            break;
        }
        assert!(started.elapsed() < LONG, "it is still held");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(started.elapsed() > response_timeout, "it has its time");
    asking.abort();
    dripping.abort();
}
