//! A canary over HTTP: a rule set for some POPs or a region, promoted or withdrawn.

use serde_json::{Value, json};
use weir_protocol::messages::{Report, RunningRules};
use weir_sync::config::Config;

use crate::client::{Answer, ask, greeting, report, request};
use crate::exchange::{metric, replied};
use crate::gateway::{check, gateway, in_force};
use crate::rules::{ADMIN, REPORTER, admin, current, guarded, json_of, page, put, rules};
use crate::stores::Shared;
use crate::{Server, found, replica, until};

const FIRST: &str = "if-none-match: *\r\n";
const ANY: &str = "if-match: *\r\n";
const CANARY: &str = "/v1/rules/canary";
const PROMOTE: &str = "/v1/rules/canary/promote";

/// Two regions over one store, each with a POP that has reported.
struct Fleet {
    eu: Server,
    us: Server,
}

impl Fleet {
    /// One that runs a rule set of 5/s; and its version.
    async fn start() -> (Self, u64) {
        let store = Shared::new(Config::default().pop_ttl);
        let (eu, us) = (replica("eu", "a", &store).await, replica("us", "a", &store).await);
        let version = put(&eu, FIRST, &rules("5/s")).await;
        let fleet = Self { eu, us };
        fleet.runs(version, version).await;
        (fleet, version)
    }

    /// Waits until the POPs in eu and us have to run these versions.
    async fn runs(&self, eu: u64, us: u64) {
        until("both to have their version", async || {
            (version_for(&self.eu, "fra1").await, version_for(&self.us, "nyc1").await) == (eu, us)
        })
        .await;
        recorded(&self.eu, 2).await;
    }
}

/// Waits until this number of POPs is recorded.
async fn recorded(server: &Server, count: usize) {
    let pops = async || json_of(&page(server, "/v1/fleet").await)["pops"].as_array().unwrap().len();
    until("the POPs to be recorded", async || pops().await == count).await;
}

/// Version that `pop` has to run.
async fn version_for(server: &Server, pop: &str) -> u64 {
    replied(server, &greeting(pop)).await.rule_set
}

/// Begins a canary, which must be taken.
async fn begin(server: &Server, query: &str, rules: &Value) -> u64 {
    let answer = admin(server, "PUT", &format!("/v1/rules?{query}"), ANY, rules).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let id = json_of(&answer)["canary"].as_u64().unwrap();
    assert_eq!(answer.header("etag"), Some(format!("\"{id}\"").as_str()));
    id
}

async fn withdraw(server: &Server) -> Answer {
    admin(server, "DELETE", CANARY, "", &json!(null)).await
}

