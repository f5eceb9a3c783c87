//! The known metrics: those of weir-sync's page, and those that the filter defines at its host.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use weir_tests::every_metric::every_metric;
use weir_tests::mock_host::{SharedData, Worker, ZeroCas};

/// Metrics that neither the filter nor weir-sync makes: Prometheus's own, and Envoy's about its modules. The
/// end-to-end tests look for the second in a real Envoy.
const OF_OTHERS: [&str; 2] = ["up", "envoy_wasm_weir_vm_reload_success"];
/// Labels that Prometheus adds, or that its configuration in envoy/observe does.
const ADDED: [&str; 4] = ["instance", "job", "le", "pop"];

/// Every metric, as Prometheus has it.
#[derive(Default)]
pub(crate) struct Known {
    /// Those of weir-sync, each with its labels.
    pub(crate) of_weir_sync: BTreeSet<String>,
    /// Those of the filter.
    pub(crate) of_filter: BTreeSet<String>,
    /// Every label.
    pub(crate) labels: BTreeSet<String>,
    /// The upper ends of all histograms' buckets, as they are written.
    pub(crate) ends: BTreeSet<String>,
    /// weir-sync's help texts, by the name of the family.
    pub(crate) help: BTreeMap<String, String>,
}

impl Known {
    /// All that the page and the module have.
    pub(crate) fn all() -> Self {
        let mut known = Self { labels: ADDED.map(str::to_owned).into(), ..Self::default() };
        for line in every_metric().lines() {
            known.read(line);
        }
        known.of_filter = filter_metrics().iter().map(|name| prometheus_name(name)).collect();
        known
    }

    fn read(&mut self, line: &str) {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            self.help.insert(name.to_owned(), help.to_owned());
        } else if let Some((name, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            self.of_weir_sync.insert(name.to_owned());
            self.ends.extend(ends(rest));
            let labels = rest.split('"').step_by(2).filter_map(|text| text.strip_suffix('='));
            self.labels.extend(labels.map(|label| label.trim_start_matches(',').to_owned()));
        }
    }

    /// True if Prometheus can have this metric.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.of_weir_sync.contains(name) || self.of_filter.contains(name) || OF_OTHERS.contains(&name)
    }

    /// The help text of a metric, by the name of one of its samples.
    pub(crate) fn help_of(&self, sample: &str) -> Option<&str> {
        self.help.get(sample.strip_suffix("_bucket").unwrap_or(sample)).map(String::as_str)
    }
}

/// The ends of buckets that a row, or an expression, names.
pub(crate) fn ends(text: &str) -> impl Iterator<Item = String> {
    text.split("le=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}

/// The metrics that the module defines at its host, by its own names.
fn filter_metrics() -> Vec<String> {
    let config = json!({
        "rules": [{"name": "login", "key": ["client_address"], "rate": "1/h", "burst": 1}],
        "table": {"addresses": 64},
        "sync": {"cluster": "weir-sync", "pop": "fra1"},
    });
    let shared = SharedData::new(ZeroCas::Overwrites);
    let worker = Worker::configured(&shared, &config);
    worker.host().metric_names().into_iter().map(str::to_owned).collect()
}

/// A metric's name on a bootstrap's Prometheus page, where the rule is a label.
fn prometheus_name(name: &str) -> String {
    name.replace("weir.rule.login.", "weir_rule_").replace('.', "_")
}
