//! A page of weir-sync with every metric, for tests that look for one by its name.

use ::weir_sync::metrics::{
    Bearer, Metrics, OfAnomaly, OfDecision, OfEvent, OfSink, RefusedClaim, RefusedStatus, page,
};
use weir_gateway::metrics::{Checked, Happened, OfRule};

/// The page of the region `fra`, with a sample of each metric.
pub fn every_metric() -> String {
    let (all, registry) = Metrics::new("fra");
    let (rule, of_rule) = ("login".to_owned(), OfRule { rule: "login".to_owned() });
    let _ = all.http_errors.get_or_create(&RefusedStatus { status: 404 });
    let _ = all.token_uses.get_or_create(&Bearer { token: "fra-2026".into() });
    let _ = all.decisions.get_or_create(&OfDecision { rule: rule.clone(), decision: "allow" });
    let _ = all.anomalies.get_or_create(&OfAnomaly { rule, anomaly: "rate" });
    let _ = all.audit_log_events.get_or_create(&OfEvent { event: "change" });
    for of_sink in [&all.audit_log_written, &all.audit_log_lost, &all.audit_log_errors] {
        let _ = of_sink.get_or_create(&OfSink { sink: "file" });
    }
    let _ = all.report_limits_exceeded.get_or_create(&RefusedClaim { pop: "fra1".into(), reason: "rule" });
    for by_rule in [&all.debt_tokens, &all.overshoot_tokens, &all.overshoot_max_tokens, &all.bound_tokens] {
        let _ = by_rule.get_or_create(&of_rule);
    }
    let _ = all.gateway_checks.get_or_create(&Checked { api: "http", decision: "allow" });
    let _ = all.gateway_events.get_or_create(&Happened { event: "strict.paused" });
    for counted in [&all.gateway_allowed, &all.gateway_limited, &all.gateway_denied, &all.gateway_shadow_limited] {
        let _ = counted.get_or_create(&of_rule);
    }
    page::write(&registry)
}
