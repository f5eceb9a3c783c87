//! The rule set that each POP of the fleet runs, from any weir-sync.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use weir_protocol::messages::{Report, RunningRules, StatusReport};
use weir_sync::config::Config;

use crate::client::{get, greeting, report};
use crate::rules::{REPORTER, put, rules};
use crate::stores::Shared;
use crate::{Server, found, replica, until};

/// Reports the version that `worker` of `pop` runs.
async fn runs(server: &Server, pop: &str, worker: u64, version: u64, refused: u64) {
    let mut sent = greeting(pop);
    (sent.worker, sent.running) = (worker, RunningRules { version, refused });
    assert_eq!(report(server.address, REPORTER, &sent).await.status, 200);
}

async fn fleet(server: &Server) -> Value {
    serde_json::from_slice(&crate::rules::page(server, "/v1/fleet").await.body).unwrap()
}

/// Waits until the fleet, as `server` sees it, is `expected`: name, region, replica, version, refused, current.
async fn is(server: &Server, expected: &[Value]) {
    until(&format!("{expected:?}"), async || {
        let seen = fleet(server).await;
        let fields = ["name", "region", "replica", "version", "refused", "is_current"];
        let row = |pop: &Value| Value::from_iter(fields.map(|field| pop[field].clone()));
        seen["pops"].as_array().unwrap().iter().map(row).eq(expected.iter().cloned())
    })
    .await;
}

#[tokio::test]
async fn any_weir_sync_answers_for_every_region() {
    let store = Shared::new(Config::default().pop_ttl);
    let a = replica("fra", "a", &store).await;
    let b = replica("fra", "b", &store).await;
    let iad = replica("iad", "a", &store).await;
    let none = json!({"version": 0, "rule_set": 0, "lost": null, "canary": null, "offline": null, "pops": []});
    assert_eq!(fleet(&a).await, none);
    let version = put(&iad, "if-none-match: *\r\n", &rules("5/s")).await;
    runs(&a, "fra1", 1, version, 0).await;
    runs(&iad, "iad1", 1, 0, version).await;
    runs(&iad, "iad 2", 1, version, 0).await;
    let of_iad = [json!(["iad 2", "iad", "a", version, 0, true]), json!(["iad1", "iad", "a", 0, version, false])];
    for server in [&a, &b, &iad] {
        is(server, &[&[json!(["fra1", "fra", "a", version, 0, true])], &of_iad[..]].concat()).await;
        assert_eq!(fleet(server).await["version"], version);
    }
    let silent_s = fleet(&b).await["pops"][0]["silent_s"].as_f64().unwrap();
    assert!((0.0..10.0).contains(&silent_s), "{silent_s}");
    assert_eq!(get(a.address, "/v1/fleet").await.status, 401);
}

#[tokio::test]
async fn any_weir_sync_shows_the_state_of_each_pop() {
    let store = Shared::new(Config::default().pop_ttl);
    let here = replica("fra", "a", &store).await;
    let there = replica("iad", "a", &store).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let unix_ms = u64::try_from(now.as_millis()).unwrap() + 60_000;
    let status = Some(StatusReport { step: 1, unix_ms, module: "0.1.0".into(), ..StatusReport::default() });
    report(here.address, REPORTER, &Report { status, ..greeting("fra1") }).await;
    runs(&here, "old", 1, 0, 0).await;
    let seen = found("the POPs' status", async || {
        let seen = fleet(&there).await;
        (seen["pops"][0]["module"] == "0.1.0" && seen["pops"][1]["name"] == "old").then_some(seen)
    })
    .await;
    let [ahead, old] = [&seen["pops"][0], &seen["pops"][1]];
    assert!((50.0..=60.0).contains(&ahead["clock_s"].as_f64().unwrap()), "{seen:#}");
    assert!(["stale", "fallback"].contains(&ahead["connectivity"].as_str().unwrap()), "{seen:#}");
    assert!(old["module"].is_null() && old["clock_s"].is_null(), "{seen:#}");
}
