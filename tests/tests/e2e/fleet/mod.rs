//! Three regions under load: the ratios of the simulation's table, with real parts on a busy machine.
//!
//! Tolerances are wider than the simulation's: these loads last some seconds, not a minute, so the level
//! that a budget is steered for (a tenth of the burst) alone is worth one part in a hundred. `make regions`
//! measures the same for longer.

mod outages;
mod steady;

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use weir_budget::bound;
use weir_protocol::quota::Quota;
use weir_protocol::sharing::{OnSyncLoss, Sharing};
use weir_tests::fleet::reference::{Account, per_second};
use weir_tests::fleet::run::{HEAD, Run};
use weir_tests::fleet::scenario::{Arrival, Scenario};
use weir_tests::fleet::{FAR, Fleet, INTERVAL, NEAR, REGIONS, TIMEOUT};

/// Requests per second that the rule admits.
const RATE: u32 = 50;
/// And at once.
const BURST: u32 = 50;
/// Time before the end of a load by which it must have been paid back, if only for a moment.
const REPAID_WITHIN: Duration = Duration::from_secs(3);

/// The part of weir-sync's stated bound that these loads may reach. In simulation they reach 0.43 of it.
const PART_OF_BOUND: f64 = 0.6;

/// The number of long measuring tests beside each other. Each takes less than half of a processor.
const MEASURING_MAX: usize = 2;

/// Tests that measure for long hold one of these.
pub(crate) async fn measuring() -> SemaphorePermit<'static> {
    static PLACES: Semaphore = Semaphore::const_new(MEASURING_MAX);
    PLACES.acquire().await.unwrap_or_else(|e| panic!("nobody closes it: {e}"))
}

/// A fleet for one test.
async fn fleet() -> (SemaphorePermit<'static>, Fleet) {
    (measuring().await, Fleet::start(RATE, BURST).await)
}

/// The demand of each scenario's client.
fn schedules<const N: usize>(scenarios: [Scenario; N], lasts: Duration) -> Vec<Vec<Arrival>> {
    (1..).zip(scenarios).map(|(seed, scenario)| scenario.schedule(seed, RATE, BURST, lasts)).collect()
}

/// The scenarios' accounts, none of whose requests failed. On standard output too: what comes near its
/// tolerance is to be seen.
fn accounts<const N: usize>(run: &Run, scenarios: [Scenario; N]) -> [Account; N] {
    println!("sent at most {:?} late, answered within {:?}\n{HEAD}", run.latest(), run.slowest());
    run.assert_only_decisions();
    std::array::from_fn(|client| {
        println!("{}", run.row(client, scenarios[client].name));
        run.account(client)
    })
}

/// Time for which a POP acts on old news: an interval and a round trip.
fn reach() -> Duration {
    INTERVAL + 2 * (NEAR + FAR)
}

/// The tokens admitted while news is on its way: the amount that is admitted and not yet charged at any time.
fn on_its_way() -> f64 {
    f64::from(RATE) * reach().as_secs_f64()
}

/// The rule's quota.
fn quota() -> Quota {
    per_second(RATE, BURST)
}

/// The fleet, while no exchange fails.
fn whole() -> bound::FleetParameters {
    let [interval_ns, trip_ns, timeout_ns] = [INTERVAL, 2 * (NEAR + FAR), TIMEOUT].map(nanos);
    bound::FleetParameters {
        pops: REGIONS.len().try_into().expect("three"),
        interval_ns,
        trip_ns,
        timeout_ns,
        failures: 0,
    }
}

/// The most that a client may get above burst + rate x t, in tokens, while all is whole.
fn overshoot_max() -> f64 {
    PART_OF_BOUND * float(bound::bound(quota(), &Sharing::of(quota()), &whole()))
}

/// The most that one POP of the three may add if it is on its own for `span`, and meanwhile uses the quota as in
/// `does`.
fn apart_max(does: OnSyncLoss, span: Duration) -> f64 {
    let refilled = f64::from(RATE) * span.as_secs_f64();
    match does {
        OnSyncLoss::Local => refilled,
        OnSyncLoss::Share => (f64::from(BURST) + refilled) / tokens(REGIONS.len()),
        OnSyncLoss::Deny => 0.0,
    }
}

/// The most that a client may be seen to get above burst + rate x t from one bucket, in tokens: a request is
/// decided some time between when it was sent and when its answer was there.
fn exact(run: &Run) -> f64 {
    1.0 + f64::from(RATE) * run.slowest().as_secs_f64()
}

/// Panics unless what `account` got too much was paid back some time before its load ended at `end`, but for
/// what is on its way, and `lost`.
fn assert_paid_back(account: &Account, lost: f64, end: Duration) {
    let owed = account.overshoot_least(end.saturating_sub(REPAID_WITHIN), end);
    let most = lost + on_its_way();
    assert!(owed <= most, "{owed:.0} tokens were never paid back, at most {most:.0}");
}

/// A count in these tests, which is far below 2^32.
fn tokens(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The same of tokens that were computed.
fn float(tokens: u64) -> f64 {
    f64::from(u32::try_from(tokens).unwrap_or(u32::MAX))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
