//! How nginx (`ngx_wasm_module`) differs from Envoy as a host.
//!
//! nginx ends a worker that makes a call when it does not expect one, so what it accepts cannot be found out by trying.
//! It needs its own module anyway, because it calls callbacks without checking that they exist. That module, built with
//! the feature `nginx`, keeps to what nginx accepts, and the other module pays nothing for it.

use weir_limiter::edge::HostRules;
use weir_rules::Rule;
use weir_rules::after::After;

/// Whether this is the module for nginx. On nginx:
///
/// - calls are made only in ticks and requests: not while a plugin is configured, nor in the answer to a call, because the
///   second call loses its body when the first is freed, and the worker then tries to send it for ever;
/// - a request's properties are read in `proxy_on_log`, because they are gone in `proxy_on_delete`;
/// - the tick is set once, and cannot resume requests;
/// - `:authority` is the server's own name, and a local response has no gRPC status.
pub(crate) const IS_HOST: bool = cfg!(feature = "nginx");

/// How the host differs from others, for the edge.
pub(crate) const RULES: HostRules = HostRules {
    calls_from_answers: !IS_HOST,
    answers_grpc: !IS_HOST,
    has_heirs: !IS_HOST,
    hears_decisions: false,
};

/// The field of a rule that nginx cannot do as it says, and why.
pub(crate) fn refusal(rule: &Rule) -> Option<&'static str> {
    if rule.holds_requests() {
        return Some(
            "queue: expected none, because nginx cannot hold a request until its turn: without a queue, what is above \
             the rate is limited at once",
        );
    }
    matches!(rule.after.as_deref(), Some(After::Metadata { .. })).then_some(
        "cost.after.metadata: expected status, header or response_bytes_per, because nothing finds metadata in nginx's \
         responses",
    )
}

/// The store that this many slots need, in MiB: a slab of 1 KiB for each, and as much again for the allocator's own
/// data and for pushed rule sets.
pub(crate) const fn store_mib(slots: u32) -> u32 {
    slots.div_ceil(512)
}
