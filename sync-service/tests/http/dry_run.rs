//! A rule set that is only tried: what it would do, and that it does nothing.

use serde_json::{Value, json};
use weir_sync::config::{Config, TokenSource};

use crate::Server;
use crate::client::{Answer, ask, request};
use crate::rules::{current, guarded, json_of, page, put, rules};

const PATH: &str = "/v1/rules?dry_run=true";
const FIRST: &str = "if-none-match: *\r\n";
const ANY: &str = "if-match: *\r\n";
const WRITER: &str = "authorization: Bearer an-admin-token-of-the-tests\r\n";

async fn put_as(server: &Server, path: &str, headers: &str, body: &[u8]) -> Answer {
    let headers = format!("content-type: application/yaml\r\n{headers}");
    ask(server.address, &request("PUT", path, &headers, body)).await
}

/// The answer to a dry run of a document, as a writer asks.
async fn tried(server: &Server, condition: &str, document: &Value) -> Answer {
    put_as(server, PATH, &format!("{WRITER}{condition}"), document.to_string().as_bytes()).await
}

/// The versions that are kept.
async fn kept(server: &Server) -> usize {
    json_of(&page(server, "/v1/rules/versions").await)["versions"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_dry_run_shows_the_effect_and_stores_nothing() {
    let server = Server::start(guarded()).await;
    let first = tried(&server, FIRST, &rules("5/s")).await;
    assert_eq!((first.status, first.header("etag")), (200, None), "{}", first.text());
    let expected = json!({
        "dry_run": true, "current": 0, "version": null, "is_same": false, "warnings": [],
        "changes": {"added": ["per-address"], "removed": [], "changed": [], "is_reordered": false, "fields": []},
        "lines": ["+ rule per-address"],
    });
    assert_eq!(json_of(&first), expected);
    assert_eq!((page(&server, "/v1/rules").await.status, kept(&server).await), (404, 0), "nothing was put");

    let version = put(&server, FIRST, &rules("5/s")).await;
    let mut more = rules("6/s");
    more["rules"].as_array_mut().unwrap().push(json!({"name": "more", "key": ["host"], "rate": "1/s"}));
    more["enforce"] = false.into();
    let condition = format!("if-match: \"{version}\"\r\n");
    for condition in [condition.as_str(), ANY] {
        let answer = json_of(&tried(&server, condition, &more).await);
        let expected = json!({
            "added": ["more"], "removed": [], "changed": [{"rule": "per-address", "fields": ["rate"]}],
            "is_reordered": false, "fields": ["enforce"],
        });
        assert_eq!(answer["changes"], expected, "{answer}");
        assert_eq!((&answer["current"], &answer["version"]), (&json!(version), &json!(version + 1)), "{answer}");
        assert_eq!(answer["is_same"], false);
    }
    let same = json_of(&tried(&server, ANY, &rules("5/s")).await);
    assert_eq!((&same["is_same"], &same["changes"]["changed"]), (&json!(true), &json!([])), "{same}");
    assert_eq!((current(&server).await, kept(&server).await), ((version, rules("5/s")), 1), "nothing was put");
    let written = put(&server, &condition, &more).await;
    assert_eq!(written, version + 1, "the version that it had announced");
}

#[tokio::test]
async fn readers_may_do_a_dry_run() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (reader, writer) = ("a-token-of-who-may-read", "a-token-of-who-may-write");
    std::fs::write(file.path(), format!("ci read {reader}\nops write {writer}\n")).unwrap();
    let admin_token = TokenSource::File(file.path().to_str().unwrap().into());
    let server = Server::start(Config { admin_token, ..guarded() }).await;
    let body = rules("5/s").to_string();
    for (token, path, status) in [
        ("nobody's", PATH, 401),
        ("a-report-token-of-the-tests", PATH, 401),
        (reader, "/v1/rules", 403),
        (reader, "/v1/rules?dry_run=false", 403),
        (reader, PATH, 200),
        (writer, PATH, 200),
    ] {
        let headers = format!("authorization: Bearer {token}\r\n{FIRST}");
        assert_eq!(put_as(&server, path, &headers, body.as_bytes()).await.status, status, "{token} {path}");
    }
}
