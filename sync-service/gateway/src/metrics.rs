//! Metrics of a gateway, which weir-sync registers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfRule {
    /// Its name.
    pub rule: String,
}

/// Check at the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Checked {
    /// `http` (`/v1/check`), `limit` (`/ratelimit/check`), `grpc` or `quota`.
    pub api: &'static str,
    /// `allow`, `limit`, `deny` (the check failed) or `block`.
    pub decision: &'static str,
}

/// Event at the gateway other than a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Happened {
    /// Name of the engine's metric, without `weir.`.
    pub event: &'static str,
}

/// Metrics that the gateway updates. A clone has the same values.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    /// Checks, by API and decision.
    pub checks: Family<Checked, Counter>,
    /// Decisions of each rule: allowed, limited, denied, limited in shadow.
    pub decisions: [Family<OfRule, Counter>; 4],
    /// Other events.
    pub events: Family<Happened, Counter>,
    /// Streams of quota clients.
    pub quota_streams: Gauge,
    /// Buckets that these report.
    pub quota_buckets: Gauge,
}

impl GatewayMetrics {
    /// Counts checks through an API, or requests that a client with quotas decided for itself.
    pub fn count_checks(&self, api: &'static str, decision: &'static str, count: u64) {
        self.checks.get_or_create(&Checked { api, decision }).inc_by(count);
    }

    /// Sets the number of streams and buckets of quota clients.
    pub(crate) fn set_quotas(&self, (streams, buckets): (usize, usize)) {
        self.quota_streams.set(i64::try_from(streams).unwrap_or(i64::MAX));
        self.quota_buckets.set(i64::try_from(buckets).unwrap_or(i64::MAX));
    }
}
