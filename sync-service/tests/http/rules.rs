//! The fleet's rule set over HTTP: roles, preconditions of a change, refusals.

use std::time::Duration;

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Reply, Report, RunningRules, Settled};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_sync::config::{Config, Secret, TokenSource};

use crate::client::{Answer, ask, get, greeting, one_key, request};
use crate::exchange::{metric, replied};
use crate::stores::Shared;
use crate::{Server, replica, until};

pub(crate) const ADMIN: &str = "authorization: Bearer an-admin-token-of-the-tests\r\n";
pub(crate) const REPORTER: &str = "authorization: Bearer a-report-token-of-the-tests\r\n";
const FIRST: &str = "if-none-match: *\r\n";
const ANY: &str = "if-match: *\r\n";

/// A rule set of one rule.
pub(crate) fn rules(rate: &str) -> Value {
    json!({"rules": [{"name": "per-address", "key": ["client_address"], "rate": rate}]})
}

/// Settings with both tokens.
pub(crate) fn guarded() -> Config {
    Config {
        token: TokenSource::Given(Secret::new("a-report-token-of-the-tests")),
        admin_token: TokenSource::Given(Secret::new("an-admin-token-of-the-tests")),
        ..Config::default()
    }
}

pub(crate) fn json_of(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Asks as the admin, with a JSON body.
pub(crate) async fn admin(server: &Server, method: &str, path: &str, headers: &str, body: &Value) -> Answer {
    let headers = format!("content-type: application/json\r\n{ADMIN}{headers}");
    ask(server.address, &request(method, path, &headers, body.to_string().as_bytes())).await
}

/// A page, as the admin reads it.
pub(crate) async fn page(server: &Server, path: &str) -> Answer {
    ask(server.address, &request("GET", path, ADMIN, b"")).await
}

/// Puts a rule set; it must be taken. Returns its version.
pub(crate) async fn put(server: &Server, headers: &str, rules: &Value) -> u64 {
    let answer = admin(server, "PUT", "/v1/rules", headers, rules).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    let version = json_of(&answer)["version"].as_u64().unwrap();
    assert_eq!(answer.header("etag"), Some(format!("\"{version}\"").as_str()));
    version
}

/// The current version and its document.
pub(crate) async fn current(server: &Server) -> (u64, Value) {
    let answer = page(server, "/v1/rules").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    (answer.header("etag").unwrap().trim_matches('"').parse().unwrap(), json_of(&answer))
}

fn of(version: u64) -> String {
    format!("if-match: \"{version}\"\r\n")
}

/// The version that a 412 names.
fn refused_for(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 412, "{}", answer.text());
    answer.detail();
    json_of(answer)["version"].as_u64().unwrap()
}

const CHANGES: [(&str, &str); 3] = [("PUT", "/v1/rules"), ("POST", "/v1/rules/rollback"), ("PUT", "/v1/enforcement")];

#[tokio::test]
async fn without_an_admin_token_nothing_can_be_changed() {
    let server = Server::start(Config::default()).await;
    let of_operators = [("GET", "/v1/rules/versions"), ("GET", "/v1/fleet")];
    for (method, path) in CHANGES.into_iter().chain(of_operators) {
        let answer = ask(server.address, &request(method, path, &format!("{ADMIN}{ANY}"), b"{}")).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.detail().contains("set admin_token_file"), "{}", answer.detail());
    }
    let none = get(server.address, "/v1/rules").await;
    assert_eq!(none.status, 404, "no token is asked for to read, and there is nothing to read");
    assert!(none.detail().contains("there is no rule set"), "{}", none.detail());
}

#[tokio::test]
async fn operators_need_their_token_and_pops_may_read_the_rules() {
    let server = Server::start(guarded()).await;
    let of_operators = [("GET", "/v1/rules/versions"), ("GET", "/v1/fleet")];
    for (method, path) in CHANGES.into_iter().chain(of_operators) {
        for token in ["", REPORTER, "authorization: Bearer admin-toke\r\n"] {
            let answer = ask(server.address, &request(method, path, &format!("{token}{ANY}"), b"{}")).await;
            assert_eq!(answer.status, 401, "{path} with {token}");
        }
    }
    let version = put(&server, FIRST, &rules("5/s")).await;
    for path in ["/v1/rules".into(), format!("/v1/rules?version={version}")] {
        for (token, status) in [("", 401), (REPORTER, 200), (ADMIN, 200)] {
            let answer = ask(server.address, &request("GET", &path, token, b"")).await;
            assert_eq!(answer.status, status, "{path} with {token}");
        }
    }
}