/// Document of a revision, as a POP fetches it.
async fn revision(server: &Server, number: u64) -> Value {
    let answer = ask(server.address, &request("GET", &format!("/v1/rules?version={number}"), REPORTER, b"")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    json_of(&answer)
}

#[tokio::test]
async fn a_canary_is_for_a_region_and_promoted_for_all() {
    let (fleet, version) = Fleet::start().await;
    let id = begin(&fleet.us, "region=eu", &rules("9/s")).await;
    fleet.runs(version + 1, version).await;
    assert_eq!(revision(&fleet.eu, version + 1).await, rules("9/s"));
    assert_eq!(revision(&fleet.us, version).await, rules("5/s"));
    assert_eq!(current(&fleet.us).await, (version, rules("5/s")), "the rule set is what it was");
    for server in [&fleet.eu, &fleet.us] {
        assert_eq!(metric(server, "weir_sync_canary_revision").await.to_string(), (version + 1).to_string());
        let answer = page(server, CANARY).await;
        assert_eq!(answer.header("etag"), Some(format!("\"{id}\"").as_str()));
        let canary = json_of(&answer);
        assert_eq!((&canary["id"], &canary["region"]), (&json!(id), &json!("eu")));
        assert_eq!((&canary["revision"], &canary["version"]), (&json!(version + 1), &json!(version)));
        assert_eq!((&canary["author"], &canary["document"]), (&json!("admin"), &rules("9/s")));
        assert_eq!(canary["changes"]["changed"], json!([{"rule": "per-address", "fields": ["rate"]}]));
    }
    for (headers, status) in [("", 428), ("if-match: \"7\"\r\n", 412), ("if-match: 7\r\n", 400)] {
        assert_eq!(admin(&fleet.us, "POST", PROMOTE, headers, &json!(null)).await.status, status, "{headers}");
    }
    let headers = format!("if-match: \"{id}\"\r\nweir-comment: it is good\r\n");
    let promoted = admin(&fleet.us, "POST", PROMOTE, &headers, &json!(null)).await;
    assert_eq!((promoted.status, json_of(&promoted)), (200, json!({"version": version + 1})));
    fleet.runs(version + 1, version + 1).await;
    assert_eq!(current(&fleet.eu).await, (version + 1, rules("9/s")));
    let made = json_of(&page(&fleet.eu, "/v1/rules/versions").await)["versions"][0].clone();
    assert_eq!((&made["note"], &made["comment"]), (&json!(format!("promote canary {id}")), &json!("it is good")));
    assert_eq!(page(&fleet.eu, CANARY).await.status, 404);
    assert_eq!(metric(&fleet.us, "weir_sync_canary_revision").await.to_string(), "0");
    put(&fleet.eu, ANY, &rules("7/s")).await;
}

#[tokio::test]
async fn overrides_change_what_all_run_and_what_the_canary_runs() {
    let (fleet, version) = Fleet::start().await;
    begin(&fleet.eu, "pops=fra1", &rules("9/s")).await;
    let ban = json!({"address": "192.0.2.1", "for": "1h"});
    assert_eq!(admin(&fleet.us, "PUT", "/v1/bans", "", &ban).await.status, 200);
    let number = version_for(&fleet.us, "nyc1").await;
    assert!(number > version + 1, "{number} {version}");
    fleet.runs(number + 1, number).await;
    let denied = json!([{"addresses": ["192.0.2.1"]}]);
    for (server, number, rate) in [(&fleet.eu, number + 1, "9/s"), (&fleet.us, number, "5/s")] {
        let document = revision(server, number).await;
        let found = json!([{"addresses": document["deny"][0]["addresses"]}]);
        assert_eq!((&found, &document["rules"]), (&denied, &rules(rate)["rules"]));
    }
    admin(&fleet.us, "POST", PROMOTE, ANY, &json!(null)).await;
    fleet.runs(number + 1, number + 1).await;
    let document = revision(&fleet.us, number + 1).await;
    assert_eq!(json!([{"addresses": document["deny"][0]["addresses"]}]), denied);
}

#[tokio::test]
async fn a_canary_blocks_puts_but_not_the_kill_switch() {
    let (fleet, version) = Fleet::start().await;
    let id = begin(&fleet.eu, "region=eu", &rules("9/s")).await;
    let to = json!({"version": version});
    for (method, path, body) in [
        ("PUT", "/v1/rules", rules("7/s")),
        ("PUT", "/v1/rules?region=us", rules("7/s")),
        ("PUT", "/v1/rules?region=us&dry_run=true", rules("7/s")),
        ("POST", "/v1/rules/rollback", to),
    ] {
        let answer = admin(&fleet.us, method, path, ANY, &body).await;
        assert_eq!((answer.status, &json_of(&answer)["canary"]), (409, &json!(id)), "{path}");
        assert!(answer.detail().contains("`weir-sync rules promote`"), "{}", answer.detail());
    }
    let off = json!({"enforce": false});
    let answer = admin(&fleet.us, "PUT", "/v1/enforcement", "", &off).await;
    assert_eq!((answer.status, &json_of(&answer)["version"]), (200, &json!(version + 1)));
    let after = version_for(&fleet.us, "nyc1").await;
    fleet.runs(after, after).await;
    assert_eq!(revision(&fleet.eu, after).await["enforce"], json!(false));
    let taken = revision(&fleet.us, version + 1).await;
    assert_eq!(taken["rules"], rules("5/s")["rules"], "the canary's revision had this number");
    assert_eq!(page(&fleet.eu, CANARY).await.status, 404);
    begin(&fleet.eu, "region=eu", &rules("9/s")).await;
    let again = admin(&fleet.eu, "PUT", "/v1/enforcement", "", &off).await;
    assert_eq!(json_of(&again)["version"], version + 2, "it was off already, but not where the canary ran");
    assert_eq!(page(&fleet.eu, CANARY).await.status, 404);
}

#[tokio::test]
async fn the_fleet_shows_who_runs_it_and_who_refused_it() {
    let (fleet, version) = Fleet::start().await;
    begin(&fleet.eu, "pops=fra1,nyc1", &rules("9/s")).await;
    let running = |pop: &str, version, refused| Report { running: RunningRules { version, refused }, ..greeting(pop) };
    report(fleet.eu.address, REPORTER, &running("fra1", version + 1, 0)).await;
    report(fleet.us.address, REPORTER, &running("nyc1", version, version + 1)).await;
    report(fleet.us.address, REPORTER, &running("nyc2", version, 0)).await;
    let seen = found("the POPs' reports", async || {
        let seen = json_of(&page(&fleet.us, "/v1/fleet").await);
        let refused = seen["canary"]["refused"] == json!(["nyc1"]);
        (refused && seen["pops"].as_array().unwrap().len() == 3).then_some(seen)
    })
    .await;
    assert_eq!((&seen["canary"]["running"], &seen["canary"]["waiting"]), (&json!(["fra1"]), &json!([])));
    let pops = seen["pops"].as_array().unwrap();
    let rows: Vec<_> = pops.iter().map(|pop| [&pop["name"], &pop["is_canary"], &pop["is_current"]]).collect();
    let expected = json!([["fra1", true, true], ["nyc1", true, false], ["nyc2", false, true]]);
    assert_eq!(json!(rows), expected);
}

#[tokio::test]
async fn a_gateway_is_a_pop_that_may_run_it() {
    let server = Server::start(gateway()).await;
    let no_more = |rate: &str| json!({"rules": [{"name": "all", "key": ["all"], "rate": rate, "burst": 1}]});
    in_force(&server, &no_more("1000/s")).await;
    let asked = json!({"method": "GET", "host": "a.example", "path": "/", "address": "192.0.2.1"});
    let decides = async |decision: &str| {
        until(decision, async || check(&server, &asked).await["decision"] == decision).await;
    };
    decides("allow").await;
    begin(&server, "pops=gateway/fra/a", &no_more("1/d")).await;
    decides("limit").await;
    assert_eq!(withdraw(&server).await.status, 200);
    decides("allow").await;
}

// I6
#[tokio::test]
async fn an_invalid_canary_is_refused_with_what_was_expected() {
    let server = Server::start(guarded()).await;
    let canary = async |query: &str, headers: &str, rules: &Value| {
        admin(&server, "PUT", &format!("/v1/rules?{query}"), headers, rules).await
    };
    let none = canary("region=global", ANY, &rules("9/s")).await;
    assert_eq!(none.status, 412, "{}", none.text());
    let mut strict = rules("5/s");
    strict["rules"][0]["strict"] = json!(true);
    let version = put(&server, FIRST, &strict).await;
    assert_eq!(canary("pops=fra1", FIRST, &strict).await.status, 412);
    let refused = canary("pops=fra1", ANY, &strict).await;
    assert_eq!(refused.status, 422);
    assert!(refused.detail().contains("have not: fra1"), "{}", refused.detail());
    version_for(&server, "fra1").await;
    recorded(&server, 1).await;
    for (query, status) in [
        ("pops=", 400),
        ("pops=fra1,,fra2", 400),
        ("pops=fra1&region=eu", 400),
        ("region=", 400),
        ("dry_run=true&dry_run=true", 400),
        ("pops=fra1&dry_run=yes", 400),
        ("pop=fra1", 400),
        ("region=mars", 422),
        ("pops=fra1,fra9", 422),
    ] {
        let answer = canary(query, ANY, &strict).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
        answer.detail();
    }
    let mut other = strict.clone();
    other["rules"][0]["rate"] = json!("9/s");
    let refused = canary("pops=fra1", ANY, &other).await;
    assert_eq!(refused.status, 422);
    let problem = json_of(&refused)["errors"][0].clone();
    assert_eq!(problem["place"], "rules[0]");
    assert!(problem["problem"].as_str().unwrap().contains("is strict"), "{problem}");
    strict["deny"] = json!([{"addresses": ["192.0.2.1"]}]);
    let tried = canary("pops=fra1&dry_run=true", ANY, &strict).await;
    let answer = json_of(&tried);
    assert_eq!((tried.status, &answer["dry_run"], &answer["pops"]), (200, &json!(true), &json!(["fra1"])));
    assert_eq!((&answer["current"], &answer["changes"]["fields"]), (&json!(version), &json!(["deny"])));
    assert_eq!(page(&server, CANARY).await.status, 404, "it was only tried");
    for (method, path) in [("GET", CANARY), ("DELETE", CANARY), ("POST", PROMOTE)] {
        let with_query = format!("{path}?dry_run=true");
        assert_eq!(admin(&server, method, &with_query, ANY, &json!(null)).await.status, 400, "{with_query}");
        for (token, status) in [("", 401), (REPORTER, 401)] {
            let answer = ask(server.address, &request(method, path, &format!("{token}{ANY}"), b"")).await;
            assert_eq!(answer.status, status, "{method} {path}");
        }
    }
    let wrong = ask(server.address, &request("PUT", CANARY, ADMIN, b"")).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("get, head, delete")));
}
