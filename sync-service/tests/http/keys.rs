//! The limited keys, from any weir-sync.

use serde_json::{Value, json};
use weir_protocol::messages::{BudgetRule, Key, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_sync::config::Config;

use crate::client::{ask, get, greeting, report, request};
use crate::rules::{self, REPORTER};
use crate::stores::Shared;
use crate::{Server, found, replica};

/// A report of `pop`: of each address, what was admitted and asked for since its epoch began. The rule is 10/s.
fn counts_of(pop: &str, sequence: u64, keys: &[(u8, u64, u64)]) -> Report {
    let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 10).unwrap();
    let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
    let key = |(address, admitted, asked): &(u8, u64, u64)| Key {
        value: vec![4, 32, 192, 0, 2, *address],
        epoch: 1,
        admitted: *admitted,
        unconfirmed: *admitted,
        span_ms: 250,
        asked: *asked,
        asked_recently: *asked,
        ..Key::default()
    };
    Report { sequence, rules, keys: keys.iter().map(key).collect(), ..greeting(pop) }
}

async fn page(server: &Server, path: &str) -> Value {
    let answer = rules::page(server, path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice(&answer.body).unwrap()
}

/// The list of `server`, once it has this number of `keys`.
async fn list(server: &Server, query: &str, keys: usize) -> Vec<Value> {
    found(&format!("{keys} keys"), async || {
        let page = page(server, &format!("/v1/keys{query}")).await;
        Some(page["keys"].as_array().unwrap().clone()).filter(|listed| listed.len() == keys)
    })
    .await
}

#[tokio::test]
async fn any_weir_sync_lists_the_keys_of_the_fleet() {
    let store = Shared::new(Config::default().pop_ttl);
    let (fra, iad) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    assert_eq!(list(&fra, "", 0).await, Vec::<Value>::new());
    report(fra.address, REPORTER, &counts_of("fra1", 1, &[(1, 10, 70), (2, 3, 3)])).await;
    report(fra.address, REPORTER, &counts_of("fra2", 1, &[(1, 5, 45)])).await;
    report(iad.address, REPORTER, &counts_of("iad1", 1, &[(1, 10, 30), (3, 9, 10)])).await;
    for server in [&fra, &iad] {
        let keys = list(server, "", 3).await;
        let column = |name: &str| keys.iter().map(|key| key[name].clone()).collect::<Vec<_>>();
        assert_eq!(column("key"), ["192.0.2.1", "192.0.2.3", "192.0.2.2"], "{keys:#?}");
        assert_eq!(column("limited_per_s"), [json!(120.0), json!(1.0), json!(0.0)]);
        assert_eq!(column("admitted_per_s"), [json!(25.0), json!(9.0), json!(3.0)]);
        let top = &keys[0];
        assert_eq!(
            (&top["rule"], &top["burst"], &top["rate_per_s"]),
            (&json!("per-address"), &json!(10), &json!(10.0))
        );
        let level = top["level"].as_f64().unwrap();
        assert!((-15.0..5.0).contains(&level), "25 were taken of 10, a moment ago: {top:#}");
        assert!(top["since"].as_str().unwrap().ends_with('Z') && keys[2]["since"].is_null());
        let pops: Vec<_> = top["pops"].as_array().unwrap().iter().map(|pop| pop["pop"].clone()).collect();
        assert_eq!(pops, ["fra1", "fra2", "iad1"]);
        let regions = &top["regions"];
        assert_eq!((&regions[0]["region"], &regions[0]["asked_per_s"]), (&json!("fra"), &json!(115.0)));
        assert_eq!((&regions[1]["region"], &regions[1]["pops"]), (&json!("iad"), &json!(1)));
    }
    let by_debt = list(&fra, "?sort=debt&limit=1&prefix=192.0.2.0/24&rule=per-address", 1).await;
    assert_eq!(by_debt[0]["key"], "192.0.2.1");
    assert_eq!(list(&fra, "?rule=per", 0).await.len(), 0);
    let bad = rules::page(&fra, "/v1/keys?top=3").await;
    assert_eq!(bad.status, 400);
    assert!(bad.detail().contains("found `?top=3`"), "{}", bad.detail());
    assert_eq!(get(fra.address, "/v1/keys").await.status, 401, "it names clients");
    assert_eq!(ask(fra.address, &request("PUT", "/v1/keys", "", b"")).await.status, 405);
}

#[tokio::test]
async fn without_its_store_a_weir_sync_lists_its_own_keys_as_partial() {
    let store = Shared::new(Config::default().pop_ttl);
    let (fra, iad) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    rules::put(&fra, "if-none-match: *\r\n", &rules::rules("10/s")).await;
    report(fra.address, REPORTER, &counts_of("fra1", 1, &[(1, 10, 70)])).await;
    report(iad.address, REPORTER, &counts_of("iad1", 1, &[(3, 9, 10)])).await;
    list(&fra, "", 2).await;
    assert_eq!(page(&fra, "/v1/keys").await["is_partial"], false);
    store.set_gone(true);
    let alone = page(&fra, "/v1/keys").await;
    assert_eq!((&alone["is_partial"], &alone["weir_syncs"]), (&json!(true), &json!(1)));
    assert_eq!(alone["keys"].as_array().unwrap().len(), 1);
    // What is asked for meanwhile is counted as well.
    report(fra.address, REPORTER, &counts_of("fra1", 2, &[(2, 5, 90)])).await;
    list(&fra, "", 2).await;
    let one = page(&fra, "/v1/keys/per-address/192.0.2.1").await;
    assert!(one["store_error"].as_str().unwrap().contains("taken away"), "{one:#}");
    assert_eq!(one["asked_per_s"], 70.0);
    let explained = rules::admin(&fra, "POST", "/v1/keys", "", &json!({"address": "192.0.2.1"})).await;
    let explained: Value = serde_json::from_slice(&explained.body).unwrap();
    let text = "It is limited at times: per-address refuses 86 % of its key\u{2019}s requests now.";
    assert_eq!(explained["summary"], json!({"kind": "bad", "text": text}), "{explained:#}");
}

#[tokio::test]
async fn a_key_is_also_found_under_tiers() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    let gold = json!({"name": "gold", "when": {"path": {"prefix": "/x"}}, "rate": "10/s"});
    let api = json!({"name": "api", "key": ["client_address"], "rate": "5/s", "tiers": [gold]});
    rules::put(&fra, "if-none-match: *\r\n", &json!({"rules": [api]})).await;
    let one = page(&fra, "/v1/keys/api/192.0.2.1").await;
    assert_eq!((&one["rule"], &one["rate_per_s"]), (&json!("api"), &json!(5.0)));
    let [gold] = one["tiers"].as_array().unwrap().as_slice() else { panic!("{one:#}") };
    assert_eq!((&gold["rule"], &gold["rate_per_s"]), (&json!("api.gold"), &json!(10.0)));
    let gold = page(&fra, "/v1/keys/api.gold/192.0.2.1").await;
    assert_eq!((&gold["rule"], &gold["tiers"]), (&json!("api.gold"), &json!([])));
}