#[tokio::test]
async fn a_change_names_the_version_it_replaces() {
    let server = Server::start(guarded()).await;
    let put_with = async |headers: String| admin(&server, "PUT", "/v1/rules", &headers, &rules("5/s")).await;
    assert_eq!(put_with(String::new()).await.status, 428);
    assert_eq!(refused_for(&put_with(of(1)).await), 0);
    assert_eq!(refused_for(&put_with(ANY.into()).await), 0);
    let first = put_with(FIRST.into()).await;
    assert_eq!(first.status, 201);
    let first = json_of(&first)["version"].as_u64().unwrap();
    assert_eq!(refused_for(&put_with(FIRST.into()).await), first);
    let second = put_with(of(first)).await;
    assert_eq!((second.status, json_of(&second)["version"].as_u64()), (200, Some(first + 1)));
    assert_eq!(refused_for(&put_with(of(first)).await), first + 1);
    assert_eq!(put_with(ANY.into()).await.status, 200);
    for wrong in ["if-match: W/\"1\"\r\n", "if-match: 1\r\n", "if-match: \"+1\"\r\n", "if-none-match: \"1\"\r\n"] {
        let answer = put_with(wrong.into()).await;
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.detail().contains("If-Match"), "{}", answer.detail());
    }
    assert_eq!(put_with(format!("{ANY}{FIRST}")).await.status, 400);
    assert_eq!(current(&server).await.0, first + 2, "nothing else was taken");
}

