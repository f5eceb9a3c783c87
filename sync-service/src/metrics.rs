//! Metrics of weir-sync for Prometheus. Every sample has the region's name as a label.
//!
//! A budget belongs to the whole fleet, and every region with reports of it shows its last known state: across
//! regions, take the maximum, not the sum.

pub mod page;
mod process;

use std::borrow::Cow;
use std::iter;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use weir_gateway::metrics::{Checked, GatewayMetrics, Happened, OfRule};
use weir_protocol::messages::VERSION;
use weir_store::StoreError;

pub type FloatGauge = Gauge<f64, AtomicU64>;

/// Generates the label sets of metrics. The help of a metric explains the values.
macro_rules! labels {
    ($($name:ident { $($field:ident: $kind:ty),+ })+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $name {
            $(#[doc = "The label."] pub $field: $kind,)+
        }
    )+};
}

labels! {
    OfDecision { rule: String, decision: &'static str }
    ReportOutcome { outcome: &'static str }
    StoreErrorKind { kind: &'static str }
    Bearer { token: String }
    RefusedClaim { pop: String, reason: &'static str }
    OfEvent { event: &'static str }
    OfAnomaly { rule: String, anomaly: &'static str }
    OfSink { sink: &'static str }
    RefusedStatus { status: u16 }
}

pub(crate) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub type ByRule = Family<OfRule, FloatGauge>;

const OUTCOMES: [&str; 4] = ["answered", "partial", "malformed", "forbidden"];

/// Generates the struct of all metrics, and a function that registers them. A field's name is the metric's name, and
/// its comment is the metric's help.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty $(= $new:expr)? $(, in $unit:expr)?;)+) => {
        /// All metrics of weir-sync that are updated when events happen.
        #[derive(Debug)]
        pub struct Metrics {
            $($(#[doc = $help])+ pub $field: $kind,)+
        }

        impl Metrics {
            fn register(registry: &mut Registry) -> Self {
                Self {
                    $($field: {
                        let metric: $kind = metrics!(@new $($new)?);
                        let help = concat!($($help),+).trim().trim_end_matches('.');
                        metrics!(@register registry, stringify!($field), help, metric $(, $unit)?);
                        metric
                    },)+
                }
            }
        }
    };
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
    (@register $registry:ident, $name:expr, $help:expr, $metric:ident) => {
        $registry.register($name, $help, $metric.clone())
    };
    (@register $registry:ident, $name:expr, $help:expr, $metric:ident, $unit:expr) => {
        $registry.register_with_unit($name, $help, $unit, $metric.clone())
    };
}

metrics! {
    /// Reports, by outcome: answered; partial (the store was out of reach for some or all keys); malformed; forbidden
    /// (the token is for other POPs).
    reports: Family<ReportOutcome, Counter>;
    /// Reports that were repeated or overtaken.
    reports_stale: Counter;
    /// Claims in reports that exceeded a POP's limits, by POP and reason.
    report_limits_exceeded: Family<RefusedClaim, Counter>;
    /// Keys charged.
    keys_charged: Counter;
    /// Tokens charged.
    tokens_charged: Counter;
    /// Grants sent.
    grants: Counter;
    /// Grants with an admit ratio below 1.
    grants_limiting: Counter;
    /// Deficit of charged budgets, in bursts: 0 is full, 1 is empty, more is debt.
    deficit: Histogram = Histogram::new([0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 6.0, 11.0]),
        in Unit::Other("bursts".into());
    /// Budgets reported here within the last second.
    budgets: Gauge;
    /// Budgets reported here that are in debt.
    budgets_in_debt: Gauge;
    /// Grants sent for keys that the POP did not ask about.
    pushed: Counter;
    /// Time that the store took to charge a report.
    store_latency: Histogram = Histogram::new(LATENCIES), in Unit::Seconds;
    /// Errors of the store, by kind: unreachable, slow, unconfirmed (by too few replicas), refused, full (the rule has
    /// `store_keys_max` keys), invalid.
    store_errors: Family<StoreErrorKind, Counter>;
    /// 1 while the store is in reach.
    store_up: Gauge;
    /// Servers of the store with too few replicas that confirm acquired tokens, if `store_wait_ms` is set.
    store_masters_unreplicated: Gauge;
    /// Jumps of a Redis's clock by more than 1 s ahead of what this machine's clock allows. Budgets do not refill for
    /// the time skipped; check NTP on both.
    store_clock_jumps: Counter;
    /// Requests refused, by status.
    http_errors: Family<RefusedStatus, Counter>;
    /// Requests let in, by the name of their token.
    token_uses: Family<Bearer, Counter>;
    /// Open connections.
    connections: Gauge;
    /// Version that POPs have to run, or with overrides, the number of its revision; 0 if there is no rule set.
    rule_set_version: Gauge;
    /// Revision that the POPs of a canary have to run; 0 without a canary.
    canary_revision: Gauge;
    /// Times that the watched file of rules was found invalid.
    rules_file_errors: Counter;
    /// 1 while the watched file of rules is valid and its content has reached the store; 0 also while it waits for
    /// the end of a canary.
    rules_file_applied: Gauge;
    /// Total debt of a rule's budgets in tokens, as last reported.
    debt_tokens: ByRule;
    /// Tokens by which the key farthest above its quota exceeds it, as last reported.
    overshoot_tokens: ByRule;
    /// Maximum number of tokens by which a key exceeded its quota since the start.
    overshoot_max_tokens: ByRule;
    /// Maximum number of tokens by which a key can exceed its quota, given the rule and the fleet, as long as no POP's
    /// exchange fails twice in a row. Assumes a `timeout_ms` of 1000 at the POPs.
    bound_tokens: ByRule;
    /// Hot keys for which this weir-sync makes grants.
    hot_keys_here: Gauge;
    /// Times that a hot key found no room among the 4,096 that are shared, or was dropped for a key deeper in debt.
    /// POPs get grants for such a key only when they report it.
    hot_keys_dropped: Counter;
    /// Hot keys in the fleet.
    hot_keys: Gauge;
    /// Warm keys reported in the last interval.
    warm_keys: Gauge;
    /// Live POPs that report here.
    pops_here: Gauge;
    /// Live POPs in the fleet, as last known.
    pops: Gauge;
    /// 0 while the number of POPs in the fleet is unknown: then the POPs that report here are taken for all.
    pops_known: Gauge;
    /// Age of the oldest uncharged count in a report when the report was charged.
    lag: Histogram = Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0]),
        in Unit::Seconds;
    /// Reports answered from the region's own share, because the store was out of reach.
    reports_offline: Counter;
    /// Decisions of the POPs that report here, by rule: allow, limit, shadow (let through, but limited if the rule were
    /// enforced) or deny. The rule `deny list` stands for the list `deny` and bans of addresses. The sum over all
    /// weir-syncs is the fleet's.
    decisions: Family<OfDecision, Counter>;
    /// Checks at the gateway, by decision (allow, limit, deny: could not be checked, block) and API: http
    /// (`/v1/check`), limit (`/ratelimit/check`), grpc, and quota: requests that clients with quotas report.
    gateway_checks: Family<Checked, Counter>;
    /// Checks that a rule let through at the gateway.
    gateway_allowed: Family<OfRule, Counter>;
    /// Checks that a rule limited at the gateway.
    gateway_limited: Family<OfRule, Counter>;
    /// Checks at the gateway that were refused because the rule could not be checked.
    gateway_denied: Family<OfRule, Counter>;
    /// Checks that a rule in shadow would have limited at the gateway.
    gateway_shadow_limited: Family<OfRule, Counter>;
    /// Other events at the gateway, by the name of the filter's metric without its prefix, from the first event on.
    gateway_events: Family<Happened, Counter>;
    /// Open streams of clients that decide by quotas they are assigned.
    gateway_quota_streams: Gauge;
    /// Buckets that clients report on these streams.
    gateway_quota_buckets: Gauge;
    /// Anomalies under way at this weir-sync, by rule and kind, with or without an audit log.
    anomalies: Family<OfAnomaly, Gauge>;
    /// Events of the audit log, by kind.
    audit_log_events: Family<OfEvent, Counter>;
    /// Events written, by sink.
    audit_log_written: Family<OfSink, Counter>;
    /// Events lost, because a sink was slow or gone.
    audit_log_lost: Family<OfSink, Counter>;
    /// Limited tokens of keys without a `decisions` event, because an interval had more than `audit_log_keys_max` keys.
    audit_log_omitted: Counter;
    /// Failures of a sink, which is tried again once a second.
    audit_log_errors: Family<OfSink, Counter>;
    /// Time since the store last answered.
    store_silence: FloatGauge, in Unit::Seconds;
}

/// Upper bounds of the buckets of latencies, in seconds.
const LATENCIES: [f64; 13] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

impl Metrics {
    /// Metrics of a weir-sync of `region`, all at zero, and the registry for their page.
    pub fn new(region: &str) -> (Self, Registry) {
        let region = (Cow::Borrowed("region"), Cow::Owned(region.to_owned()));
        let mut registry = Registry::with_labels(iter::once(region));
        process::register(&mut registry);
        let own = registry.sub_registry_with_prefix("weir_sync");
        let wire = VERSION.to_string();
        let built = [("version", env!("CARGO_PKG_VERSION").into()), ("wire", wire)];
        let help = "Version of weir-sync and of its messages";
        own.register("build", help, Info::new(Vec::from(built)));
        let metrics = Self::register(own);
        // Samples that alerts depend on start at zero: Prometheus sees no increase in the first sample of a series.
        for outcome in OUTCOMES {
            let _ = metrics.reports.get_or_create(&ReportOutcome { outcome });
        }
        for kind in StoreError::KINDS {
            let _ = metrics.store_errors.get_or_create(&StoreErrorKind { kind });
        }
        (metrics, registry)
    }

    pub(crate) fn count_report(&self, outcome: &'static str) {
        self.reports.get_or_create(&ReportOutcome { outcome }).inc();
    }

    /// Counts a request that was let in by the token of this name.
    pub(crate) fn count_use(&self, token: &str) {
        self.token_uses.get_or_create(&Bearer { token: token.to_owned() }).inc();
    }

    pub(crate) fn count_checks(&self, api: &'static str, decision: &'static str, count: u64) {
        self.gateway_checks.get_or_create(&Checked { api, decision }).inc_by(count);
    }

    pub(crate) fn of_gateway(&self) -> GatewayMetrics {
        let decisions =
            [&self.gateway_allowed, &self.gateway_limited, &self.gateway_denied, &self.gateway_shadow_limited];
        GatewayMetrics {
            checks: self.gateway_checks.clone(),
            decisions: decisions.map(Family::clone),
            events: self.gateway_events.clone(),
            quota_streams: self.gateway_quota_streams.clone(),
            quota_buckets: self.gateway_quota_buckets.clone(),
        }
    }

    pub(crate) fn by_rule(&self) -> [&ByRule; 4] {
        [&self.debt_tokens, &self.overshoot_tokens, &self.overshoot_max_tokens, &self.bound_tokens]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_reports_and_the_store_are_counted_from_zero() {
        let page = page::write(&Metrics::new("eu").1);
        for row in
            [r#"store_errors_total{region="eu",kind="full"} 0"#, r#"reports_total{region="eu",outcome="malformed"} 0"#]
        {
            assert!(page.contains(&format!("weir_sync_{row}\n")), "no {row} in {page}");
        }
    }
}
