//! Overrides over HTTP: bans and allows, until a time, kept apart from the rule set.

use std::slice;

use serde_json::{Value, json};
use weir_protocol::messages::{Report, RunningRules};
use weir_sync::config::Config;

use crate::client::{Answer, ask, greeting, request};
use crate::exchange::{metric, replied};
use crate::rules::{REPORTER, admin, current, guarded, json_of, page, put, rules, serves};
use crate::stores::Shared;
use crate::{Server, replica, until};

const FIRST: &str = "if-none-match: *\r\n";
const ANY: &str = "if-match: *\r\n";
const BAN: &str = "/v1/bans";

/// Version or revision that the POPs of this server have to run.
async fn revision_of(server: &Server) -> u64 {
    replied(server, &greeting("fra1")).await.rule_set
}

/// Document of a revision, as a POP fetches it.
async fn revision(server: &Server, number: u64) -> Value {
    let path = format!("/v1/rules?version={number}");
    let answer = ask(server.address, &request("GET", &path, REPORTER, b"")).await;
    assert_eq!((answer.status, answer.header("etag")), (200, Some(format!("\"{number}\"").as_str())));
    let mut document = json_of(&answer);
    without_ends(&mut document);
    document
}

/// Takes the ends out of a document's conditions. Unit tests in `compose.rs` cover the ends.
fn without_ends(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        assert!(fields.remove("until_ms").is_none_or(|end| end.is_u64()));
        fields.values_mut().for_each(without_ends);
    }
    value.as_array_mut().into_iter().flatten().for_each(without_ends);
}

