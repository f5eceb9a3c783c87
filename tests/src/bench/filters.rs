//! The filters that are compared, as Envoy's configuration.

use serde_json::{Value, json};

use crate::artefact;
use crate::envoy::{native_filter, text, wasm_filter};
use crate::weir_sync::TOKEN;

/// Addresses that Weir's table tracks, and the most dynamic descriptors of the native filter: as many, so
/// that both hold all that come.
pub const ADDRESSES: u32 = 262_144;
/// The cluster of the central service.
pub const SERVICE: &str = "ratelimit";

/// The cluster of weir-sync.
pub const WEIR_SYNC: &str = "weir-sync";

/// A quota in each one's own words.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    tokens: u32,
    burst: u32,
    /// Weir's unit.
    per: &'static str,
    /// The native filter's.
    interval: &'static str,
}

impl Quota {
    /// Requests that it lets through in its interval.
    pub fn tokens(self) -> u32 {
        self.tokens
    }
}

/// The settings of documentation and examples.
pub const SHIPPED: Quota = Quota { tokens: 20, burst: 100, per: "s", interval: "1s" };
/// Never reached.
pub const PLENTY: Quota = Quota { tokens: 1_000_000, burst: 1_000_000, per: "s", interval: "1s" };
/// Reached by the second request.
pub const ONE_A_DAY: Quota = Quota { tokens: 1, burst: 1, per: "d", interval: "86400s" };

/// Filters, and what they want of the route.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// Before the router, in their order.
    pub filters: Vec<Value>,
    /// The route's `rate_limits`.
    pub rate_limits: Option<Value>,
}

impl Filters {
    /// All of `chain`, one after the other. They want the same of the route.
    pub fn in_turn(chain: impl IntoIterator<Item = Self>) -> Self {
        chain.into_iter().fold(Self::default(), |mut all, next| {
            all.filters.extend(next.filters);
            all.rate_limits = all.rate_limits.or(next.rate_limits);
            all
        })
    }
}

/// A filter that does nothing.
pub fn empty() -> Filters {
    alone(wasm_filter("empty", "empty", &artefact::empty_filter_wasm(), &text("")))
}

/// Weir. Each has its own VM, and so a table of its own.
pub fn weir(vm_id: &str, configuration: &Value) -> Filters {
    alone(wasm_filter(vm_id, vm_id, &artefact::filter_wasm(), &text(&configuration.to_string())))
}

/// Weir as a dynamic module. Each name has a table of its own.
pub fn module(name: &str, configuration: &Value) -> Filters {
    alone(native_filter(name, &text(&configuration.to_string())))
}

/// One filter, which wants nothing of the route.
fn alone(filter: Value) -> Filters {
    Filters { filters: vec![filter], rate_limits: None }
}

/// One rule per address. `word` begins the rules' names: the listeners share a weir-sync, but no budgets.
pub fn one_rule(word: &str, quota: Quota) -> Value {
    configuration(&[rule(word, "address", &by_address(), quota)])
}

/// The same of a POP of this name that reports to the weir-sync.
pub fn in_a_fleet(word: &str, mut configuration: Value) -> Value {
    configuration["sync"] = json!({"cluster": WEIR_SYNC, "pop": word, "token": TOKEN});
    configuration
}

/// Two rules per address and two per API key.
pub fn four_rules(word: &str, quota: Quota) -> Value {
    let api_key = json!([{"header": "x-api-key"}]);
    let minute = Quota { tokens: 60 * quota.tokens, burst: 60 * quota.tokens, per: "m", ..quota };
    configuration(&[
        rule(word, "address-second", &by_address(), quota),
        rule(word, "address-minute", &by_address(), minute),
        rule(word, "key-second", &api_key, quota),
        rule(word, "key-minute", &api_key, minute),
    ])
}

fn by_address() -> Value {
    json!(["client_address"])
}

fn configuration(rules: &[Value]) -> Value {
    json!({"rules": rules, "table": {"addresses": ADDRESSES}})
}

fn rule(word: &str, name: &str, key: &Value, quota: Quota) -> Value {
    let Quota { tokens, burst, per, .. } = quota;
    json!({"name": format!("{word}-{name}"), "key": key, "rate": format!("{tokens}/{per}"), "burst": burst})
}

/// Envoy's own filter, a bucket per address: a descriptor without a value stands for every value, and gets
/// a bucket at each one's first request. The bucket beside it, for requests without a descriptor, is full.
pub fn native(quota: Quota) -> Filters {
    let interval = quota.interval;
    let bucket = |quota: Quota| {
        let Quota { burst, tokens, .. } = quota;
        json!({"max_tokens": burst, "tokens_per_fill": tokens, "fill_interval": interval})
    };
    let always = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    Filters {
        filters: vec![json!({
            "name": "envoy.filters.http.local_ratelimit",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
                "stat_prefix": "native",
                "token_bucket": bucket(PLENTY),
                "always_consume_default_token_bucket": false,
                "filter_enabled": always,
                "filter_enforced": always,
                "descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": bucket(quota)}],
                "max_dynamic_descriptors": ADDRESSES,
            },
        })],
        rate_limits: Some(per_address()),
    }
}

/// Envoy's filter that asks the service of a cluster about every request, by its address; without an answer the request
/// fails, so that none goes by unasked.
pub fn central(cluster: &str) -> Filters {
    Filters {
        filters: vec![json!({
            "name": "envoy.filters.http.ratelimit",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
                "domain": "bench",
                "timeout": "5s",
                "failure_mode_deny": true,
                "rate_limit_service": {
                    "grpc_service": {"envoy_grpc": {"cluster_name": cluster}},
                    "transport_api_version": "V3",
                },
            },
        })],
        rate_limits: Some(per_address()),
    }
}

fn per_address() -> Value {
    json!([{"actions": [{"remote_address": {}}]}])
}
