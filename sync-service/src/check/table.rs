//! Size of the table that a rule needs for a number of new keys a second.

use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::SECOND_NS;
use weir_rules::Rule;
use weir_rules::algorithm::Algorithm;
use weir_rules::mode::Mode;

use super::explain::amount::{article, span};

/// Number of buckets that a slot can distinguish, per entry that it has room for.
const BUCKETS_PER_PLACE: u64 = 3;
/// Fraction of a slot's entries that cells may take.
const CELLS_PART: (u64, u64) = (14, 16);

/// Size of the table for `newcomers` a second with one request each under `rule`; none if the rule stores
/// nothing for them.
pub(super) fn needed(rule: &Rule, newcomers: u64) -> Option<String> {
    if rule.variant.is_unlimited() || rule.enforcement.mode == Mode::Off {
        return None;
    }
    let (lasts_ns, verb) =
        (lasts_ns(rule)?, if is_bucket(rule) { "lack something for" } else { "are counted for" });
    let keys = u128::from(newcomers) * u128::from(lasts_ns) / u128::from(SECOND_NS);
    let keys = u64::try_from(keys).unwrap_or(u64::MAX).max(1);
    let addresses = if is_bucket(rule) {
        keys.div_ceil(BUCKETS_PER_PLACE)
    } else {
        let cells = u64::try_from(rule.algorithm.cells()).unwrap_or(u64::MAX);
        keys.saturating_mul(cells).saturating_mul(CELLS_PART.1).div_ceil(CELLS_PART.0)
    };
    Some(format!(
        "Table: {newcomers} new keys a second that ask once each {verb} {}, {keys} at a time; that takes `addresses: \
         {addresses}`.",
        article(&span(lasts_ns))
    ))
}

fn is_bucket(rule: &Rule) -> bool {
    matches!(rule.algorithm, Algorithm::TokenBucket(_))
}

/// Time for which one request is remembered, in nanoseconds.
fn lasts_ns(rule: &Rule) -> Option<u64> {
    match &rule.algorithm {
        // A key without an entry acquires tokens as well.
        Algorithm::TokenBucket(_) if rule.sharing.refill_policy != RefillPolicy::Continuous => None,
        Algorithm::TokenBucket(_) if rule.sharing.strict && rule.on_sync_loss == OnSyncLoss::Deny => None,
        Algorithm::TokenBucket(quota) => {
            let withheld = quota.burst().saturating_sub(rule.sharing.local_burst);
            let tokens = u64::from(rule.cost.usual()) + u64::from(withheld);
            Some(quota.token_ns().saturating_mul(tokens))
        }
        Algorithm::FixedWindow(window) => Some(window.length_ns()),
        Algorithm::SlidingWindow(window) => Some(window.length_ns().saturating_mul(2)),
        Algorithm::SlidingLog(log) => Some(log.window().length_ns()),
        Algorithm::LeakyBucket(_) => Some(rule.quota.token_ns()),
        // As long as its requests take, which is unknown.
        Algorithm::Concurrency(_) => None,
    }
}
