//! Weir among other filters, as docs/envoy.md describes it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use hyper::Method;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup, router};
use weir_tests::load::repeat;
use weir_tests::server::Server;
use weir_tests::wait::until;

use crate::plugin::{one, rule, rules};

const TYPES: &str = "type.googleapis.com/envoy.extensions.filters.http";

/// The requests and headers that scripts of another site may use.
fn cors_policy() -> Value {
    json!({"typed_per_filter_config": {"cors": {
        "@type": format!("{TYPES}.cors.v3.CorsPolicy"),
        "allow_origin_string_match": [{"exact": "https://site.example"}],
        "allow_methods": "GET",
        "expose_headers": "retry-after,ratelimit,ratelimit-policy",
    }}})
}

fn from_site(method: Method) -> Ask {
    let is_preflight = method == Method::OPTIONS;
    let ask = Ask::new(method, "/").forwarded_for("203.0.113.7").header("origin", "https://site.example");
    if is_preflight { ask.header("access-control-request-method", "GET") } else { ask }
}

#[tokio::test]
async fn preflights_behind_the_cors_filter_are_not_counted() {
    let cors = json!({"name": "cors", "typed_config": {"@type": format!("{TYPES}.cors.v3.Cors")}});
    // That filter looks at routes to an upstream alone.
    let upstream = Server::upstream().await;
    let setup = Setup::with(one("api", "1/h", 2)).upstream(upstream.address()).before(cors);
    let edge = Envoy::start(setup.more(Value::Null, cors_policy())).await;
    let mut client = edge.client();
    let preflights = repeat(&mut client, &from_site(Method::OPTIONS), 9).await;
    assert_eq!((preflights.admitted(), preflights.limited()), (9, 0));
    assert_eq!(repeat(&mut client, &from_site(Method::GET), 2).await.admitted(), 2);
    let refused = client.send(&from_site(Method::GET)).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("access-control-allow-origin"), "https://site.example");
    assert!(refused.header("access-control-expose-headers").contains("retry-after"));
}

/// A WebSocket's first request; no message follows.
fn upgrade() -> Ask {
    let ask = Ask::get("/").forwarded_for("203.0.113.7").header("connection", "upgrade").header("upgrade", "websocket");
    ask.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[tokio::test]
async fn an_upgrade_with_its_own_filters_bypasses_weir() {
    for (filters, limited) in [(json!([]), true), (json!([router()]), false)] {
        let mut upgrades = json!([{"upgrade_type": "websocket"}]);
        if filters != json!([]) {
            upgrades[0]["filters"] = filters;
        }
        let setup = Setup::with(one("api", "1/h", 1)).more(json!({"upgrade_configs": upgrades}), Value::Null);
        let edge = Envoy::start(setup).await;
        let mut statuses = vec![];
        for _ in 0..3 {
            // One connection each, as after an upgrade it is no longer of HTTP.
            statuses.push(edge.client().send(&upgrade()).await.status);
        }
        assert_eq!(statuses.contains(&429), limited, "{statuses:?}");
    }
}

/// A connection that may become a socket: what was sent on it is the answer's head, up to the empty line.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}

/// An upstream that takes every upgrade, and echoes every byte.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                head(&mut stream).await;
                let taken = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
                stream.write_all(taken).await.unwrap();
                let (mut from, mut to) = stream.split();
                // The client may leave.
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

/// Connects as a WebSocket's client does; returns the socket, and how the answer begins.
async fn socket(edge: &Envoy) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(edge.address()).await.unwrap();
    let ask = "GET /socket HTTP/1.1\r\nhost: edge.test\r\nx-forwarded-for: 203.0.113.7\r\nconnection: upgrade\r\n\
        upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    let head = head(&mut stream).await;
    (stream, head)
}

#[tokio::test]
async fn a_websocket_counts_once_when_it_opens() {
    let open = json!({"name": "open", "key": ["client_address"], "algorithm": "concurrency", "limit": 1});
    let plugin = rules([rule("opened", "1/h", 2), open]);
    let setup = Setup::with(plugin).upstream(echo().await);
    let upgrades = json!({"upgrade_configs": [{"upgrade_type": "websocket"}]});
    let edge = Envoy::start(setup.more(upgrades, Value::Null)).await;
    let (mut first, answer) = socket(&edge).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    for n in 0..100u8 {
        let message = [0x82, 2, n, n];
        first.write_all(&message).await.unwrap();
        let mut echo = [0; 4];
        first.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, message);
    }
    let (_, answer) = socket(&edge).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("\"open\""), "one is open: {answer}");
    drop(first);
    let second = until("the place of the first", async || {
        let (stream, answer) = socket(&edge).await;
        answer.starts_with("HTTP/1.1 101").then_some(stream)
    })
    .await;
    drop(second);
    let answer = until("no token is left", async || {
        let (_, answer) = socket(&edge).await;
        answer.contains("\"opened\"").then_some(answer)
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    edge.counter_reaches("weir.rule.opened.allowed", 2).await;
    assert_eq!(edge.counter("weir.rule.opened.allowed").await, 2, "two were opened");
}

/// An Envoy without Weir asks over HTTP/3.
#[tokio::test]
async fn requests_over_http3_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["edge.crt", "edge.key"].map(|name| folder.path().join(name));
    let pair = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["edge.test".to_owned()]).unwrap().self_signed(&pair).unwrap();
    fs::write(&certificate, own.pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let edge = Envoy::start(Setup::with(one("api", "1/h", 2)).over_http3(&certificate, &key)).await;
    let asking = Envoy::start(Setup::plain().http3_upstream(edge.address(), &certificate)).await;
    let mut client = asking.client();
    let tally = repeat(&mut client, &Ask::get("/"), 5).await;
    assert_eq!((tally.admitted(), tally.limited()), (2, 3), "{tally:?}");
    let refused = client.send(&Ask::get("/")).await;
    assert!(refused.number("retry-after") > 3_000, "{refused:?}");
    edge.stat_reaches("http.edge.downstream_cx_http3_total", 1).await;
}
