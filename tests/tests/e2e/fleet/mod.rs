//! Three regions under load: the ratios of the simulation's table, with real parts on a busy machine.
//!
//! Tolerances are wider than the simulation's: these loads last some seconds, not a minute, so the level
//! that a budget is steered for (a tenth of the burst) alone is worth one part in a hundred. `make regions`
//! measures the same for longer.

mod outages;
mod steady;

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use weir_tests::fleet::reference::Account;
use weir_tests::fleet::run::{HEAD, Run};
use weir_tests::fleet::scenario::Scenario;
use weir_tests::fleet::schedule::Arrival;
use weir_tests::fleet::{FAR, Fleet, INTERVAL, NEAR, POPS};

/// What the rule admits per second.
const RATE: u32 = 50;
/// And at once.
const BURST: u32 = 50;
/// How long before the end of a load it must have been paid back, if only for a moment.
const REPAID_WITHIN: Duration = Duration::from_secs(3);

/// A fleet for one test. These tests measure, so they do not run beside each other.
async fn fleet() -> (MutexGuard<'static, ()>, Fleet) {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let alone = ALONE.lock().await;
    (alone, Fleet::start(RATE, BURST).await)
}

/// What each scenario's client asks for.
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

/// How long a POP acts on old news: an interval and a round trip.
fn reach() -> Duration {
    INTERVAL + 2 * (NEAR + FAR)
}

/// What is admitted while news is on its way, in tokens: so much is admitted and not yet charged at any time.
fn on_its_way() -> f64 {
    f64::from(RATE) * reach().as_secs_f64()
}

/// The most that a client may get above burst + rate x t, in tokens, by asking all POPs at once before they
/// know each other's news: a burst at each but one, what every bucket refills until the news is everywhere,
/// and what a budget gives out of its level over its horizon of 1 s.
fn overshoot_max() -> f64 {
    let (rate, burst, pops) = (f64::from(RATE), f64::from(BURST), tokens(POPS));
    (pops - 1.0) * burst + pops * on_its_way() + rate * 1.0
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