/// Puts an override; it must be taken.
async fn order(server: &Server, path: &str, body: Value) -> Value {
    let answer = admin(server, "PUT", path, "", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    plain(&answer)
}

/// An override as lists show it, of the answer to a change.
fn plain(answer: &Answer) -> Value {
    let mut order = json_of(answer);
    let fields = order.as_object_mut().unwrap();
    assert_eq!(fields.remove("offline"), Some(json!(false)));
    let note = fields.remove("note").expect("a note");
    assert!(note.as_str().is_none_or(|note| note.contains("the store is memory")), "{note}");
    order
}

async fn lift(server: &Server, path: &str) -> Answer {
    admin(server, "DELETE", path, "", &json!(null)).await
}

async fn listed(server: &Server, path: &str) -> Vec<Value> {
    json_of(&page(server, path).await)["overrides"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_ban_makes_a_revision_at_every_replica_and_no_version() {
    let store = Shared::new(Config::default().pop_ttl);
    let (a, b) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    let version = put(&a, FIRST, &rules("5/s")).await;
    serves(&b, version).await;
    let body = json!({"address": "203.0.113.0/24", "for": "1h", "reason": "scans"});
    let banned = order(&a, BAN, body).await;
    for (field, expected) in [("kind", "ban"), ("address", "203.0.113.0/24"), ("reason", "scans"), ("author", "admin")]
    {
        assert_eq!(banned[field], expected, "{banned}");
    }
    assert_eq!(banned["without_effect"], Value::Null);
    let number = revision_of(&a).await;
    assert!(number > version, "at once: {number} {version}");
    let with_it = json!({"rules": rules("5/s")["rules"], "deny": [{"addresses": ["203.0.113.0/24"]}]});
    assert_eq!(revision(&b, number).await, with_it, "a POP may fetch it of one that has not read it yet");
    serves(&b, number).await;
    assert_eq!(revision(&a, number).await, with_it);
    assert_eq!(current(&a).await, (version, rules("5/s")), "the rule set is what it was");
    let fleet = json_of(&page(&b, "/v1/fleet").await);
    assert_eq!((&fleet["version"], &fleet["rule_set"]), (&json!(number), &json!(version)));
    assert_eq!(metric(&b, "weir_sync_rule_set_version").await.to_string(), number.to_string());
    assert_eq!(listed(&b, "/v1/overrides").await, slice::from_ref(&banned));
    assert_eq!((listed(&b, BAN).await, listed(&b, "/v1/allows").await), (vec![banned], vec![]));
}

#[tokio::test]
async fn overrides_outlast_any_new_rule_set() {
    let server = Server::start(guarded()).await;
    let version = put(&server, FIRST, &rules("5/s")).await;
    order(&server, BAN, json!({"address": "192.0.2.1", "for": "1h"})).await;
    let mut before = revision_of(&server).await;
    let denied = json!([{"addresses": ["192.0.2.1"]}]);
    put(&server, ANY, &rules("6/s")).await;
    for (method, path, body, rate) in [
        ("POST", "/v1/rules/rollback", json!({"version": version}), "5/s"),
        ("PUT", "/v1/enforcement", json!({"enforce": false}), "5/s"),
    ] {
        assert_eq!(admin(&server, method, path, ANY, &body).await.status, 200);
        let number = revision_of(&server).await;
        assert!(number > before, "revisions only grow");
        let document = revision(&server, number).await;
        assert_eq!((&document["deny"], &document["rules"]), (&denied, &rules(rate)["rules"]), "{path}");
        assert_eq!(current(&server).await.1.get("deny"), None);
        before = number;
    }
    let off = listed(&server, BAN).await[0]["without_effect"].as_str().unwrap().to_owned();
    assert!(off.contains("switched off"), "{off}");
    let answer = admin(&server, "POST", "/v1/rules/rollback", ANY, &json!({"version": before})).await;
    assert_eq!(answer.status, 404, "a revision is no version to go back to");
}

#[tokio::test]
async fn the_last_word_about_an_address_counts_until_it_is_lifted() {
    let server = Server::start(guarded()).await;
    put(&server, FIRST, &rules("5/s")).await;
    order(&server, BAN, json!({"address": "192.0.2.1", "for": "1h"})).await;
    let allowed = order(&server, "/v1/allows", json!({"address": "192.0.2.1/32", "for": "1h"})).await;
    let document = revision(&server, revision_of(&server).await).await;
    assert_eq!((document.get("deny"), &document["allow"]), (None, &json!([{"addresses": ["192.0.2.1"]}])));
    assert_eq!(lift(&server, "/v1/bans/192.0.2.1").await.status, 404, "it is no ban any more");
    let lifted = lift(&server, &format!("/v1/allows/{}", allowed["id"])).await;
    assert_eq!((lifted.status, plain(&lifted)), (200, allowed));
    assert_eq!(revision(&server, revision_of(&server).await).await, rules("5/s"));
    for (address, path) in [
        ("203.0.113.0/24", "/v1/bans/203.0.113.0%2F24"),
        ("203.0.113.0/24", "/v1/bans/203.0.113.0/24"),
        ("2001:db8::/32", "/v1/bans/2001%3Adb8%3A%3A%2F32"),
    ] {
        order(&server, BAN, json!({"address": address, "for": "1h"})).await;
        assert_eq!(lift(&server, path).await.status, 200, "{path}");
        assert_eq!(lift(&server, path).await.status, 404, "{path}");
    }
    assert_eq!(lift(&server, "/v1/bans/nobody").await.status, 400);
}

#[tokio::test]
async fn an_invalid_override_is_refused_and_changes_nothing() {
    let server = Server::start(guarded()).await;
    let good = json!({"address": "192.0.2.1", "for": "1h"});
    let none = admin(&server, "PUT", BAN, "", &good).await;
    assert_eq!(none.status, 409);
    assert!(none.detail().contains("`weir-sync rules put FILE` puts the first"), "{}", none.detail());
    let full = json!({"rules": rules("5/s")["rules"], "allow": vec![json!({"not": {"methods": ["PUT"]}}); 100]});
    let version = put(&server, FIRST, &full).await;
    let bad = admin(&server, "PUT", BAN, "", &json!({"address": "192.0.2.1/24", "fro": "1h"})).await;
    assert_eq!(bad.status, 422);
    let places: Vec<_> = json_of(&bad)["errors"].as_array().unwrap().iter().map(|e| e["place"].clone()).collect();
    assert_eq!(places, ["address", "", "fro"], "{}", bad.text());
    let invalid = admin(&server, "PUT", "/v1/allows", "", &good).await;
    assert_eq!(invalid.status, 422, "the rule set's list is full: {}", invalid.text());
    assert_eq!(json_of(&invalid)["errors"][0]["place"], "allow");
    let with_query = admin(&server, "PUT", "/v1/bans?dry_run=true", "", &good).await;
    assert_eq!(with_query.status, 400);
    let headers = "content-type: application/json\r\n";
    for (token, status) in [("", 401), (REPORTER, 401)] {
        let body = good.to_string();
        let put = request("PUT", BAN, &format!("{token}{headers}"), body.as_bytes());
        assert_eq!(ask(server.address, &put).await.status, status);
        let get = request("GET", "/v1/overrides", token, b"");
        assert_eq!(ask(server.address, &get).await.status, status);
    }
    for (method, path, allowed) in [
        ("POST", BAN, "get, head, put"),
        ("PUT", "/v1/overrides", "get, head"),
        ("GET", "/v1/bans/192.0.2.1", "delete"),
    ] {
        let answer = admin(&server, method, path, "", &good).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{path}");
    }
    assert_eq!((revision_of(&server).await, listed(&server, "/v1/overrides").await), (version, vec![]));
    // Overrides do not stand in the way of a rule set that has no room for them.
    put(&server, ANY, &rules("5/s")).await;
    order(&server, "/v1/allows", good.clone()).await;
    put(&server, ANY, &full).await;
    assert_eq!(revision(&server, revision_of(&server).await).await, full);
    let why = listed(&server, "/v1/allows").await[0]["without_effect"].as_str().unwrap().to_owned();
    assert!(why.contains("allow: expected a list"), "{why}");
}

#[tokio::test]
async fn an_override_gives_one_key_another_rate_and_outlasts_its_rule() {
    let server = Server::start(guarded()).await;
    let version = put(&server, FIRST, &rules("5/s")).await;
    let path = "/v1/keys/per-address/192.0.2.1/override";
    let body = json!({"rate": "100/s", "burst": 200, "for": "1h", "reason": "their launch"});
    let put_it = order(&server, path, body.clone()).await;
    for (field, expected) in [
        ("kind", json!("rate")),
        ("rule", json!("per-address")),
        ("key", json!("192.0.2.1")),
        ("rate", json!("100/s")),
        ("burst", json!(200)),
        ("without_effect", Value::Null),
    ] {
        assert_eq!(put_it[field], expected, "{put_it}");
    }
    let tier = json!({"name": "o-100-s-200", "rate": "100/s", "burst": 200, "when": {"addresses": ["192.0.2.1/32"]}});
    let tiers = async || revision(&server, revision_of(&server).await).await["rules"][0]["tiers"].clone();
    assert_eq!(tiers().await, json!([tier]));
    for (path, body, place) in [
        ("/v1/keys/nobody/192.0.2.1/override", &body, "rule"),
        ("/v1/keys/per-address/acme/override", &body, "key"),
        ("/v1/keys/per-address/192.0.2.1/override", &json!({"rate": "fast", "for": "1h"}), "rules[0].tiers[0].rate"),
        ("/v1/keys/per-address/192.0.2.1/override", &json!({"for": "1h"}), "rate"),
    ] {
        let refused = admin(&server, "PUT", path, "", body).await;
        assert_eq!((refused.status, &json_of(&refused)["errors"][0]["place"]), (422, &json!(place)), "{path}");
    }
    // A rule set without the rule: the override waits for it.
    let other = json!({"rules": [{"name": "other", "key": ["all"], "rate": "5/s"}]});
    put(&server, ANY, &other).await;
    assert_eq!(revision(&server, revision_of(&server).await).await, other);
    let why = listed(&server, "/v1/overrides").await[0]["without_effect"].as_str().unwrap().to_owned();
    assert!(why.contains("found \"per-address\""), "{why}");
    assert_eq!(admin(&server, "POST", "/v1/rules/rollback", ANY, &json!({"version": version})).await.status, 200);
    assert_eq!(tiers().await, json!([tier]));
    assert_eq!(lift(&server, path).await.status, 200);
    assert_eq!(revision(&server, revision_of(&server).await).await, rules("5/s"));
    assert_eq!(lift(&server, path).await.status, 404);
}

#[tokio::test]
async fn a_ban_of_a_key_is_pushed_until_it_is_lifted() {
    let store = Shared::new(Config::default().pop_ttl);
    let server = Server::start_over(guarded(), store.clone()).await;
    put(&server, FIRST, &rules("5/s")).await;
    let body = |span: &str| json!({"rule": "per-address", "key": "192.0.2.1/32", "for": span, "reason": "scans"});
    let banned = order(&server, BAN, body("1h")).await;
    assert_eq!((&banned["rule"], &banned["key"]), (&json!("per-address"), &json!("192.0.2.1")), "{banned}");
    let bans = async || replied(&server, &greeting("fra1")).await.bans;
    let lengths: Vec<u32> = bans().await.iter().map(|ban| ban.for_ms).collect();
    assert!(matches!(lengths[..], [3_500_000..=3_600_000]), "{lengths:?}");
    assert_eq!(listed(&server, BAN).await, slice::from_ref(&banned));
    let shorter = order(&server, BAN, body("1m")).await;
    let lengths: Vec<u32> = bans().await.iter().map(|ban| ban.for_ms).collect();
    assert!(matches!(lengths[..], [0, 50_000..=60_000]), "the longer one is forgotten: {lengths:?}");
    let path = format!("/v1/bans/{}", shorter["id"]);
    store.set_keeps_budgets(true);
    assert_eq!(lift(&server, "/v1/keys/per-address/192.0.2.1").await.status, 503);
    assert_eq!(listed(&server, BAN).await, [shorter], "it is in force");
    assert_eq!(lift(&server, &path).await.status, 200, "to lift a ban, a budget is not needed");
    store.set_keeps_budgets(false);
    let lengths: Vec<u32> = bans().await.iter().map(|ban| ban.for_ms).collect();
    assert_eq!((lengths, listed(&server, BAN).await.len()), (vec![0], 0), "it is forgotten");
    order(&server, BAN, body("1h")).await;
    assert_eq!(lift(&server, "/v1/keys/per-address/192.0.2.1").await.status, 200);
    assert_eq!(listed(&server, BAN).await.len(), 0, "a key that is reset is not banned");
    let nobody = json!({"rule": "nobody", "key": "192.0.2.1", "for": "1h"});
    assert_eq!(admin(&server, "PUT", BAN, "", &nobody).await.status, 404);
}

#[tokio::test]
async fn a_ban_of_a_key_includes_later_tiers() {
    let server = Server::start(guarded()).await;
    put(&server, FIRST, &rules("5/s")).await;
    order(&server, BAN, json!({"rule": "per-address", "key": "192.0.2.1", "for": "1h"})).await;
    let path = "/v1/keys/per-address/192.0.2.1/override";
    order(&server, path, json!({"rate": "100/s", "for": "1h"})).await;
    until("the tier's key is banned", async || {
        replied(&server, &greeting("fra1")).await.rules.contains(&"per-address.o-100-s".to_owned())
    })
    .await;
    assert_eq!(lift(&server, "/v1/keys/per-address/192.0.2.1").await.status, 200);
    let reply = replied(&server, &greeting("fra1")).await;
    let forgotten = reply.bans.iter().filter(|ban| ban.for_ms == 0).count();
    assert_eq!((forgotten, reply.bans.len()), (2, 2), "{reply:?}");
}

#[tokio::test]
async fn an_override_left_without_effect_is_a_warning() {
    let server = Server::start(guarded()).await;
    put(&server, FIRST, &rules("5/s")).await;
    let more = json!({"rate": "100/s", "for": "1h"});
    order(&server, "/v1/keys/per-address/192.0.2.1/override", more).await;
    order(&server, BAN, json!({"address": "203.0.113.7", "for": "1h"})).await;
    let mut other = rules("5/s");
    other["rules"][0]["name"] = json!("renamed");
    let warned = async |path: &str, rules: &Value| {
        let answer = admin(&server, "PUT", path, ANY, rules).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        json_of(&answer)["warnings"].as_array().unwrap().clone()
    };
    assert_eq!(warned("/v1/rules?dry_run=true", &rules("6/s")).await, [] as [Value; 0]);
    for path in ["/v1/rules?dry_run=true", "/v1/rules"] {
        let warnings = warned(path, &other).await;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!((&warnings[0]["place"], &warnings[0]["rule"]), (&json!("overrides"), &json!("per-address")));
        let problem = warnings[0]["problem"].as_str().unwrap();
        assert!(problem.contains("192.0.2.1") && problem.contains("without effect"), "{problem}");
    }
    assert_eq!(warned("/v1/rules", &other).await, [] as [Value; 0], "it was lost before");
}

#[tokio::test]
async fn replicas_with_the_same_offline_changes_have_one_revision() {
    let store = Shared::new(Config::default().pop_ttl);
    let (a, b) = (replica("fra", "a", &store).await, replica("fra", "b", &store).await);
    serves(&b, put(&a, FIRST, &rules("5/s")).await).await;
    store.set_gone(true);
    for server in [&a, &b] {
        let answer = admin(server, "PUT", "/v1/enforcement", "", &json!({"enforce": false})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(revision_of(&a).await, revision_of(&b).await, "no POP is sent to and fro");
    let key = json!({"rule": "per-address", "key": "192.0.2.7", "for": "1h"});
    let banned = admin(&a, "PUT", BAN, "", &key).await;
    assert_eq!((banned.status, &json_of(&banned)["offline"]), (200, &json!(true)), "{}", banned.text());
    assert_eq!(replied(&a, &greeting("fra1")).await.bans.len(), 1, "a ban of a key, too");
    let answer = admin(&a, "PUT", "/v1/rules", ANY, &rules("6/s")).await;
    assert_eq!(answer.status, 503, "a rule set needs the store");
}

/// A weir-sync that has lost its store's data shows it, and can switch off what POPs run.
#[tokio::test]
async fn a_rule_set_that_the_store_lost_is_shown_and_replaced() {
    let server = Server::start(guarded()).await;
    let running = RunningRules { version: 7, refused: 0 };
    let reply = async || replied(&server, &Report { running, ..greeting("fra1") }).await;
    reply().await;
    until("it is lost", async || json_of(&page(&server, "/v1/fleet").await)["lost"] == 7).await;
    let overrides = json_of(&page(&server, "/v1/overrides").await);
    assert_eq!((&overrides["lost"], &overrides["overrides"]), (&json!(7), &json!([])));
    let body = json!({"address": "192.0.2.1", "for": "1h"});
    for answer in [lift(&server, "/v1/bans/192.0.2.1").await, admin(&server, "PUT", BAN, "", &body).await] {
        assert_eq!(answer.status, 409, "{}", answer.text());
        assert!(answer.detail().contains("lost the rule set and the overrides of revision 7"), "{}", answer.text());
    }
    // Bans of keys travel apart from the rules.
    let key = json!({"rule": "per-address", "key": "192.0.2.7", "for": "1h"});
    let banned = order(&server, BAN, key).await;
    assert_eq!((&banned["without_effect"], listed(&server, BAN).await.len()), (&Value::Null, 1));
    let pushed = async || {
        let reply = reply().await;
        assert_eq!(reply.rule_set, 0, "the POP keeps its rules");
        reply.bans.iter().map(|ban| ban.for_ms).collect::<Vec<_>>()
    };
    assert!(matches!(pushed().await[..], [3_500_000..=3_600_000]));
    assert_eq!(lift(&server, &format!("/v1/bans/{}", banned["id"])).await.status, 200);
    assert_eq!((pushed().await, listed(&server, BAN).await.len()), (vec![0], 0));
    let off = admin(&server, "PUT", "/v1/enforcement", "", &json!({"enforce": false})).await;
    assert_eq!(off.status, 200, "{}", off.text());
    assert!(json_of(&off)["note"].as_str().unwrap().contains("the store is memory"));
    let number = revision_of(&server).await;
    assert_eq!(revision(&server, number).await["enforce"], false);
    assert_eq!(json_of(&page(&server, "/v1/fleet").await)["lost"], Value::Null);
    let on = admin(&server, "PUT", "/v1/enforcement", "", &json!({"enforce": true})).await;
    assert_eq!(on.status, 409, "there are no rules to switch on: {}", on.text());
}
