//! The scenarios of the table in other settings than the design's: rates, bursts, round trips.

use weir_budget::divide::GrantSettings;
use weir_protocol::time::SECOND_NS;

use super::network::Link;
use super::scenario::{Plan, Size};
use super::setup::{RuleText, Setup};
use super::traffic;

/// `times` the rate of `per_second`, spread evenly.
pub(super) fn contended(size: Size, per_second: u32, burst: u32, times: f64, seconds: u64) -> Plan {
    let mut plan = Plan::of(size, seconds, traffic::even(f64::from(per_second) * times, size.pops));
    plan.setup.rules = vec![RuleText { rate: format!("{per_second}/s"), burst, ..RuleText::default() }];
    plan
}

/// The same plan with a store that is `round_trip_ns` away, and weir-syncs that are set for it.
pub(super) fn far(plan: Plan, round_trip_ns: u64) -> Plan {
    let far = Link::perfect(round_trip_ns / 2);
    let setup = Setup { far, store_timeout_ns: 2 * SECOND_NS, ..plan.setup };
    let terms = GrantSettings { interval_ns: setup.interval_ns + setup.round_trip_ns(), ..setup.terms };
    Plan { setup: Setup { terms, ..setup }, ..plan }
}

/// Ten a second, a burst of two seconds.
pub fn slow(size: Size) -> Plan {
    contended(size, 10, 20, 3.0, 240)
}

/// Two thousand a second, a burst of a tenth of a second.
pub fn fast(size: Size) -> Plan {
    contended(size, 2_000, 200, 1.5, 30)
}

/// A store 800 ms away.
pub fn far_away(size: Size) -> Plan {
    far(contended(size, 100, 100, 3.0, 120), 4 * SECOND_NS / 5)
}

/// A burst of ten seconds of the rate, a store 400 ms away.
pub fn long_burst(size: Size) -> Plan {
    far(contended(size, 100, 1_000, 2.0, 120), 2 * SECOND_NS / 5)
}
