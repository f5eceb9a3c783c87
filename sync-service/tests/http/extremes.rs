//! Impossible reports: no view breaks, and none shows more demand of a POP than the report limits allow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use weir_protocol::messages::{BudgetRule, Key, Report, RuleCounts, StatusReport};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_sync::audit::AuditLog;
use weir_sync::audit::observer::Observer;
use weir_sync::config::{AuditFile, Config};
use weir_sync::metrics::Metrics;

use crate::client::{get, greeting, report};
use crate::rules::{REPORTER, guarded, page};
use crate::{DEADLINE, Server};

const RULE: &str = "per-address";
/// Maximum accepted demand of one POP for a key of 10/s, in tokens per second: a hundred times what its
/// budget ever gives out, and a flood.
const ACCEPTED_PER_S: f64 = 100.0 * (10.0 + 4.0 * 10.0) + 1_000_000.0;
const POPS: u64 = 2;

fn quota() -> Quota {
    Quota::new(Rate::new(10, Period::Second).unwrap(), 10).unwrap()
}

/// A rule, and a strict one.
fn rules() -> Vec<BudgetRule> {
    let rule = |name: &str, strict| BudgetRule {
        name: name.into(),
        quota: quota(),
        sharing: Sharing { strict, ..Sharing::of(quota()) },
    };
    vec![rule(RULE, false), rule("login", true)]
}

fn numbers() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 70, u64::from(u32::MAX), 1 << 53, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    prop_oneof![3 => prop::sample::select(edges.to_vec()), 1 => any::<u64>()]
}

fn keys() -> impl Strategy<Value = Key> {
    let counts = [numbers(), numbers(), numbers(), numbers()];
    (0..2_u16, 1..4_u8, 0..3_u32, counts, any::<[u32; 3]>()).prop_map(
        |(rule, address, epoch, mut counts, [span_ms, missing, ahead])| {
            counts.sort_unstable();
            let [unconfirmed, admitted, recently, asked] = counts;
            let value = vec![4, 32, 192, 0, 2, address];
            let asked_recently = recently;
            Key { rule, value, epoch, admitted, unconfirmed, span_ms, missing, asked, asked_recently, ahead }
        },
    )
}

/// Reports of some POPs with any counts of rules.
fn reports() -> impl Strategy<Value = Vec<Report>> {
    let parts = (0..POPS, prop::collection::vec(keys(), 1..6), [numbers(), numbers(), numbers(), numbers()], numbers());
    let report = |(pop, keys, decided, made_ms): (u64, Vec<Key>, [u64; 4], u64)| {
        let counts = vec![RuleCounts { name: RULE.into(), decided }];
        let status = StatusReport { unix_ms: made_ms, every_ms: 1_000, rules: counts, ..StatusReport::default() };
        Report { rules: rules(), keys, made_ms, status: Some(status), ..greeting(&format!("fra{pop}")) }
    };
    prop::collection::vec(parts.prop_map(report), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn minutes_and_intervals_of_any_reports_can_be_written(reports in reports()) {
        let metrics = Arc::new(Metrics::new("fra").0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let audit_log_file = Some(AuditFile::File(file.path().to_str().unwrap().to_owned()));
        let config = Config { audit_log_file, audit_log_queue_max: 100, audit_log_keys_max: 2, ..Config::default() };
        let hangup = watch::Sender::default().subscribe();
        let (audit_log, _writers) = AuditLog::new(&config, "fra/a", &metrics, &hangup).unwrap();
        let observer = Observer::new(Arc::new(audit_log), metrics, &config);
        for minute in 0..3 {
            for report in &reports {
                observer.observe(report, &[true; 2]);
            }
            observer.flush();
            observer.end_minute(minute);
        }
    }
}

/// The numbers of this name, wherever they are.
fn all(value: &Value, name: &str, found: &mut Vec<f64>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name).and_then(Value::as_f64));
            for value in fields.values() {
                all(value, name, found);
            }
        }
        Value::Array(values) => {
            for value in values {
                all(value, name, found);
            }
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_view_breaks_or_exceeds_the_report_limits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let config = Config {
        audit_log_file: Some(AuditFile::File(path.to_str().unwrap().to_owned())),
        audit_log_interval: Duration::from_millis(100),
        anomaly_minute: Duration::from_millis(200),
        anomaly_learn_minutes: 1,
        ..guarded()
    };
    let (server, began) = (Server::start(config).await, Instant::now());
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut answered = 0;
    for _ in 0..12 {
        let reports = reports().new_tree(&mut runner).unwrap().current();
        for sent in &reports {
            let answer = report(server.address, REPORTER, sent).await;
            assert!(matches!(answer.status, 200 | 400), "{answer:?}\n{sent:?}");
            answered += u32::from(answer.status == 200);
        }
        for view in [
            "/v1/keys",
            "/v1/keys?sort=debt",
            "/v1/keys/per-address/192.0.2.1",
            "/v1/keys/login/192.0.2.1",
            "/v1/fleet",
            "/v1/rates",
        ] {
            let answer = page(&server, view).await;
            assert_eq!(answer.status, 200, "{view}: {answer:?}");
            let shown: Value = serde_json::from_slice(&answer.body).unwrap();
            let mut rates = vec![];
            for name in ["asked_per_s", "limited_per_s"] {
                all(&shown, name, &mut rates);
            }
            if view.starts_with("/v1/keys") {
                let most = ACCEPTED_PER_S * 2.0;
                assert!(rates.iter().all(|rate| *rate <= most), "{view}: {rates:?}, at most {most}: {shown:#}");
            }
        }
        assert_eq!(get(server.address, "/metrics").await.status, 200);
        sleep(Duration::from_millis(150)).await;
    }
    assert!(answered > 30, "{answered} reports");
    let events = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    // The log still works: an honest POP's flood is written, key by key.
    let mut asked = 0;
    loop {
        asked += 500;
        let key = |address: u8| {
            let value = vec![4, 32, 192, 0, 2, address];
            Key { value, epoch: 1, asked, asked_recently: 500, ..Key::default() }
        };
        let keys = (99..111).map(key).collect();
        report(server.address, REPORTER, &Report { rules: rules(), keys, ..greeting("ams1") }).await;
        let events = events();
        if events.iter().any(|event| event["key"] == "192.0.2.99" && event["pop"] == "ams1") {
            break;
        }
        assert!(began.elapsed() < 3 * DEADLINE, "nothing is written: {events:?}");
        sleep(Duration::from_millis(100)).await;
    }
    // As often as a minute has reports, the rate of each of these POPs is accepted, and half a minute of it at once.
    let most = ACCEPTED_PER_S * (began.elapsed().as_secs_f64() + 35.0);
    let mut limited = vec![];
    let of_keys = |event: &&Value| event["event"] == "decisions";
    for event in events().iter().filter(of_keys) {
        all(event, "limited", &mut limited);
    }
    assert!(limited.iter().all(|limited| *limited <= most), "{limited:?}, at most {most}");
}
