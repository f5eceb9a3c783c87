//! The numbers in a response: whole seconds, tokens left, and their unit.

use alloc::string::{String, ToString};

use crate::algorithms::BucketStatus;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::SECOND_NS;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::template::Numbers;
use weir_rules::{Reset, Rule};

/// The numbers for `standing`, with `jitter_s` added to the client's wait.
pub(super) fn numbers(rule: &Rule, standing: &BucketStatus, unix_ns: u64, jitter_s: u32) -> Numbers {
    Numbers {
        more_s: seconds_up(standing.more_ns),
        retry_after_s: retry_after_s(standing, jitter_s),
        remaining: standing.remaining,
        reset_s: reset_s(rule, standing, unix_ns),
    }
}

/// Nanoseconds until a calendar quota is whole again, by the wall clock; none for other quotas.
pub(super) fn window_left_ns(rule: &Rule, unix_ns: u64) -> Option<u64> {
    let RefillPolicy::Window(calendar) = rule.sharing.refill_policy else { return None };
    let end_us = calendar.window(unix_ns / 1_000).end_us;
    Some(end_us.saturating_mul(1_000).saturating_sub(unix_ns))
}

pub(super) fn retry_after_s(standing: &BucketStatus, jitter_s: u32) -> u64 {
    seconds_up(standing.more_ns).max(1).saturating_add(jitter_s.into())
}

fn reset_s(rule: &Rule, standing: &BucketStatus, unix_ns: u64) -> u64 {
    match rule.response.reset {
        Reset::Delta => seconds_up(standing.reset_ns()),
        Reset::Epoch => seconds_up(unix_ns.saturating_add(standing.reset_ns())),
    }
}

/// A reset in `seconds`, in the format that the rule configures.
pub(super) fn reset_in(rule: &Rule, seconds: u64, unix_ns: u64) -> String {
    match rule.response.reset {
        Reset::Delta => seconds,
        Reset::Epoch => seconds_up(unix_ns).saturating_add(seconds),
    }
    .to_string()
}

/// Seconds in which the whole quota of a rule comes back, rounded up; none if it does not come back with
/// time.
pub fn window_s(rule: &Rule) -> Option<u64> {
    match rule.sharing.refill_policy {
        RefillPolicy::Window(calendar) | RefillPolicy::Sliding(calendar) => Some(calendar.nominal_s()),
        RefillPolicy::Log(length_s) => Some(u64::from(length_s)),
        RefillPolicy::InFlight(_) => None,
        RefillPolicy::Continuous | RefillPolicy::Queue => window_ns(rule).map(|ns| ns.div_ceil(SECOND_NS)),
    }
}

fn window_ns(rule: &Rule) -> Option<u64> {
    match rule.algorithm {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => Some(rule.quota.fill_ns()),
        Algorithm::FixedWindow(window) | Algorithm::SlidingWindow(window) => Some(window.length_ns()),
        Algorithm::SlidingLog(log) => Some(log.window().length_ns()),
        Algorithm::Concurrency(_) => None,
    }
}

/// The `qu` of a policy (empty if it counts requests), and the number of these units in a token.
pub(super) fn quota_unit(rule: &Rule) -> (&'static str, u64) {
    match (&rule.algorithm, rule.after.as_deref()) {
        _ if counts_in_flight(rule) => (";qu=\"concurrent-requests\"", 1),
        (_, Some(After::Bytes { per })) => (";qu=\"content-bytes\"", u64::from(*per)),
        _ => ("", 1),
    }
}

/// True if the rule limits requests in flight.
fn counts_in_flight(rule: &Rule) -> bool {
    matches!(rule.algorithm, Algorithm::Concurrency(_))
        || matches!(rule.sharing.refill_policy, RefillPolicy::InFlight(_))
}

fn seconds_up(ns: u64) -> u64 {
    ns.div_ceil(SECOND_NS)
}
