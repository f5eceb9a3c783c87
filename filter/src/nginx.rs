//! nginx (`ngx_wasm_module`), where it is another host than Envoy.
//!
//! It ends a worker that makes a call at a moment it does not expect one, so what it takes cannot be found out by
//! trying. It needs a module of its own anyway, as it calls callbacks without asking whether they are there: that
//! module, built with the feature `nginx`, keeps to what nginx takes, and the other one pays for none of it.

use weir_limiter::edge::HostRules;
use weir_rules::{Rule, RuleSet};

/// Whether this is the module for nginx. There
///
/// - calls are made by ticks and requests alone: not while a plugin is configured, nor in the answer to a plugin's call;
/// - a property is read while its request is there: in `proxy_on_log`, not in `proxy_on_delete`;
/// - the tick is set once, and no request can be made to go on from it;
/// - `:authority` is the server's own name, and a local response has no status for gRPC.
pub(crate) const IS_HOST: bool = cfg!(feature = "nginx");

/// How the host differs from others, as far as decisions go.
pub(crate) const RULES: HostRules =
    HostRules { calls_from_answers: !IS_HOST, answers_grpc: !IS_HOST, has_heirs: !IS_HOST };

/// What a rule set asks that nginx cannot do, with its places.
pub(crate) fn refusals(rules: &RuleSet) -> Vec<String> {
    let refused = rules.rules().iter().filter(|rule| IS_HOST && rule.algorithm.holds_requests());
    let mut places: Vec<u16> = refused.map(Rule::place).collect();
    places.dedup();
    let refusal = |place| {
        format!(
            "rules[{place}].queue: expected none, because nginx cannot hold a request until its turn: without a \
             queue, what is above the rate is limited at once"
        )
    };
    places.into_iter().map(refusal).collect()
}

/// The store that so many slots need, in MiB: a slab of 1 KiB for each, as much again for what the allocator keeps
/// beside and for pushed rule sets.
pub(crate) const fn store_mib(slots: u32) -> u32 {
    slots.div_ceil(512)
}
