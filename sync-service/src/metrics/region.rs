//! What a region knows of its budgets and of the fleet.
//!
//! A budget is the whole fleet's, and every region that hears of it shows it as it last heard: across regions take the
//! largest, not the sum.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// A number that goes up and down and may be fractional.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// Which rule's budgets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfRule {
    /// The rule's name.
    pub rule: String,
}

/// A number for each rule.
pub type ByRule = Family<OfRule, FloatGauge>;

/// The metrics of one region.
#[derive(Debug)]
pub struct RegionMetrics {
    /// What a rule's budgets owe together, in tokens.
    pub debt: ByRule,
    /// What the one that owes most owes, in tokens.
    pub overshoot: ByRule,
    /// The most that one of them has owed since the start, in tokens.
    pub overshoot_max: ByRule,
    /// The most that one of them can owe, in tokens.
    pub bound: ByRule,
    /// Hot keys that this region heard of from its POPs or looked at.
    pub hot_keys_here: Gauge,
    /// Hot keys that found no room, or made it for one that matters more.
    pub hot_keys_dropped: Counter,
    /// Hot keys in the fleet.
    pub hot_keys: Gauge,
    /// Warm keys heard in the last interval.
    pub warm_keys: Gauge,
    /// Live POPs that report here.
    pub pops_here: Gauge,
    /// Live POPs in the fleet.
    pub pops: Gauge,
    /// Whether that is known, or a guess.
    pub pops_known: Gauge,
    /// How old the oldest uncharged count of a report was when it was charged.
    pub lag: Histogram,
    /// Reports answered with the store out of reach.
    pub reports_alone: Counter,
    /// How long ago the store last answered.
    pub store_silence: FloatGauge,
}

impl Default for RegionMetrics {
    fn default() -> Self {
        let lags = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0];
        Self {
            debt: ByRule::default(),
            overshoot: ByRule::default(),
            overshoot_max: ByRule::default(),
            bound: ByRule::default(),
            hot_keys_here: Gauge::default(),
            hot_keys_dropped: Counter::default(),
            hot_keys: Gauge::default(),
            warm_keys: Gauge::default(),
            pops_here: Gauge::default(),
            pops: Gauge::default(),
            pops_known: Gauge::default(),
            lag: Histogram::new(lags),
            reports_alone: Counter::default(),
            store_silence: FloatGauge::default(),
        }
    }
}

impl RegionMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let help = "What the budgets of a rule owe together now, as last heard";
        r.register("debt_tokens", help, self.debt.clone());
        let help = "How far the key that is farthest above its quota is now, as last heard";
        r.register("overshoot_tokens", help, self.overshoot.clone());
        let help = "How far a key was above its quota at most since the start";
        r.register("overshoot_max_tokens", help, self.overshoot_max.clone());
        let help = "How far a key can be above its quota, by the rule and the fleet";
        r.register("bound_tokens", help, self.bound.clone());
        r.register("hot_keys_here", "Hot keys that this weir-sync grants", self.hot_keys_here.clone());
        let help = "How often a hot key found no room, or made it for one that matters more";
        r.register("hot_keys_dropped", help, self.hot_keys_dropped.clone());
        r.register("hot_keys", "Hot keys in the fleet", self.hot_keys.clone());
        r.register("warm_keys", "Warm keys heard in the last interval", self.warm_keys.clone());
        r.register("pops_here", "Live POPs that report here", self.pops_here.clone());
        r.register("pops", "Live POPs in the fleet, as last known", self.pops.clone());
        let help = "0 while nobody has said how many POPs the fleet has, and those here are taken for all";
        r.register("pops_known", help, self.pops_known.clone());
        let help = "How old the oldest uncharged count of a report was when it was charged";
        r.register_with_unit("lag", help, Unit::Seconds, self.lag.clone());
        let help = "Reports answered out of the region's own share, with the store out of reach";
        r.register("reports_alone", help, self.reports_alone.clone());
        let help = "How long ago the store last answered";
        r.register_with_unit("store_silence", help, Unit::Seconds, self.store_silence.clone());
    }
}
