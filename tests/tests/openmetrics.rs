//! What Prometheus's own parsers make of weir-sync's metrics.

use std::io::Write as _;
use std::process::{Command, Stdio};

use weir_tests::artefact;
use weir_tests::client::{Ask, Client};
use weir_tests::weir_sync::{TOKEN, WeirSync};
use weir_wire::messages::{CONTENT_TYPE, Key, Message, REPORT_PATH, Report, Rule};
use weir_wire::quota::{Period, Quota, Rate};
use weir_wire::sharing::Sharing;

/// Reads a page with the parser of the module that it is given, and prints the families.
const PARSE: &str = "
import importlib, sys
parser = importlib.import_module(sys.argv[1])
for family in parser.text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation, family.name
    assert family.samples, family.name
    assert all(sample.labels['region'] == 'fra' for sample in family.samples), family.samples
    print(family.name, family.type)
";

/// A POP's report of one key that is far in debt.
fn report() -> Report {
    let quota = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
    let rules = vec![Rule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
    let key = Key {
        value: b"192.0.2.1".to_vec(),
        epoch: 1,
        admitted: 250,
        unconfirmed: 250,
        span_ms: 10,
        asked: 300,
        asked_recently: 300,
        ..Key::default()
    };
    Report {
        pop: "fra1".into(),
        worker: 1,
        sequence: 1,
        table: 1,
        rules,
        keys: vec![key],
        ..Report::default()
    }
}

/// The families that `parser` finds in `page`.
fn parsed(parser: &str, page: &str) -> Vec<String> {
    let tools = artefact::workspace().join(".tools/prometheus-client");
    assert!(tools.is_dir(), "there is no {}: run `make tools`", tools.display());
    let mut python = Command::new("python3")
        .args(["-B", "-c", PARSE, parser])
        .env("PYTHONPATH", tools)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{parser}: {}\n{page}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn prometheus_own_parsers_take_both_forms_of_the_page() {
    let weir_sync = WeirSync::start("fra", "memory").await;
    let mut client = Client::of_port(weir_sync.address().port());
    let post = |body: Vec<u8>| {
        Ask::new("POST".parse().unwrap(), REPORT_PATH)
            .header("authorization", &format!("Bearer {TOKEN}"))
            .header("content-type", CONTENT_TYPE)
            .body(body)
    };
    assert_eq!(client.send(&post(report().encode())).await.status, 200);
    assert_eq!(client.send(&post(vec![9])).await.status, 400);
    for (accept, content_type, parser) in [
        (
            "application/openmetrics-text",
            "application/openmetrics-text",
            "prometheus_client.openmetrics.parser",
        ),
        ("text/plain", "text/plain; version=0.0.4", "prometheus_client.parser"),
    ] {
        let answer = client.send(&Ask::get("/metrics").header("accept", accept)).await;
        assert!(answer.header("content-type").starts_with(content_type), "{answer:?}");
        let families = parsed(parser, &answer.text());
        for family in [
            "weir_sync_reports counter",
            "weir_sync_http_errors counter",
            "weir_sync_debt_tokens gauge",
            "weir_sync_deficit_bursts histogram",
            "weir_sync_lag_seconds histogram",
            "process_cpu_seconds counter",
            "process_start_time_seconds gauge",
        ] {
            assert!(families.iter().any(|known| known == family), "no {family} in {families:?}");
        }
        assert!(families.iter().any(|known| known.starts_with("weir_sync_build")), "{families:?}");
    }
}
