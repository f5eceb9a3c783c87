//! Refused requests: the answer is always a problem with what was expected, never a panic.

use std::time::Duration;

use proptest::prelude::*;
use weir_protocol::messages::{self, Message};
use weir_sync::config::{Config, Secret, TokenSource};

use crate::client::{Client, ask, get, media_type, one_key, post, report};
use crate::{DEADLINE, Server};

#[tokio::test]
async fn a_report_needs_the_token() {
    let token = TokenSource::Given(Secret::new("s3cret-token"));
    let server = Server::start(Config { token, ..Config::default() }).await;
    let one = one_key("fra1", 1, 1, 1, 1);
    for good in ["authorization: Bearer s3cret-token\r\n", "Authorization: bearer s3cret-token\r\n"] {
        assert_eq!(report(server.address, good, &one).await.status, 200, "{good}");
    }
    let bad = [
        "",
        "authorization: Bearer s3cret-toke\r\n",
        "authorization: Bearer s3cret-token2\r\n",
        "authorization: Bearer\r\n",
        "authorization: s3cret-token\r\n",
        "authorization: Basic s3cret-token\r\n",
        "authorization: \u{e9}\u{e9}\u{e9}\u{e9}\r\n",
    ];
    for bad in bad {
        let answer = report(server.address, bad, &one).await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("bearer")), "{bad}");
        assert!(!answer.detail().contains("s3cret"));
    }
    assert_eq!(get(server.address, "/readyz").await.status, 200, "the pages need none");
}

#[tokio::test]
async fn malformed_reports_get_the_reason() {
    let server = Server::start(Config::default()).await;
    let mut limit = one_key("fra1", 1, 1, 1, 1);
    limit.keys[0].rule = 7;
    let mut trailing = one_key("fra1", 1, 1, 1, 1).encode();
    trailing.push(0);
    let cases = [
        (vec![], "empty"),
        (vec![9, 9, 9], "version 9"),
        (vec![messages::VERSION, 255, 255], "malformed"),
        (trailing, "malformed"),
        (limit.encode(), "keys[].rule"),
    ];
    for (body, expected) in cases {
        let answer = ask(server.address, &post("/v1/report", &media_type(), &body)).await;
        assert_eq!(answer.status, 400);
        assert!(answer.detail().contains(expected), "{}", answer.detail());
    }
    let metrics = get(server.address, "/metrics").await.text();
    for row in [
        r#"weir_sync_reports_total{region="default",outcome="malformed"} 5"#,
        r#"weir_sync_http_errors_total{region="default",status="400"} 5"#,
    ] {
        assert!(metrics.contains(row), "no {row} in\n{metrics}");
    }
}

#[tokio::test]
async fn other_paths_methods_and_media_types_are_refused() {
    let server = Server::start(Config::default()).await;
    let unknown = get(server.address, "/v2/report?x=1").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.detail().contains("http-api.md"));
    let wrong = get(server.address, "/v1/report").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("post")));
    let wrong = ask(server.address, &post("/metrics", "", b"")).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("get, head")));
    let body = one_key("fra1", 1, 1, 1, 1).encode();
    for headers in ["", "content-type: application/json\r\n", "content-type: application/vnd.weir.sync2\r\n"] {
        let answer = ask(server.address, &post("/v1/report", headers, &body)).await;
        assert_eq!(answer.status, 415, "{headers}");
        assert!(answer.detail().contains("application/vnd.weir.sync"));
    }
    let with_parameter = "content-type: Application/Vnd.Weir.Sync; v=1\r\n";
    assert_eq!(ask(server.address, &post("/v1/report", with_parameter, &body)).await.status, 200);
}

#[test]
fn random_bytes_never_panic_and_leave_it_serving() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Short limits, so that what breaks off is answered soon.
    let (body_timeout, header_timeout) = (Duration::from_millis(200), Duration::from_millis(300));
    let impatient = Config { body_timeout, header_timeout, drain_timeout: DEADLINE, ..Config::default() };
    let server = runtime.block_on(Server::start(impatient));
    let address = server.address;
    let whole = one_key("fra1", 1, 1, 1, 1).encode();
    let bodies = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|rest| [vec![1], rest].concat()),
        // A good report with one byte changed.
        (0..whole.len(), any::<u8>()).prop_map(move |(at, byte)| {
            let mut body = whole.clone();
            body[at] = byte;
            body
        }),
    ];
    proptest!(ProptestConfig::with_cases(300), |(body in bodies)| {
        let answer = runtime.block_on(ask(address, &post("/v1/report", &media_type(), &body)));
        prop_assert!(matches!(answer.status, 200 | 400), "{answer:?}");
    });
    proptest!(ProptestConfig::with_cases(100), |(garbage in prop::collection::vec(any::<u8>(), 1..300))| {
        runtime.block_on(async {
            let mut client = Client::connect(address).await;
            client.send_anyway(&garbage).await;
            client.finish().await;
            let answer = client.receive().await;
            assert!(answer.is_none_or(|answer| answer.status >= 400));
        });
    });
    assert_eq!(runtime.block_on(get(address, "/healthz")).status, 200);
}

#[tokio::test]
async fn a_foreign_host_is_misdirected_where_no_token_is_needed() {
    let ops_listen = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let open = Server::start(Config { ops_listen, ..Config::default() }).await;
    let with_tokens = Server::start(crate::rules::guarded()).await;
    let status = async |address, target: &str, host: &str| {
        ask(address, format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await.status
    };
    for address in [open.address, open.ops.unwrap()] {
        for own in ["127.0.0.1", "localhost:7878", "[::1]:7878", "weir_sync"] {
            assert_eq!(status(address, "/healthz", own).await, 200, "{own}");
        }
        for target in ["/healthz", "/metrics", "/nowhere", "http://localhost/healthz"] {
            assert_eq!(status(address, target, "evil.example").await, 421, "{target}");
        }
        assert_eq!(status(address, "http://evil.example/healthz", "localhost").await, 421);
    }
    let live = status(open.address, "/v1/live", "evil.example:7878").await;
    assert_eq!((live, status(open.address, "/", "evil.example").await), (421, 421));
    assert_eq!(status(with_tokens.address, "/healthz", "weir.example").await, 200);
}
