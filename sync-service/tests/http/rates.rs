//! Decision rates of each rule, from any weir-sync.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{interval, sleep};
use weir_protocol::messages::{Report, RuleCounts, RunningRules, StatusReport};
use weir_sync::config::Config;

use crate::client::{greeting, report};
use crate::rules::{self, REPORTER};
use crate::stores::Shared;
use crate::{DEADLINE, Server, replica};

/// A report of `pop`, `passed` after it began, whose rules decide 100, 40, 20 and 10 requests a second.
fn report_of(pop: &str, passed: Duration) -> Report {
    let made_ms = u64::try_from(passed.as_millis()).unwrap();
    let decided = [100, 40, 10, 20].map(|per_s: u64| per_s * made_ms / 1_000);
    let rules = vec![RuleCounts { name: "login".into(), decided }];
    let status = Some(StatusReport { every_ms: 1_000, rules, ..StatusReport::default() });
    Report { made_ms, sequence: made_ms + 1, status, ..greeting(pop) }
}

async fn read(server: &Server, path: &str) -> Value {
    let answer = rules::page(server, path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn any_weir_sync_shows_the_decision_rates_of_the_fleet() {
    let store = Shared::new(Config::default().pop_ttl);
    let servers = [
        replica("fra", "a", &store).await,
        replica("fra", "b", &store).await,
        replica("syd", "a", &store).await,
        replica("nrt", "a", &store).await,
    ];
    let empty = read(&servers[3], "/v1/rates").await;
    assert_eq!((&empty["rules"], &empty["window_s"]), (&serde_json::json!([]), &serde_json::json!(5)));
    // One POP reports to both replicas of its region in turn.
    let (started, mut ticks) = (Instant::now(), interval(Duration::from_secs(1)));
    let is_near = |of: &Value, expected: f64| (of.as_f64().unwrap() - expected).abs() <= expected / 10.0;
    loop {
        let at = ticks.tick().await.duration_since(started.into());
        let turn = usize::from(at.as_millis() / 1_000 % 2 == 1);
        report(servers[turn].address, REPORTER, &report_of("fra1", at)).await;
        report(servers[2].address, REPORTER, &report_of("syd1", at)).await;
        // weir-syncs share rates once a second.
        sleep(Duration::from_millis(200)).await;
        let page = read(&servers[3], "/v1/rates").await;
        let rule = &page["rules"][0];
        let names = ["allowed_per_s", "limited_per_s", "denied_per_s", "shadow_per_s"];
        if rule.is_object()
            && names.iter().zip([200.0, 80.0, 20.0, 40.0]).all(|(name, per_s)| is_near(&rule[name], per_s))
        {
            assert_eq!(
                (&rule["rule"], &rule["pops"], &page["is_partial"]),
                (&"login".into(), &2.into(), &false.into())
            );
            assert!(page["weir_syncs"].as_u64().unwrap() >= 4, "{page}");
            break;
        }
        assert!(started.elapsed() < DEADLINE, "{page:#}");
    }
    let metrics = String::from_utf8(crate::client::get(servers[2].address, "/metrics").await.body).unwrap();
    let shown =
        metrics.lines().find(|line| line.contains(r#"decisions_total{region="syd",rule="login",decision="limit"}"#));
    let limited: u64 = shown.expect("a row").rsplit(' ').next().unwrap().parse().unwrap();
    assert!(limited >= 160, "{limited}");
    store.set_gone(true);
    assert_eq!(read(&servers[2], "/v1/rates").await["is_partial"], true);
}

/// Refusals by the list `deny`, and by bans of addresses, are counted like those of a rule; and a rule that
/// was taken out is shown no more, though POPs report it as long as their processes live.
#[tokio::test]
async fn rates_have_the_deny_list_and_no_removed_rule() {
    let store = Shared::new(Config::default().pop_ttl);
    let server = replica("fra", "a", &store).await;
    let mut before = rules::rules("5/s");
    before["rules"].as_array_mut().unwrap().push(json!({"name": "gone", "key": ["client_address"], "rate": "5/s"}));
    rules::put(&server, "if-none-match: *\r\n", &before).await;
    let version = rules::put(&server, "if-match: *\r\n", &rules::rules("5/s")).await;
    let (started, mut ticks) = (Instant::now(), interval(Duration::from_secs(1)));
    loop {
        ticks.tick().await;
        let made_ms = u64::try_from(started.elapsed().as_millis()).unwrap();
        let of = |name: &str, decided| RuleCounts { name: name.into(), decided };
        let asked = [made_ms / 100, 0, 0, 0];
        let counts = vec![of("gone", [7, 0, 0, 0]), of("never", asked), of("per-address", asked)];
        let status = StatusReport { every_ms: 1_000, rules: counts, blocked: made_ms / 20, ..StatusReport::default() };
        let running = RunningRules { version, refused: 0 };
        let sent = Report { made_ms, sequence: made_ms + 1, status: Some(status), running, ..greeting("fra1") };
        report(server.address, REPORTER, &sent).await;
        let page = read(&server, "/v1/rates").await;
        let rows: Vec<_> = page["rules"].as_array().unwrap().iter().map(|row| row["rule"].clone()).collect();
        assert!(!rows.contains(&"gone".into()) && !rows.contains(&"never".into()), "{page}");
        let denied = page["rules"].as_array().unwrap().iter().find(|row| row["rule"] == "deny list");
        if denied.is_some_and(|row| (45.0..55.0).contains(&row["denied_per_s"].as_f64().unwrap())) {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{page}");
    }
}
