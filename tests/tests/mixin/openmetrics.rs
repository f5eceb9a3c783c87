//! weir-sync's metrics, read by Prometheus's own parsers.

use std::io::Write as _;
use std::process::{Command, Stdio};

use weir_protocol::messages::{BudgetRule, CONTENT_TYPE, Key, Message, REPORT_PATH, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_sync::metrics::Metrics;
use weir_sync::metrics::page;
use weir_tests::artefact;
use weir_tests::client::{Ask, Client};
use weir_tests::weir_sync::{TOKEN, WeirSync};

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

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A POP's report of one key that is far in debt.
fn report() -> Report {
    let quota = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
    let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
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
    Report { pop: "fra1".into(), worker: 1, sequence: 1, table: 1, rules, keys: vec![key], ..Report::default() }
}

/// The output of a program that reads `page`; none of them has anything to complain about.
fn reads(mut program: Command, page: &str) -> String {
    let mut running = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{program:?}: {}\n{page}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The families that the parser finds in `page`.
fn parsed(page: &str) -> Vec<String> {
    let tools = artefact::workspace().join(".tools/prometheus-client");
    assert!(tools.is_dir(), "there is no {}: run `make tools`", tools.display());
    let mut python = Command::new("python3");
    python.args(["-B", "-c", PARSE, "prometheus_client.parser"]).env("PYTHONPATH", tools);
    reads(python, page).lines().map(str::to_owned).collect()
}

/// Prometheus's own program finds nothing wrong with the metrics' names, kinds and help.
fn promtool_takes(page: &str) {
    let mut promtool = Command::new(artefact::promtool());
    promtool.args(["check", "metrics"]);
    assert_eq!(reads(promtool, page), "");
}

#[tokio::test]
async fn the_parsers_of_prometheus_accept_the_page() {
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
    let answer = client.send(&Ask::get("/metrics")).await;
    assert_eq!(answer.header("content-type"), TEXT);
    let page = answer.text();
    promtool_takes(&page);
    let families = parsed(&page);
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

#[test]
fn the_parsers_of_prometheus_accept_every_metric() {
    let registry = Metrics::sample("fra");
    let page = page::write(&registry);
    promtool_takes(&page);
    let families = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(parsed(&page).len(), families, "{page}");
}
