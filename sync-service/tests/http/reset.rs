//! One key of a rule, which an operator resets: for every region, and no other key.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use weir_protocol::messages::{Key, Reply, Report};
use weir_sync::config::{Config, Secret, TokenSource};

use crate::Server;
use crate::client::{Answer, ask, greeting, one_key, report, request};
use crate::exchange::reply;
use crate::stores::Shared;

const ADMIN: &str = "authorization: Bearer an-admin-token-of-the-tests\r\n";
/// The key of [`one_key`].
const PATH: &str = "/v1/keys/per-address/hex%3A3139322e302e322e31";
/// Far above what anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);

fn config(region: &str) -> Config {
    let admin_token = TokenSource::Given(Secret::new("an-admin-token-of-the-tests"));
    Config { region: region.into(), admin_token, ..Config::default() }
}

async fn delete(server: &Server, path: &str, headers: &str) -> Answer {
    ask(server.address, &request("DELETE", path, headers, b"")).await
}

async fn answered(server: &Server, sent: &Report) -> Reply {
    reply(&report(server.address, "", sent).await)
}

/// Level of the key, in thousandths of a token, after `pop` reports `admitted` tokens in a new epoch.
async fn left_milli(server: &Server, pop: &str, epoch: u32, admitted: u64) -> i64 {
    let sent = one_key(pop, u64::from(epoch), admitted, admitted, admitted);
    let keys = sent.keys.iter().map(|key| Key { epoch, ..key.clone() }).collect();
    let answer = answered(server, &Report { keys, ..sent }).await;
    answer.grants[0].grant().unwrap().level_milli
}

/// The first answer to `pop` that has a ban, or a key to forget.
async fn first_ban(server: &Server, pop: &str) -> Reply {
    let started = Instant::now();
    loop {
        let reply = answered(server, &greeting(pop)).await;
        if !reply.bans.is_empty() {
            return reply;
        }
        assert!(started.elapsed() < DEADLINE, "{pop} never got it");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_reset_fills_the_budget_and_reaches_every_pop() {
    let store = Shared::new(Config::default().pop_ttl);
    let here = Server::start_over(config("fra"), store.clone()).await;
    let other = Server::start_over(config("iad"), store).await;
    assert!(left_milli(&here, "fra1", 1, 150).await <= 0);
    assert!(left_milli(&other, "iad1", 1, 10).await <= 0);
    let answer = delete(&here, PATH, ADMIN).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body, json!({"rule": "per-address", "key": "hex:3139322e302e322e31", "reset": true}));
    for (server, pop) in [(&here, "fra2"), (&other, "iad2")] {
        let reply = first_ban(server, pop).await;
        assert_eq!((reply.bans.len(), reply.bans[0].for_ms), (1, 0));
        assert_eq!(reply.rules[usize::from(reply.bans[0].rule)], "per-address");
        assert_eq!(reply.bans[0].value, b"192.0.2.1");
    }
    assert!((98_000..=99_000).contains(&left_milli(&other, "iad1", 2, 1).await));
}

#[tokio::test]
async fn a_reset_needs_the_role_write_and_a_key_in_its_path() {
    let store = Shared::new(Config::default().pop_ttl);
    let server = Server::start_over(config("fra"), store.clone()).await;
    assert_eq!(delete(&server, PATH, "").await.status, 401);
    for (path, expected) in [
        ("/v1/keys/per-address", "expected a rule and one of its keys"),
        ("/v1/keys/per-address/", "expected a rule and one of its keys"),
        ("/v1/keys//192.0.2.1", "expected a rule and one of its keys"),
        ("/v1/keys/per-address/192.0.2.0/33", "expected a key: an address (192.0.2.7)"),
        ("/v1/keys/per-address/%zz", "expected a rule and one of its keys"),
        ("/v1/keys/per-address/somebody", "expected a key: an address (192.0.2.7)"),
    ] {
        let answer = delete(&server, path, ADMIN).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(answer.detail().contains(expected), "{path}: {}", answer.detail());
    }
    assert_eq!(delete(&server, &format!("{PATH}?dry_run=true"), ADMIN).await.status, 400);
    let rules = json!({"rules": [{"name": "other", "key": ["client_address"], "rate": "5/s"}]}).to_string();
    let headers = format!("{ADMIN}if-none-match: *\r\ncontent-type: application/json\r\n");
    let put = ask(server.address, &request("PUT", "/v1/rules", &headers, rules.as_bytes())).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let unknown = delete(&server, PATH, ADMIN).await;
    assert_eq!((unknown.status, unknown.detail().contains("no rule `per-address`")), (404, true));
    assert_eq!(delete(&server, "/v1/keys/other/192.0.2.1", ADMIN).await.status, 200);
    store.set_gone(true);
    assert_eq!(delete(&server, "/v1/keys/other/192.0.2.1", ADMIN).await.status, 503, "and that is the answer");
}
