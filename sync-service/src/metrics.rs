//! What weir-sync counts, as Prometheus reads it. Every sample carries the region's name.

pub mod page;
mod process;
pub mod region;

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use weir_wire::messages;

use page::Format;
pub use region::FloatGauge;
use region::RegionMetrics;

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    /// `answered`, `unsettled` (the store was out of reach: granted out of the region's own share) or
    /// `malformed`.
    pub outcome: &'static str,
}

/// What went wrong with the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Kind {
    /// `unreachable`, `slow`, `refused` or `nonsense`.
    pub kind: &'static str,
}

/// How a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Status {
    /// The response's status.
    pub status: u16,
}

/// Every metric of weir-sync.
pub struct Metrics {
    registry: Registry,
    /// Reports, by outcome.
    pub reports: Family<Outcome, Counter>,
    /// Reports that were repeated or overtaken.
    pub reports_stale: Counter,
    /// Keys charged.
    pub keys_charged: Counter,
    /// Tokens charged.
    pub tokens_charged: Counter,
    /// Grants sent.
    pub grants: Counter,
    /// Grants with an admit ratio below 1.
    pub grants_limiting: Counter,
    /// How far charged budgets are from full, in bursts; beyond 1 is debt.
    pub deficit: Histogram,
    /// Budgets reported here lately.
    pub budgets: Gauge,
    /// Those of them that are in debt.
    pub budgets_in_debt: Gauge,
    /// Grants sent for keys that the POP did not ask about.
    pub pushed: Counter,
    /// What carries the region's name.
    pub region: RegionMetrics,
    /// How long the store took to charge a report.
    pub store_latency: Histogram,
    /// What went wrong with the store, by kind.
    pub store_errors: Family<Kind, Counter>,
    /// Whether the store is in reach.
    pub store_up: Gauge,
    /// Requests refused, by status.
    pub http_errors: Family<Status, Counter>,
    /// Open connections.
    pub connections: Gauge,
    /// The version of the rule set that POPs are told to run; 0 if none.
    pub rule_set: Gauge,
    /// How often the watched file of rules was found not good.
    pub rules_file_errors: Counter,
    /// Whether what the watched file says is good, and the store has heard of it.
    pub rules_file_taken: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics of a weir-sync of `region`, all at zero.
    pub fn new(region: &str) -> Self {
        let latency =
            [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
        let deficits = [0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 6.0, 11.0];
        let mut metrics = Self {
            registry: Registry::with_labels(
                [(Cow::Borrowed("region"), Cow::Owned(region.to_owned()))].into_iter(),
            ),
            reports: Family::default(),
            reports_stale: Counter::default(),
            keys_charged: Counter::default(),
            tokens_charged: Counter::default(),
            grants: Counter::default(),
            grants_limiting: Counter::default(),
            deficit: Histogram::new(deficits),
            budgets: Gauge::default(),
            budgets_in_debt: Gauge::default(),
            pushed: Counter::default(),
            region: RegionMetrics::default(),
            store_latency: Histogram::new(latency),
            store_errors: Family::default(),
            store_up: Gauge::default(),
            http_errors: Family::default(),
            connections: Gauge::default(),
            rule_set: Gauge::default(),
            rules_file_errors: Counter::default(),
            rules_file_taken: Gauge::default(),
        };
        let mut registry = std::mem::take(&mut metrics.registry);
        process::register(&mut registry);
        let own = registry.sub_registry_with_prefix("weir_sync");
        metrics.register_reports(own);
        metrics.register_rest(own);
        metrics.region.register(own);
        metrics.registry = registry;
        metrics
    }

    /// The page that Prometheus reads.
    pub fn page(&self, format: Format) -> String {
        // Writing to a string cannot fail.
        page::write(&self.registry, format).unwrap_or_default()
    }

    fn register_reports(&self, r: &mut Registry) {
        r.register("reports", "Reports, by outcome", self.reports.clone());
        r.register("reports_stale", "Reports that were repeated or overtaken", self.reports_stale.clone());
        r.register("keys_charged", "Keys charged", self.keys_charged.clone());
        r.register("tokens_charged", "Tokens charged", self.tokens_charged.clone());
        r.register("grants", "Grants sent", self.grants.clone());
        r.register("grants_limiting", "Grants with an admit ratio below 1", self.grants_limiting.clone());
        let help = "What charged budgets lack of being full, in bursts: 1 is empty, more is debt";
        r.register_with_unit("deficit", help, Unit::Other("bursts".into()), self.deficit.clone());
        r.register("budgets", "Budgets reported here within the last second", self.budgets.clone());
        r.register("budgets_in_debt", "Budgets reported here that are in debt", self.budgets_in_debt.clone());
    }

    fn register_rest(&self, r: &mut Registry) {
        let built =
            vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("wire", messages::VERSION.to_string())];
        r.register("build", "Which weir-sync this is, and which messages it speaks", Info::new(built));
        r.register("pushed", "Grants sent for keys that the POP did not ask about", self.pushed.clone());
        let help = "How long the store took to charge a report";
        r.register_with_unit("store_latency", help, Unit::Seconds, self.store_latency.clone());
        r.register("store_errors", "What went wrong with the store, by kind", self.store_errors.clone());
        r.register("store_up", "1 while the store is in reach", self.store_up.clone());
        r.register("http_errors", "Requests refused, by status", self.http_errors.clone());
        r.register("connections", "Open connections", self.connections.clone());
        let help = "The version of the rule set that POPs are told to run; 0 if none";
        r.register("rule_set_version", help, self.rule_set.clone());
        let help = "How often the watched file of rules was found not good";
        r.register("rules_file_errors", help, self.rules_file_errors.clone());
        let help = "1 while what the watched file of rules says is good, and the store has heard of it";
        r.register("rules_file_taken", help, self.rules_file_taken.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::region::OfRule;
    use super::*;

    const PAGE: &str = include_str!("../../docs/operating.md");

    /// The metrics that the page names in backticks: in full, or without their common prefix.
    fn named(page: &str) -> BTreeSet<String> {
        let codes = page.split('`').skip(1).step_by(2);
        let name = |code: &str| {
            let name = code.split('{').next()?.trim_end_matches("_total").trim_end_matches("_info");
            if name.starts_with("process_") {
                return Some(name.to_owned());
            }
            let rest = name.strip_prefix("weir_sync_").or(name.strip_prefix('_'))?;
            Some(format!("weir_sync_{rest}"))
        };
        codes.filter_map(name).collect()
    }

    #[test]
    fn the_page_for_operators_names_every_metric_and_no_other() {
        let metrics = Metrics::new("eu");
        // One that has labels is shown once it has some.
        let _ = metrics.reports.get_or_create(&Outcome { outcome: "answered" });
        let _ = metrics.store_errors.get_or_create(&Kind { kind: "slow" });
        let _ = metrics.http_errors.get_or_create(&Status { status: 404 });
        let RegionMetrics { debt, overshoot, overshoot_max, bound, .. } = &metrics.region;
        for by_rule in [debt, overshoot, overshoot_max, bound] {
            let _ = by_rule.get_or_create(&OfRule { rule: "login".to_owned() });
        }
        let text = metrics.page(Format::OpenMetrics);
        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let registered: BTreeSet<String> = kinds.map(str::to_owned).collect();
        assert!(registered.len() > 25, "{text}");
        assert_eq!(named(PAGE), registered);
    }
}
