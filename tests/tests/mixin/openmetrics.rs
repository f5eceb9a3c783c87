//! weir-sync's metrics, read by Prometheus's own parsers.

use std::io::Write as _;
use std::process::{Command, Stdio};

use weir_tests::artefact;
use weir_tests::every_metric::every_metric;

/// Reads a page, and prints a line for each family.
const PARSE: &str = "
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation, family.name
    assert family.samples, family.name
    assert all(sample.labels['region'] == 'fra' for sample in family.samples), family.samples
    print(family.name, family.type)
";

/// The output of a program that reads `page`; it has nothing to complain about.
fn reads(mut program: Command, page: &str) -> String {
    let mut running = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{program:?}: {}\n{page}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_parsers_of_prometheus_accept_every_metric() {
    let page = every_metric();
    let mut promtool = Command::new(artefact::promtool());
    promtool.args(["check", "metrics"]);
    assert_eq!(reads(promtool, &page), "");
    let tools = artefact::workspace().join(".tools/prometheus-client");
    assert!(tools.is_dir(), "there is no {}: run `make tools`", tools.display());
    let mut python = Command::new("python3");
    python.args(["-B", "-c", PARSE]).env("PYTHONPATH", tools);
    let (parsed, families) = (reads(python, &page), page.lines().filter(|line| line.starts_with("# TYPE ")).count());
    assert_eq!(parsed.lines().count(), families, "{page}");
    for family in ["weir_sync_reports counter", "weir_sync_debt_tokens gauge", "weir_sync_lag_seconds histogram"] {
        assert!(parsed.lines().any(|known| known == family), "no {family} in {parsed}");
    }
}
