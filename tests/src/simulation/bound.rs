//! How far a fleet may overshoot: more than burst + rate x t, in tokens, in any span of time.

use weir_budget::bound;
use weir_limiter::quota::Quota;
use weir_limiter::sharing::Sharing;

/// What the bound depends on beside the rule.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// POPs.
    pub pops: usize,
    /// The longest that a POP has acted on the same news, in nanoseconds.
    pub reach_ns: u64,
}

/// A bound: tokens above burst + rate x t.
pub type Bound = fn(Quota, &Sharing, Fleet) -> f64;

/// The one that is documented and exported, for news that are as old as they were in this run.
#[allow(clippy::cast_precision_loss, reason = "a bound of some thousands")]
pub fn bound(quota: Quota, sharing: &Sharing, fleet: Fleet) -> f64 {
    let pops = u32::try_from(fleet.pops).expect("few POPs");
    let reach = bound::Fleet { pops, interval_ns: fleet.reach_ns, trip_ns: 0, timeout_ns: 0, failures: 0 };
    bound::bound(quota, sharing, &reach) as f64
}
