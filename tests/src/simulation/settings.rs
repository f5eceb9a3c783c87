//! The scenarios of the table in other settings than the design's: rates, bursts, round trips, and several weir-syncs
//! in each region, to which POPs report in turn.

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

/// A plan for one POP, in a fleet of this size whose other POPs are asked for nothing.
pub(super) fn at_one_pop(size: Size, plan: fn(Size) -> Plan) -> Plan {
    let plan = plan(Size { pops: 1, ..size });
    Plan { setup: Setup { pops: size.pops, ..plan.setup }, ..plan }
}

/// The same plan with a store that is `round_trip_ns` away, and weir-syncs that are set for it.
pub(super) fn far(plan: Plan, round_trip_ns: u64) -> Plan {
    let far = Link::perfect(round_trip_ns / 2);
    timed(Plan { setup: Setup { far, store_timeout_ns: 2 * SECOND_NS, ..plan.setup }, ..plan })
}

/// The same plan with reports every half second, and weir-syncs that are set for it.
pub(super) fn slow_reports(plan: Plan) -> Plan {
    timed(Plan { setup: Setup { interval_ns: SECOND_NS / 2, ..plan.setup }, ..plan })
}

fn timed(plan: Plan) -> Plan {
    let interval_ns = plan.setup.interval_ns + plan.setup.round_trip_ns();
    let terms = GrantSettings { interval_ns, ..plan.setup.terms };
    Plan { setup: Setup { terms, ..plan.setup }, ..plan }
}

/// The same plan with this number of weir-syncs in each region: a POP reports to each of them as much less often.
pub(super) fn replicas(count: usize, plan: Plan) -> Plan {
    Plan { setup: Setup { syncs_per_region: count, ..plan.setup }, ..plan }
}