#[tokio::test]
async fn a_bad_rule_set_is_refused_with_every_error() {
    let server = Server::start(guarded()).await;
    let good = put(&server, FIRST, &rules("5/s")).await;
    let put_as = async |media_type: &str, body: &[u8]| {
        let headers = format!("content-type: {media_type}\r\n{ADMIN}{ANY}");
        ask(server.address, &request("PUT", "/v1/rules", &headers, body)).await
    };
    let bad = b"rules:\n- {name: A, key: [client_address], rate: fast}\nextra: 1\n";
    let answer = put_as("application/yaml", bad).await;
    assert_eq!(answer.status, 422);
    assert!(answer.detail().contains("3 errors"), "{}", answer.detail());
    let errors = json_of(&answer)["errors"].as_array().unwrap().clone();
    let places: Vec<_> = errors.iter().map(|error| error["place"].as_str().unwrap()).collect();
    assert_eq!(places, ["rules[0].name", "rules[0].rate", "extra"]);
    assert!(errors[2]["problem"].as_str().unwrap().starts_with("unknown field: expected rules"));
    assert_eq!(put_as("application/json", b"rules: []").await.status, 422, "no JSON");
    let twice = put_as("application/json", br#"{"rules": [], "rules": []}"#).await;
    assert!(twice.status == 422 && twice.text().contains("`rules`"), "a field is given once: {}", twice.text());
    assert_eq!(put_as("text/plain", b"{}").await.status, 415);
    assert_eq!(put_as("application/yaml", &vec![b'#'; (1 << 20) + 1]).await.status, 413);
    assert_eq!(put_as("application/yaml", &vec![b'#'; 1 << 20]).await.status, 422, "as large as it may be");
    assert_eq!(current(&server).await, (good, rules("5/s")));
    let yaml = "# a comment\nrules:\n- {name: per-address, key: [client_address], rate: 6/s}\n";
    assert_eq!(put_as("Application/Yaml; charset=utf-8", yaml.as_bytes()).await.status, 200);
    assert_eq!(current(&server).await, (good + 1, rules("6/s")));
}

#[tokio::test]
async fn a_kept_version_is_fetched_and_gone_back_to() {
    let server = Server::start(guarded()).await;
    let back = async |headers: &str, body: Value| admin(&server, "POST", "/v1/rules/rollback", headers, &body).await;
    let first = put(&server, FIRST, &rules("5/s")).await;
    let second = put(&server, &of(first), &rules("6/s")).await;
    let old = page(&server, &format!("/v1/rules?version={first}")).await;
    assert_eq!((json_of(&old), old.header("etag")), (rules("5/s"), Some(format!("\"{first}\"").as_str())));
    assert_eq!(page(&server, "/v1/rules?version=7").await.status, 404);
    for query in ["version=", "version=-1", "version=x", "v=1", "version=1&v=1", "version=1&version=1"] {
        assert_eq!(page(&server, &format!("/v1/rules?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(back("", json!({"version": first})).await.status, 428);
    assert_eq!(refused_for(&back(&of(first), json!({"version": first})).await), second);
    let unknown = back(&of(second), json!({"version": 7})).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.detail().contains("version 7 is not kept"), "{}", unknown.detail());
    for wrong in [json!({}), json!({"version": "1"}), json!({"version": first, "x": 1}), json!([first])] {
        assert_eq!(back(&of(second), wrong.clone()).await.status, 400, "{wrong}");
    }
    let answer = back(&of(second), json!({"version": first})).await;
    assert_eq!((answer.status, json_of(&answer)), (200, json!({"version": second + 1})));
    assert_eq!(current(&server).await, (second + 1, rules("5/s")));
    let kept = json_of(&page(&server, "/v1/rules/versions").await);
    let rows: Vec<_> =
        kept["versions"].as_array().unwrap().iter().map(|kept| (&kept["version"], &kept["note"])).collect();
    let rollback = json!("rollback to r1");
    assert_eq!(
        rows,
        [(&json!(second + 1), &rollback), (&json!(second), &json!("put")), (&json!(first), &json!("put"))]
    );
    assert!(kept["versions"][0]["at_s"].as_u64().unwrap() > 1_700_000_000, "{kept}");
}

#[tokio::test]
async fn the_kill_switch_is_a_version_like_any_other() {
    let server = Server::start(guarded()).await;
    let enforce = async |body: Value| admin(&server, "PUT", "/v1/enforcement", "", &body).await;
    let none = enforce(json!({"enforce": true})).await;
    assert_eq!(none.status, 409);
    assert!(none.detail().contains("`weir-sync rules put FILE` puts the first"), "{}", none.detail());
    let first = put(&server, FIRST, &rules("5/s")).await;
    assert_eq!(json_of(&enforce(json!({"enforce": true})).await)["version"], first, "it is");
    for _ in 0..2 {
        let off = enforce(json!({"enforce": false})).await;
        assert_eq!((off.status, &json_of(&off)["version"]), (200, &json!(first + 1)), "once");
    }
    let (version, document) = current(&server).await;
    assert_eq!((version, &document["enforce"], &document["rules"]), (first + 1, &json!(false), &rules("5/s")["rules"]));
    assert_eq!(json_of(&enforce(json!({"enforce": true})).await)["version"], first + 2);
    assert_eq!(current(&server).await.1["enforce"], true);
    for wrong in [json!({"enforce": "no"}), json!({"enforced": true}), json!(false)] {
        assert_eq!(enforce(wrong.clone()).await.status, 400, "{wrong}");
    }
    let headers = format!("content-type: application/json\r\n{ADMIN}");
    let twice = request("PUT", "/v1/enforcement", &headers, br#"{"enforce": true, "enforce": false}"#);
    assert_eq!(ask(server.address, &twice).await.status, 400);
    let kept = json_of(&page(&server, "/v1/rules/versions").await);
    assert_eq!(kept["versions"][1]["note"], "kill switch: enforce false");
}

/// Waits until the POPs of `server` have to run `version`.
pub(crate) async fn serves(server: &Server, version: u64) {
    until("POPs get it", async || replied(server, &greeting("iad1")).await.rule_set == version).await;
}

#[tokio::test]
async fn every_replica_serves_the_rule_set_without_the_store() {
    let store = Shared::new(Config::default().pop_ttl);
    let (fra, iad) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    assert_eq!(replied(&iad, &greeting("iad1")).await.rule_set, 0);
    let version = put(&fra, FIRST, &rules("5/s")).await;
    assert_eq!(replied(&fra, &greeting("fra1")).await.rule_set, version, "at once");
    serves(&iad, version).await;
    assert_eq!(metric(&iad, "weir_sync_rule_set_version").await.to_string(), version.to_string());
    store.set_gone(true);
    serves(&iad, version).await;
    assert_eq!(json_of(&page(&iad, &format!("/v1/rules?version={version}")).await), rules("5/s"));
    for path in ["/v1/rules", "/v1/rules?version=1", "/v1/rules/versions"] {
        let answer = page(&iad, path).await;
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.detail().contains("taken away"), "{}", answer.detail());
    }
    assert_eq!(admin(&iad, "PUT", "/v1/rules", &of(version), &rules("6/s")).await.status, 503);
    store.set_gone(false);
    let second = put(&iad, &of(version), &rules("6/s")).await;
    serves(&fra, second).await;
}

/// A POP of the fleet's rules is charged; one that reports the same rule with another quota is not, and shows.
#[tokio::test]
async fn a_claim_of_no_kept_rule_set_is_refused() {
    let server = Server::start(guarded()).await;
    let claim = async |quota: Quota, sequence: u64| {
        let mut claims = one_key("fra1", sequence, 40, 40, 50);
        (claims.rules[0].quota, claims.rules[0].sharing) = (quota, Sharing::of(quota));
        replied(&server, &claims).await
    };
    let quota = |rate: &str| Quota::new(rate.parse().unwrap(), 100).unwrap();
    let is_refused = |reply: Reply| (reply.grants[0], reply.settled) == (Allowance::Warm, Settled::None);
    assert!(!is_refused(claim(quota("7/s"), 1).await), "without a rule set any rule may be meant");
    put(&server, FIRST, &rules("100/s")).await;
    put(&server, ANY, &rules("200/s")).await;
    until("the versions are known", async || is_refused(claim(quota("7/s"), 2).await)).await;
    let burst = |rate: u32| Quota::new(Rate::new(rate, Period::Second).unwrap(), rate).unwrap();
    assert!(!is_refused(claim(burst(100), 3).await), "the version before");
    assert!(!is_refused(claim(burst(200), 4).await), "the current one");
    assert!(metric(&server, r#"weir_sync_report_limits_exceeded_total{pop="fra1",reason="rule"}"#).await >= 1.0);
}

/// A report of the rule that [`rules`] makes of `rate` a second, by a POP that runs `version`.
fn of_version(version: u64, rate: u32, sequence: u64) -> Report {
    let quota = Quota::new(Rate::new(rate, Period::Second).unwrap(), rate).unwrap();
    let mut claims = one_key("fra1", sequence, 40, 40, 50);
    (claims.rules[0].quota, claims.rules[0].sharing) = (quota, Sharing::of(quota));
    Report { running: RunningRules { version, refused: 0 }, ..claims }
}

/// A POP gets a version from one replica, and reports to the other before that has asked the store.
#[tokio::test]
async fn a_replica_reads_the_version_of_a_pop_ahead_of_it() {
    let store = Shared::new(Config::default().pop_ttl);
    let (a, b) = (replica("fra", "a", &store).await, replica("fra", "b", &store).await);
    let mut version = put(&a, FIRST, &rules("100/s")).await;
    serves(&b, version).await;
    for n in 1..=3 {
        // Past the pause before it may ask again.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        version = put(&a, ANY, &rules(&format!("{}/s", 100 + n))).await;
        let claims = of_version(version, 100 + u32::try_from(n).unwrap(), n);
        assert!(replied(&b, &claims).await.settled.is_all(), "version {version}");
    }
}

/// It cannot find out whether there is such a version, so nothing is charged or confirmed, but the POP gets its part.
#[tokio::test]
async fn an_offline_replica_grants_keys_of_an_unknown_version() {
    let store = Shared::new(Config::default().pop_ttl);
    let cut = store.beside();
    let (a, b) = (replica("fra", "a", &store).await, replica("fra", "b", &cut).await);
    let first = put(&a, FIRST, &rules("100/s")).await;
    serves(&b, first).await;
    cut.set_gone(true);
    let second = put(&a, ANY, &rules("50/s")).await;
    let alone = replied(&b, &of_version(second, 50, 1)).await;
    assert_eq!(alone.settled, Settled::None);
    assert!(alone.grants[0].grant().is_some_and(|grant| grant.level_milli <= 10_000), "{:?}", alone.grants[0]);
    cut.set_gone(false);
    let mut sequence = 1;
    until("it is charged", async || {
        sequence += 1;
        replied(&b, &of_version(second, 50, sequence)).await.settled.is_all()
    })
    .await;
}
