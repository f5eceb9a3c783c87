//! The fleet's budgets: charges, grants, strict budgets, and a weir-sync without its IO.

mod bans;
mod charging;
mod costs;
mod demand;
mod escrow;
mod grants;
mod hot;
mod hub;
mod report_limits;
mod store_clock;
mod top_keys;

use weir_budget::divide::GrantSettings;
use weir_budget::hub::{Hub, HubSettings};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::time::{SECOND_NS, Time};

const SECOND_US: u64 = 1_000_000;
/// A time of the store's clock, in microseconds.
const NOW_US: u64 = 1 << 50;

/// The time `ms` after a test begins.
fn at(ms: u64) -> Time {
    Time::from_nanos(1_000 * SECOND_NS + ms * 1_000_000)
}

fn quota(count: u32, period: Period, burst: u32) -> Quota {
    Quota::new(Rate::new(count, period).unwrap(), burst).unwrap()
}

fn hub(replica: &str, pops_expected: u32) -> Hub {
    let terms = GrantSettings::default();
    Hub::new(HubSettings { replica: replica.into(), terms, pop_ttl_ns: 10 * SECOND_NS, pops_expected })
}