#[tokio::test]
async fn one_key_is_looked_up_busy_or_not() {
    let store = Shared::new(Config::default().pop_ttl);
    let (fra, iad) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    assert_eq!(rules::page(&fra, "/v1/keys/per-address/192.0.2.1").await.status, 404, "the rule is unknown");
    report(fra.address, REPORTER, &counts_of("fra1", 1, &[(1, 30, 70)])).await;
    report(iad.address, REPORTER, &counts_of("iad1", 1, &[(1, 10, 30)])).await;
    list(&iad, "", 1).await;
    let one = page(&fra, "/v1/keys/per-address/192.0.2.1").await;
    let number = |name: &str| one[name].as_f64().unwrap_or_else(|| panic!("{name}: {one:#}"));
    // 40 were taken of 10; some have refilled since.
    assert!((-30.0..-10.0).contains(&number("level")) && number("debt") > 10.0, "{one:#}");
    assert!((number("full_in_s") - (10.0 - number("level")) / 10.0).abs() < 0.01, "{one:#}");
    assert!((number("free_in_s") - (1.0 - number("level")) / 10.0).abs() < 0.01, "{one:#}");
    assert_eq!((&one["grant"]["watch_level"], &one["is_reported"]), (&json!("hot"), &json!(true)));
    let asked: Vec<_> = one["asked_in"].as_array().unwrap().iter().map(|it| it["weir_sync"].clone()).collect();
    assert_eq!(asked, ["fra/a", "iad/a"]);
    let idle = page(&fra, "/v1/keys/per-address/192.0.2.99").await;
    assert_eq!((&idle["level"], &idle["free_in_s"], &idle["asked_per_s"]), (&json!(10.0), &json!(0.0), &json!(0.0)));
    for bad in ["/v1/keys/per-address/", "/v1/keys/per-address", "/v1/keys//192.0.2.1", "/v1/keys/per-address/x"] {
        assert_eq!(rules::page(&fra, bad).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_strict_key_that_wants_more_than_it_gets_is_limited() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    let sent = counts_of("fra1", 1, &[(1, 0, 0), (2, 0, 0)]);
    let rules = sent.rules.into_iter().map(|rule| {
        let sharing = Sharing { strict: true, ..rule.sharing };
        BudgetRule { sharing, ..rule }
    });
    let wants = |(key, ahead)| Key { ahead, ..key };
    let keys = sent.keys.into_iter().zip([30, 4]).map(wants).collect();
    report(fra.address, REPORTER, &Report { rules: rules.collect(), keys, ..greeting("fra1") }).await;
    let listed = list(&fra, "", 2).await;
    let column = |name: &str| listed.iter().map(|key| key[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("key"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(column("admitted_per_s"), [json!(10.0), json!(4.0)]);
    assert_eq!(column("limited_per_s"), [json!(20.0), json!(0.0)], "of 30 wanted, 10 were there");
    let one = page(&fra, "/v1/keys/per-address/192.0.2.1").await;
    assert_eq!((&one["leased"], &one["grant"]), (&json!(10), &Value::Null));
}

#[tokio::test]
async fn the_keys_of_a_request_are_looked_up() {
    let store = Shared::new(Config::default().pop_ttl);
    let fra = replica("fra", "a", &store).await;
    let set = json!({
        "deny": [{"methods": ["TRACE"]}],
        "rules": [
            {"name": "per-address", "key": ["client_address"], "rate": "10/s"},
            {"name": "per-user", "key": [{"header": "x-user"}], "rate": "10/s"},
            {"name": "login", "match": {"path": {"exact": "/login"}}, "key": ["all"], "rate": "5/m",
             "algorithm": "fixed_window"},
            {"name": "by-network", "match": {"methods": ["PUT"]}, "key": [{"client_address": {"ipv4": 16}}],
             "rate": "5/m"},
        ],
    });
    let asks = async |body: Value| {
        let headers = format!("content-type: application/json\r\n{}", rules::ADMIN);
        ask(fra.address, &request("POST", "/v1/keys", &headers, body.to_string().as_bytes())).await
    };
    assert_eq!(asks(json!({})).await.status, 404, "there is no rule set");
    rules::put(&fra, "if-none-match: *\r\n", &set).await;
    let answer = asks(json!({"address": "192.0.2.7", "path": "/login", "headers": {"x-user": "me"}})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let keys = answer["keys"].as_array().unwrap();
    let column = |name: &str| keys.iter().map(|key| key[name].clone()).collect::<Vec<_>>();
    assert_eq!(answer["list"], Value::Null);
    assert_eq!(column("rule"), ["per-address", "per-user", "login"]);
    assert_eq!(column("key"), [json!("192.0.2.7"), Value::Null, json!("all")]);
    assert_eq!((&keys[0]["level"], &keys[0]["free_in_s"]), (&json!(10.0), &json!(0.0)));
    assert!(keys[1]["why"].as_str().unwrap().contains("gateway_key_secret_file"), "{answer:#}");
    assert_eq!(column("enforced_percent"), [100, 100, 100]);
    assert_eq!(column("lacks_key"), [false, false, false]);
    let summary = "It may go through: how its key stands under per-user, login is not known here.";
    assert_eq!(answer["summary"], json!({"kind": "warn", "text": summary}));
    assert!(keys[2]["why"].as_str().unwrap().contains("each POP"), "{answer:#}");
    let why = "match: methods does not hold: the request has none";
    assert_eq!(answer["others"], json!([{"rule": "by-network", "why": why}]), "{answer:#}");
    for (text, key) in [("192.0.2.7", "192.0.0.0/16"), ("192.0.2.7/16", "192.0.0.0/16"), ("::1", "::/64")] {
        assert_eq!(page(&fra, &format!("/v1/keys/by-network/{text}")).await["key"], key);
    }
    let other = rules::page(&fra, "/v1/keys/by-network/192.0.2.0/24").await;
    assert!(other.status == 400 && other.detail().contains("counts by /16, found /24"), "{}", other.detail());
    let denied: Value = serde_json::from_slice(&asks(json!({"method": "TRACE"})).await.body).unwrap();
    let summary = json!({"kind": "bad", "text": "It meets the list deny: it gets 403."});
    assert_eq!(denied, json!({"summary": summary, "list": "deny", "keys": [], "others": [], "overrides": []}));
    // As overrides have it.
    let ordered = async |path: &str, body: Value| {
        assert_eq!(rules::admin(&fra, "PUT", path, "", &body).await.status, 200, "{path}");
    };
    ordered("/v1/bans", json!({"address": "203.0.113.0/24", "for": "1h"})).await;
    ordered("/v1/allows", json!({"address": "203.0.113.9", "for": "1h"})).await;
    let rate = json!({"rate": "99/s", "burst": 99, "for": "1h"});
    ordered("/v1/keys/per-address/192.0.2.7/override", rate).await;
    for (address, list, overrides) in [("203.0.113.7", "deny", 1), ("203.0.113.9", "allow", 2)] {
        let answer: Value = serde_json::from_slice(&asks(json!({"address": address})).await.body).unwrap();
        assert_eq!((&answer["list"], &answer["keys"]), (&json!(list), &json!([])), "{address}");
        assert_eq!(answer["overrides"].as_array().unwrap().len(), overrides, "{answer:#}");
    }
    let answer: Value = serde_json::from_slice(&asks(json!({"address": "192.0.2.7"})).await.body).unwrap();
    assert_eq!(
        (&answer["keys"][0]["rule"], &answer["keys"][0]["burst"]),
        (&json!("per-address.o-99-s-99"), &json!(99))
    );
    assert_eq!(answer["keys"][0]["overrides"][0]["kind"], "rate", "{answer:#}");
    assert_eq!(asks(json!({"adress": "192.0.2.7"})).await.status, 422);
}
