//! The scenarios of the table in which several weir-syncs serve each region, and POPs report to each in turn.

use weir_budget::divide::GrantSettings;
use weir_protocol::time::SECOND_NS;

use super::scenario::{Plan, Size};
use super::settings::{contended, far};
use super::setup::Setup;

/// A store so far away that a report leaves while the two before it are still unanswered.
pub fn far_store(size: Size) -> Plan {
    of(2, far(contended(size, 611, 100, 1.09, 60), 716_000_000))
}

/// The same, at one POP.
pub fn far_store_one_pop(size: Size) -> Plan {
    let plan = contended(Size { pops: 1, ..size }, 100, 100, 3.0, 60);
    let setup = Setup { pops: size.pops, ..plan.setup };
    of(2, far(Plan { setup, ..plan }, 716_000_000))
}

/// Each weir-sync hears of a POP once in a second.
pub fn slow_reports(size: Size) -> Plan {
    let plan = contended(size, 100, 100, 5.0, 60);
    let setup = Setup { interval_ns: SECOND_NS / 2, ..plan.setup };
    let terms = GrantSettings { interval_ns: setup.interval_ns + setup.round_trip_ns(), ..setup.terms };
    of(2, Plan { setup: Setup { terms, ..setup }, ..plan })
}

/// The same at one POP, with a small burst.
pub fn slow_reports_one_pop(size: Size) -> Plan {
    let plan = contended(Size { pops: 1, ..size }, 100, 11, 5.0, 60);
    let setup = Setup { pops: size.pops, interval_ns: SECOND_NS / 2, ..plan.setup };
    let terms = GrantSettings { interval_ns: setup.interval_ns + setup.round_trip_ns(), ..setup.terms };
    of(2, Plan { setup: Setup { terms, ..setup }, ..plan })
}

/// Each of four weir-syncs hears of a POP once in a second.
pub fn four(size: Size) -> Plan {
    of(4, contended(size, 100, 100, 3.0, 60))
}

fn of(replicas: usize, plan: Plan) -> Plan {
    Plan { setup: Setup { syncs_per_region: replicas, ..plan.setup }, ..plan }
}
