//! envoy/llm-api: tokens of a language model, charged by the usage in its responses.
//!
//! Tests of I3.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::process::Command;

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_tests::client::{Answer, Ask, Client};
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::together;
use weir_tests::process::Process;
use weir_tests::wait::until;
use weir_tests::{artefact, port};

const PATH: &str = "/v1/chat/completions";
/// The tokens that one key may use at once.
const BURST: u64 = 10_000;
/// The reservation of a request until it ends.
const RESERVE: u64 = 500;
const KEY: &str = "Bearer key-one";

/// The API of the folder, behind the Envoy of the folder.
struct Api {
    envoy: Envoy,
    _upstream: Process,
    _folder: TempDir,
}

impl Api {
    /// With the filters and the rule of envoy/llm-api/envoy.yaml, as `change` leaves them.
    async fn start(change: impl FnOnce(&mut Value)) -> Self {
        Self::start_in(Host::Wasm, change).await
    }

    async fn start_in(host: Host, change: impl FnOnce(&mut Value)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let mut command = Command::new("python3");
        command.args(["-B", "envoy/llm-api/upstream.py", &address.port().to_string()]);
        command.current_dir(artefact::workspace());
        let log = folder.path().join("upstream.log");
        let upstream = Process::listening("the upstream", command, &log, address).await;
        let manager = manager();
        let filters = manager["http_filters"].as_array().expect("filters");
        let names: Vec<_> = filters.iter().map(|filter| filter["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names[2..], ["weir", "envoy.filters.http.router"], "two filters before it");
        let mut plugin = filters[2]["typed_config"]["config"]["configuration"]["value"].clone();
        // So slowly that what refills during a test is no token.
        plugin["rules"][0]["rate"] = json!("10000/d");
        change(&mut plugin["rules"][0]);
        let virtual_host = &manager["route_config"]["virtual_hosts"][0];
        let virtual_host = json!({"request_headers_to_remove": virtual_host["request_headers_to_remove"]});
        let setup = Setup::with(plugin).host(host).as_struct().upstream(address).more(Value::Null, virtual_host);
        let setup = setup.before(filters[0].clone()).before(filters[1].clone()).concurrency(2);
        Self { envoy: Envoy::start(setup).await, _upstream: upstream, _folder: folder }
    }

    /// Waits until the key has this many tokens left: the charge may be under way still.
    async fn has_left(&self, tokens: u64) {
        let mut client = self.envoy.client();
        until(&format!("{tokens} tokens to be left"), async || {
            // It costs nothing in the end.
            let answer = admitted(&mut client, &chat(&json!({"max_tokens": 0}))).await;
            (answer.number("x-ratelimit-remaining") + RESERVE == tokens).then_some(())
        })
        .await;
    }
}

impl Api {
    /// Waits until the key is limited for this many seconds.
    async fn waits(&self, seconds: RangeInclusive<u64>) {
        let mut client = self.envoy.client();
        until(&format!("a wait of {seconds:?} s"), async || {
            let answer = client.send(&stream(0)).await;
            (answer.status == 429 && seconds.contains(&answer.number("retry-after"))).then_some(())
        })
        .await;
    }
}

/// The connection manager of the folder's bootstrap.
fn manager() -> Value {
    let bootstrap = artefact::yaml("envoy/llm-api/envoy.yaml");
    bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"].clone()
}

fn chat(asked: &Value) -> Ask {
    let ask = Ask::new(Method::POST, PATH).header("authorization", KEY);
    ask.header("content-type", "application/json").body(asked.to_string())
}

/// A stream of this many tokens, with its usage at its end.
fn stream(tokens: u64) -> Ask {
    chat(&json!({"max_tokens": tokens, "stream": true, "stream_options": {"include_usage": true}}))
}

async fn admitted(client: &mut Client, ask: &Ask) -> Answer {
    let answer = client.send(ask).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_charged_the_usage_in_its_responses() {
    for host in Host::BOTH {
        let api = Api::start_in(host, |_| {}).await;
        let mut client = api.envoy.client();
        let streamed = admitted(&mut client, &stream(1_200)).await;
        assert!(streamed.header("content-type").starts_with("text/event-stream"), "{streamed:?}");
        assert_eq!(streamed.number("x-ratelimit-remaining"), BURST - RESERVE, "what it reserved");
        api.has_left(BURST - 1_200).await;
        // Three words are a part of what is used.
        let short = json!({"max_tokens": 97, "messages": [{"role": "user", "content": "sing a song"}]});
        admitted(&mut client, &chat(&short)).await;
        api.has_left(BURST - 1_200 - 100).await;
        let other = client.send(&stream(1).header("authorization", "Bearer key-two")).await;
        assert_eq!(other.number("x-ratelimit-remaining"), BURST - RESERVE, "another key");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_debt_pays_before_it_is_admitted() {
    let api = Api::start(|_| {}).await;
    let mut client = api.envoy.client();
    for n in 1..=7 {
        admitted(&mut client, &stream(1_200)).await;
        api.has_left(BURST - n * 1_200).await;
    }
    admitted(&mut client, &stream(1_200)).await;
    // 400 are left, and a request reserves 500: 100 tokens come in 864 s.
    api.waits(850..=864).await;

    let api = Api::start(|_| {}).await;
    admitted(&mut api.envoy.client(), &stream(15_000)).await;
    // 5,000 are owed, and 500 are to be there.
    api.waits(47_500..=47_520).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_are_limited_by_their_reservations() {
    let api = Api::start(|_| {}).await;
    let slow = chat(&json!({"max_tokens": 100})).header("x-pause-ms", "3000");
    let tally = together(api.envoy.clients(30), |_| [slow.clone()]).await;
    assert_eq!((tally.admitted(), tally.limited()), (20, 10));
    // A hundred each was used, and the rest has come back.
    api.has_left(BURST - 20 * 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_without_usage_costs_its_reservation() {
    let api = Api::start(|_| {}).await;
    let mut client = api.envoy.client();
    admitted(&mut client, &chat(&json!({"max_tokens": 3_000, "stream": true}))).await;
    api.has_left(BURST - RESERVE).await;
    // The upstream refuses it without a usage.
    let refused = client.send(&chat(&json!({})).body("no JSON")).await;
    assert_eq!(refused.status, 400);
    api.has_left(BURST - 2 * RESERVE).await;

    let api = Api::start(|rule| rule["cost"]["after"]["default"] = json!(0)).await;
    admitted(&mut api.envoy.client(), &chat(&json!({"max_tokens": 3_000, "stream": true}))).await;
    api.has_left(BURST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_mid_stream_pays_its_reservation() {
    let api = Api::start(|_| {}).await;
    let body = json!({"max_tokens": 4_000, "stream": true, "stream_options": {"include_usage": true}}).to_string();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: edge.test\r\nauthorization: {KEY}\r\nx-pause-ms: 200\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(api.envoy.address()).await.expect("a connection");
    connection.write_all(request.as_bytes()).await.expect("a request");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("chat.completion.chunk") {
        let count = connection.read_buf(&mut read).await.expect("a stream");
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
    }
    drop(connection);
    until("the stream to end", async || {
        let active = api.envoy.stat("http.edge.downstream_rq_active").await;
        (active == Some(0)).then_some(())
    })
    .await;
    api.has_left(BURST - RESERVE).await;
}
