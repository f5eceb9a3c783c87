//! The audit log of a fleet under attack: what a real edge limits is in a file and in a Redis Stream, and out of the
//! ordinary.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{open_loop, repeat};
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// Requests that the rule admits per second, and at once.
const RATE: u32 = 2;
const ATTACKER: &str = "203.0.113.7";
/// Requests per second of the attacker, and of each of its helpers.
const ATTACK: u32 = 200;
const HELPERS: u32 = 11;
const HELP: u32 = 15;
/// The length of a minute of anomalies, in milliseconds.
const MINUTE_MS: u32 = 1_000;
/// Between two lines of the audit log about a key, in milliseconds.
const INTERVAL_MS: u32 = 500;
/// Minutes of a client that is limited a little, and of the attack.
const CALM_MINUTES: u32 = 4;
const ATTACK_MINUTES: u32 = 7;
/// The part of what was limited that the audit log may miss, or have too much: reports have a key when it is
/// warm.
const TOLERANCE: f64 = 0.1;

/// The events of a kind in the file.
fn events(path: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|event| event["event"] == kind).collect()
}

/// The events of all kinds in the stream.
async fn entries(redis: &Redis) -> Vec<Value> {
    let mut connection = redis.connection().await;
    let range = redis::cmd("XRANGE").arg("weir:audit").arg("-").arg("+").query_async(&mut connection).await;
    let range: Vec<(String, BTreeMap<String, String>)> = range.unwrap();
    range.iter().map(|(_, entry)| serde_json::from_str(&entry["json"]).unwrap()).collect()
}

/// Asks as `address` at a rate per second, for some minutes; the number of limited requests.
async fn ask(edge: &Envoy, address: &str, per_second: u32, minutes: u32) -> f64 {
    let span = Duration::from_millis(u64::from(minutes * MINUTE_MS));
    let run = open_loop(&mut edge.client(), &Ask::from(address), per_second, span).await;
    run.assert_only_decisions();
    f64::from(u32::try_from(run.tally.limited()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attack_is_recorded_in_file_and_stream() {
    let redis = Redis::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let path = file.to_str().unwrap();
    let (minute, interval) = (MINUTE_MS.to_string(), INTERVAL_MS.to_string());
    let arguments = ["--audit-log-file", path, "--audit-log-redis", "store", "--audit-log-interval-ms", &interval];
    let compressed = ["--anomaly-minute-ms", &minute, "--anomaly-learn-minutes", "2"];
    let weir_sync = WeirSync::start_with("fra", &redis.url(), &[&arguments[..], &compressed].concat()).await;
    let match_of = |path: &str| json!({"path": {"exact": path}});
    let per_address = with(rule("per-address", &format!("{RATE}/s"), RATE), "match", match_of("/"));
    let named = with(with(rule("named", "1/h", 1), "match", match_of("/named")), "log_key", true.into());
    let named = with(named, "key", json!([{"header": "x-customer"}]));
    let plugin = synced(rules([per_address, named]), "fra1");
    let edge = Envoy::in_touch(Setup::with(plugin).pop("fra1", &weir_sync).concurrency(2)).await;

    let customer = Ask::get("/named").header("x-customer", "acme");
    let of_customer = repeat(&mut edge.client(), &customer, 30).await;
    assert_eq!((of_customer.admitted(), of_customer.limited()), (1, 29));
    ask(&edge, "198.51.100.7", 12, CALM_MINUTES).await;
    let helpers = (0..HELPERS).map(|n| format!("198.51.100.{}", 20 + n)).collect::<Vec<_>>();
    let helping = futures_util::future::join_all(helpers.iter().map(|helper| ask(&edge, helper, HELP, ATTACK_MINUTES)));
    let attack = Instant::now();
    let shows = async |number: f64| {
        let row = r#"weir_sync_anomalies{region="fra",rule="per-address",anomaly="rate"}"#;
        until("the metric", async || (weir_sync.metric(row).await == Some(number)).then_some(())).await;
    };
    let (limited, _, ()) = tokio::join!(ask(&edge, ATTACKER, ATTACK, ATTACK_MINUTES), helping, shows(1.0));
    // A busy machine takes longer to send it all.
    let attack = attack.elapsed();

    let begun = ["rate", "top_key"];
    let turned = async |state: &str| {
        until(&format!("each anomaly to {state}"), async || {
            let turns = events(&file, "anomaly").into_iter().filter(|event| event["state"] == state);
            let turns: BTreeMap<_, _> =
                turns.map(|event| (event["anomaly"].as_str().unwrap_or_default().to_owned(), event)).collect();
            begun.iter().all(|kind| turns.contains_key(*kind)).then_some(turns)
        })
        .await
    };
    let at_first = turned("begin").await;
    for event in at_first.values() {
        assert_eq!((&event["rule"], &event["region"]), (&"per-address".into(), &"fra".into()), "{event:#}");
        assert!(event["found"].as_f64() > event["bound"].as_f64(), "{event:#}");
    }
    assert_eq!(at_first["top_key"]["key"], ATTACKER);
    turned("end").await;
    shows(0.0).await;

    // The value of a key is named if its rule has that set.
    let mut operator = Operator::of(&weir_sync);
    let key = operator.get("/v1/keys/named/text:acme").await.json();
    assert_eq!((&key["key"], &key["burst"]), (&"text:acme".into(), &1.into()), "{key:#}");
    let named = events(&file, "decisions").into_iter().filter(|event| event["rule"] == "named").collect::<Vec<_>>();
    let limited_of = named.iter().map(|event| event["limited"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(named[0]["key"], "text:acme");
    assert!((27..=29).contains(&limited_of), "{limited_of} of 29 are logged as limited");

    // Every limited request is logged once, and so in both places.
    let decisions = until("the limited requests to be logged", async || {
        let decisions = events(&file, "decisions");
        let of_attacker = decisions.iter().filter(|event| event["key"] == ATTACKER);
        let logged: f64 = of_attacker.map(|event| event["limited"].as_f64().unwrap()).sum();
        (logged >= (1.0 - TOLERANCE) * limited).then_some((decisions, logged))
    })
    .await;
    let (decisions, logged) = decisions;
    assert!(logged <= (1.0 + TOLERANCE) * limited, "{logged} of {limited} are logged as limited");
    for event in decisions.iter().filter(|event| event["rule"] != "named") {
        assert_eq!((&event["rule"], &event["pop"]), (&"per-address".into(), &"fra1".into()), "{event:#}");
        assert_eq!(event["address"], event["key"], "{event:#}");
        // A whole second is written without a fraction.
        let [first, last] = ["first", "last"].map(|time| event[time].as_str().map(|time| time.trim_end_matches('Z')));
        assert!(first.is_some() && first <= last, "{event:#}");
    }
    assert!(helpers.iter().all(|helper| decisions.iter().any(|event| event["key"] == **helper)));
    let lines = decisions.iter().filter(|event| event["key"] == ATTACKER).count();
    let intervals = attack.as_millis() / u128::from(INTERVAL_MS) + 4;
    assert!(lines as u128 <= intervals, "{lines} lines in {attack:?}");
    let streamed = entries(&redis).await;
    let missing = decisions.iter().filter(|event| !streamed.contains(event)).count();
    assert_eq!(missing, 0, "of {} events in the file; the stream has {}", decisions.len(), streamed.len());
}
