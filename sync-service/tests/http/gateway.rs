//! Services that ask about requests: by the fleet's rules, with the fleet's budgets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_store::Store as _;
use weir_store::memory::MemoryStore;
use weir_store::rules::{NewVersion, RulesChange};
use weir_sync::config::{Config, TokenSource};

use crate::client::{Answer, ask, greeting, one_key, post, report};
use crate::exchange::metric;
use crate::rules::{REPORTER, guarded, page, put};
use crate::stores::Shared;
use crate::{Server, until};

const FIRST: &str = "if-none-match: *\r\n";

/// A gateway's settings.
pub(crate) fn gateway() -> Config {
    Config { gateway: true, region: "fra".into(), replica: Some("a".into()), ..guarded() }
}

/// Posts JSON to an API of the gateway.
pub(crate) async fn send(server: &Server, path: &str, headers: &str, body: &Value) -> Answer {
    let headers = format!("content-type: application/json\r\n{headers}");
    ask(server.address, &post(path, &headers, body.to_string().as_bytes())).await
}

/// The answer to a check, which must be a good one.
pub(crate) async fn check(server: &Server, body: &Value) -> Value {
    let answer = send(server, "/v1/check", "", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Checks until the rules of a first rule set are in force.
pub(crate) async fn in_force(server: &Server, rules: &Value) {
    put(server, FIRST, rules).await;
    until("the rules are in force", async || {
        let fleet: Value = serde_json::from_slice(&page(server, "/v1/fleet").await.body).unwrap();
        fleet["pops"].as_array().unwrap().iter().any(|pop| pop["is_current"] == true)
    })
    .await;
}

fn per_key(rate: &str) -> Value {
    json!({"rules": [{"name": "per-key", "key": [{"header": "x-api-key"}], "rate": rate, "burst": 2,
        "match": {"path": {"prefix": "/v1/"}}, "response": {"on_allowed": true}}],
        "deny": [{"addresses": ["203.0.113.0/24"]}]})
}

#[tokio::test]
async fn a_check_returns_the_decision_and_the_clients_headers() {
    let server = Server::start(gateway()).await;
    in_force(&server, &per_key("2/h")).await;
    let asked = json!({"method": "GET", "host": "api.example.com", "path": "/v1/items?page=2",
        "address": "192.0.2.1", "headers": {"X-Api-Key": "alice"}});
    let first = check(&server, &asked).await;
    assert_eq!(
        (&first["decision"], &first["rule"], &first["status"]),
        (&json!("allow"), &json!("per-key"), &json!(200)),
        "{first}"
    );
    assert_eq!((&first["limit"], &first["remaining"]), (&json!(2), &json!(1)), "{first}");
    assert_eq!(first["headers"]["ratelimit-policy"], "\"per-key\";q=2;w=3600", "{first}");
    assert_eq!(first["headers"]["x-ratelimit-remaining"], "1", "{first}");
    check(&server, &asked).await;
    let third = check(&server, &asked).await;
    assert_eq!((&third["decision"], &third["status"]), (&json!("limit"), &json!(429)), "{third}");
    let wait = third["retry_after_s"].as_u64().unwrap();
    assert!((1..=1_800).contains(&wait), "{third}");
    assert_eq!(third["headers"]["retry-after"], wait.to_string(), "{third}");
    assert!(third["body"].as_str().unwrap().contains("quota-exceeded"), "{third}");
    // Another key, another path, an address on the list: each by the rules.
    let list = check(
        &server,
        &json!([
            {"path": "/v1/items", "headers": {"x-api-key": "bob"}},
            {"path": "/health", "headers": {"x-api-key": "alice"}},
            {"path": "/v1/items", "headers": {"x-api-key": "bob"}, "address": "203.0.113.9"},
        ]),
    )
    .await;
    let decisions: Vec<_> = list.as_array().unwrap().iter().map(|one| &one["decision"]).collect();
    assert_eq!(decisions, ["allow", "allow", "block"], "{list}");
    assert_eq!((&list[1]["rule"], &list[2]["status"]), (&Value::Null, &json!(403)), "{list}");
}

#[tokio::test]
async fn no_other_can_report_as_a_gateway() {
    let server = Server::start(gateway()).await;
    in_force(&server, &per_key("2/h")).await;
    let fleet: Value = serde_json::from_slice(&page(&server, "/v1/fleet").await.body).unwrap();
    assert_eq!(fleet["pops"][0]["name"], "gateway/fra/a", "{fleet}");
    let answer = report(server.address, REPORTER, &greeting("gateway/fra/a")).await;
    assert_eq!(answer.status, 403);
    assert!(answer.detail().contains("names that begin with `gateway/`"), "{}", answer.detail());
}

#[tokio::test]
async fn no_pop_acquires_on_the_limits_that_callers_name() {
    // Without a rule set, POPs report rules of whichever name.
    let server = Server::start(gateway()).await;
    let mut acquire = one_key("fra1", 1, 0, 0, 0);
    assert_eq!(report(server.address, REPORTER, &acquire).await.status, 200);
    for rule in ["ratelimit/check", "ratelimit/descriptor"] {
        acquire.rules[0].name = rule.into();
        let answer = report(server.address, REPORTER, &acquire).await;
        assert_eq!(answer.status, 403);
        assert!(answer.detail().contains("POST /ratelimit/check"), "{}", answer.detail());
    }
}

#[tokio::test]
async fn it_is_ready_once_the_gateway_knows_its_rules() {
    let store = Arc::new(MemoryStore::new(1_000, Duration::from_mins(1)));
    let put = async |document: &str| {
        let put = NewVersion { document, expected: None, note: "", from_file: false };
        store.change_rules(&RulesChange::Put(put)).await.unwrap();
    };
    put(r#"{"rules": [{"name": "of-tomorrow"}]}"#).await;
    let server = Server::start_over(gateway(), store.clone()).await;
    until("the rules are in force", async || page(&server, "/v1/rules").await.status == 200).await;
    for _ in 0..10 {
        assert_eq!(page(&server, "/readyz").await.status, 503, "these rules are none");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    put(&per_key("2/h").to_string()).await;
    until("the rules are in force", async || page(&server, "/readyz").await.status == 200).await;
    let answer = check(&server, &json!({"path": "/v1/", "headers": {"x-api-key": "alice"}})).await;
    assert_eq!(answer["rule"], "per-key", "{answer}");
    let metrics = page(&server, "/metrics").await.text();
    let row = r#"weir_sync_gateway_checks_total{region="fra",api="http",decision="allow"} 1"#;
    assert!(metrics.contains(row), "{metrics}");
}

#[tokio::test]
async fn an_invalid_check_gets_the_place_of_its_error() {
    let server = Server::start(gateway()).await;
    let refused = async |body: Value, status: u16| {
        let answer = send(&server, "/v1/check", "", &body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        answer.detail();
        let problem: Value = serde_json::from_slice(&answer.body).unwrap();
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let error =
            |error: &Value| format!("{}: {}", error["place"].as_str().unwrap(), error["problem"].as_str().unwrap());
        errors.iter().map(error).collect::<Vec<_>>()
    };
    let found = refused(
        json!([{"path": "/"}, {"path": "x", "method": 3, "address": "1.2.3", "headers": {"a b": "c", "d": 1},
            "claims": {"a": []}, "cost": 0, "pth": ""}]),
        422,
    )
    .await;
    for expected in [
        "[1].method: expected text of 1 to 8192 bytes, found 3",
        "[1].path: expected a path that begins with /, found \"x\"",
        "[1].address: expected an IP address, as in \"192.0.2.1\", found \"1.2.3\"",
        "[1].headers.a b: expected a header's name, as in x-api-key",
        "[1].headers.d: expected text of at most 8192 bytes without line breaks, found 1",
        "[1].cost: expected a whole number from 1 to 1000000, found 0",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected}\n{found:#?}");
    }
    assert!(found.iter().any(|line| line.starts_with("[1].claims.a: expected a text, a number")), "{found:#?}");
    assert!(found.iter().any(|line| line.starts_with("[1].pth: unknown field: did you mean path?")), "{found:#?}");
    assert_eq!(refused(json!([]), 422).await, [": expected a list of 1 to 100 checks, found 0"]);
    assert_eq!(refused(json!(3), 422).await, [": expected an object, found 3"]);
    let answer = send(&Server::start(guarded()).await, "/v1/check", "", &json!({})).await;
    assert_eq!((answer.status, answer.detail().contains("`gateway: on`")), (404, true));
}

#[tokio::test]
async fn a_list_waits_for_a_silent_store_as_long_as_two_checks() {
    let store = Shared::new(Duration::from_mins(1));
    let patient = Config { store_timeout: Duration::from_millis(100), ..gateway() };
    let one = patient.gateway_timeout();
    let server = Server::start_over(patient, store.clone()).await;
    let rules = json!({"rules": [
        {"name": "login", "key": [{"header": "x-user"}], "match": {"headers": [{"name": "x-user", "present": true}]},
         "rate": "3/d", "strict": true},
        {"name": "page", "key": [{"header": "x-page"}], "match": {"headers": [{"name": "x-page", "present": true}]},
         "rate": "3/d"}]});
    in_force(&server, &rules).await;
    let list = |count: usize| {
        let login = |user: usize| json!({"headers": {"x-user": user.to_string()}});
        let page = json!({"headers": {"x-page": "a"}});
        Value::Array((0..count).map(login).chain([page]).collect())
    };
    let decisions = async |count: usize| {
        let answer = check(&server, &list(count)).await;
        let decisions = answer.as_array().unwrap().iter().map(|one| one["decision"].as_str().unwrap().to_owned());
        decisions.collect::<Vec<_>>()
    };
    assert_eq!(decisions(2).await, ["allow"; 3]);
    store.fall_silent();
    let begun = Instant::now();
    let found = decisions(99).await;
    let took = begun.elapsed();
    // Two tokens at least are in hand.
    assert!(found[2..99].iter().all(|decision| decision == "deny") && found[99] == "allow", "{found:?}");
    assert!(took >= one && took < 2 * one + Duration::from_secs(2), "{took:?}, {one:?} for one");
    assert!(metric(&server, r#"weir_sync_store_errors_total{kind="slow"}"#).await >= 1.0);
}

#[tokio::test]
async fn a_caller_names_a_limit_with_a_token_for_that() {
    let (_file, path) = tokens("orders check a-check-token-of-the-tests\njobs limit a-limit-token-of-the-tests\n");
    let check_token = TokenSource::File(path);
    let server = Server::start(Config { check_token, ..gateway() }).await;
    let with = |token: &str| format!("authorization: Bearer {token}\r\n");
    let limits = with("a-limit-token-of-the-tests");
    let asked = async |body: Value| {
        let answer = send(&server, "/ratelimit/check", &limits, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let of = |weight: u32| json!({"key": "job:7", "limit": 5, "window_ms": 5_000_000, "weight": weight});
    let first = asked(of(4)).await;
    assert_eq!((&first["allowed"], &first["remaining"]), (&json!(true), &json!(1)), "{first}");
    assert!((3_990_000..=4_000_000).contains(&first["reset_ms"].as_u64().unwrap()), "{first}");
    let second = asked(of(2)).await;
    assert_eq!((&second["allowed"], &second["remaining"]), (&json!(false), &json!(1)), "{second}");
    assert!((990..=1_000).contains(&second["retry_after_s"].as_u64().unwrap()), "{second}");
    let list = asked(json!([of(1), of(1), {"key": "job:8", "limit": 5, "window_ms": 5_000_000}])).await;
    let allowed: Vec<_> = list.as_array().unwrap().iter().map(|one| one["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, false, true], "{list}");
    // Each API has its tokens.
    for (path, token, status) in [
        ("/ratelimit/check", "a-check-token-of-the-tests", 403),
        ("/ratelimit/check", "a-token-of-a-stranger", 401),
        ("/v1/check", "a-limit-token-of-the-tests", 403),
        ("/v1/check", "a-check-token-of-the-tests", 422),
    ] {
        let answer = send(&server, path, &with(token), &json!(0)).await;
        assert_eq!(answer.status, status, "{path} {token}: {}", answer.text());
    }
    let wrong = json!({"key": "", "limit": 0, "window_ms": 5_000_000_000_u64, "weight": 2, "wait": 1});
    let answer = send(&server, "/ratelimit/check", &limits, &wrong).await;
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    let places: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|error| error["place"].as_str().unwrap()).collect();
    assert_eq!((answer.status, places.len()), (422, 4), "{problem}");
    let fast = json!({"key": "a", "limit": 1_000_000, "window_ms": 1});
    let answer = send(&server, "/ratelimit/check", &limits, &fast).await;
    assert!(answer.text().contains("expected at most 1000 for each millisecond"), "{}", answer.text());
    // Without tokens, no caller may name limits.
    let answer = send(&Server::start(gateway()).await, "/ratelimit/check", "", &fast).await;
    assert_eq!((answer.status, answer.detail().contains("`limit`")), (403, true), "{}", answer.text());
}

/// An address has any form in which a proxy writes it, the same as at an edge.
#[tokio::test]
async fn an_address_may_have_a_zone_or_a_port() {
    let server = Server::start(gateway()).await;
    let rule = json!({"name": "per-address", "key": ["client_address"], "rate": "3/d"});
    in_force(&server, &json!({"rules": [rule]})).await;
    let mut decisions = Vec::new();
    for address in ["fe80::7%1", "[fe80::7%eth0]:443", "fe80::7", "fe80::7%2"] {
        decisions.push(check(&server, &json!({"address": address})).await["decision"].clone());
    }
    assert_eq!(decisions, ["allow", "allow", "allow", "limit"]);
    let wrong = send(&server, "/v1/check", "", &json!({"address": "fe80::7/64"})).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text());
}

#[tokio::test]
async fn a_caller_that_reserves_all_it_can_leaves_reservations_for_others() {
    let (_file, path) = tokens("greedy check a-greedy-token-of-the-tests\nother check another-token-of-the-tests\n");
    let server = Server::start(Config { check_token: TokenSource::File(path), ..gateway() }).await;
    let rule = json!({"name": "all", "key": ["all"], "rate": "1000000/d"});
    in_force(&server, &json!({"rules": [rule]})).await;
    let reserve = async |token: &str| {
        let headers = format!("authorization: Bearer {token}\r\n");
        let checks = vec![json!({"reserve_s": 60}); 100];
        let answer = send(&server, "/v1/check", &headers, &checks.into()).await;
        let answers: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
        let refused = answers.iter().find(|answer| answer["decision"] == "deny").cloned();
        (answers.iter().filter(|answer| answer["decision"] == "allow").count(), refused)
    };
    let mut greedy = 0;
    let refused = loop {
        let (allowed, refused) = reserve("a-greedy-token-of-the-tests").await;
        greedy += allowed;
        if let Some(refused) = refused {
            break refused;
        }
    };
    assert!(greedy >= 512, "{greedy}");
    let expected = format!("{greedy} reservations of this token are open, and no more are free for all");
    assert!(refused["body"].as_str().unwrap().starts_with(&expected), "{refused}");
    assert_eq!(reserve("another-token-of-the-tests").await.0, 100);
}

/// A file of tokens, and its path.
fn tokens(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}
