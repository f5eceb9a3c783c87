//! Parts killed and links cut under load, then mended. No request fails, nobody is locked out, and what was
//! admitted too much meanwhile is paid back.

use std::time::Duration;

use weir_tests::fleet::reference::Account;
use weir_tests::fleet::run::Run;
use weir_tests::fleet::scenario::{AT_BROKEN, EVEN};
use weir_tests::fleet::{BROKEN, Fault, Outage};

use super::{BURST, POPS, RATE, accounts, assert_paid_back, exact, fleet, overshoot_max, schedules, tokens};

/// When a part is broken: once the load has settled.
const FROM: Duration = Duration::from_secs(4);
/// For how long.
const LASTS: Duration = Duration::from_secs(4);
/// How long it may take until all know each other's news again: a weir-sync that tries Redis every 2 s at
/// the latest, a POP that gives an answer up after 1 s, and an interval.
const BACK: Duration = Duration::from_millis(3_500);
/// How long the client must have had one quota again at the end of a load.
const AFTER: Duration = Duration::from_secs(3);

/// What a fault may cost.
struct Cost {
    /// How many POPs act on a whole quota of their own, beside what the others share.
    alone: u32,
    /// What the client of the broken region gets at least, as a part of what one ideal bucket gives.
    least: f64,
    /// What is never paid back, in tokens.
    lost: f64,
    /// When everything else is paid back.
    repaid: Duration,
}

/// A region that is cut off from Redis goes on with a whole quota beside the others'. To be tightened to 0
/// once it goes on with its own share.
const CUT_OFF_ALONE: u32 = 1;
/// The same where there is no Redis: each of the three has a whole quota.
const NO_REDIS_ALONE: u32 = 2;
/// What a client gets at least who asks only a region that is cut off: a third of the quota, its region's
/// share, until all is back, would come to 0.7. To be tightened to what the share comes to.
const CUT_OFF_LEAST: f64 = 0.65;

/// Asserts everything that holds for a client who asks all POPs and for one who asks the broken region's
/// alone.
async fn is_a_loan(fault: Fault, cost: Cost) {
    let (_alone, mut fleet) = fleet().await;
    let outage = Outage { fault, from: FROM, to: FROM + LASTS };
    let scenarios = [EVEN, AT_BROKEN];
    let run = fleet.run_through(schedules(scenarios, cost.repaid + AFTER), outage).await;
    let [even, at_broken] = accounts(&run, scenarios);
    is_paid_back(&even, &cost);
    goes_on(&run);
    // Whoever asks one POP alone asks one bucket, which is exact without anybody's news.
    assert!(at_broken.overshoot_most() <= exact(&run), "{:.1} tokens at one POP", at_broken.overshoot_most());
    assert!(at_broken.ratio() >= cost.least, "{:.3} of the ideal at one POP", at_broken.ratio());
    fleet.settled().await;
}

fn is_paid_back(account: &Account, cost: &Cost) {
    let rate = f64::from(RATE);
    let alone = f64::from(BURST) + rate * (LASTS + BACK).as_secs_f64();
    let most = overshoot_max() + f64::from(cost.alone) * alone;
    assert!(account.overshoot_most() <= most, "{:.0} tokens of {most:.0}", account.overshoot_most());
    let end = cost.repaid + AFTER;
    assert_paid_back(account, cost.lost, end);
    assert!((0.9..=1.07).contains(&account.ratio()), "{:.3} of the ideal since the start", account.ratio());
    let after = account.rate_between(cost.repaid, end) / rate;
    assert!((0.85..=1.15).contains(&after), "{after:.2} of one quota in the end");
}

/// The broken region admitted half of its share of the quota at the very least.
fn goes_on(run: &Run) {
    let admitted = tokens(run.admitted_by_pop(0, FROM, FROM + LASTS)[BROKEN]);
    let share = f64::from(RATE) * LASTS.as_secs_f64() / tokens(POPS);
    assert!(admitted >= 0.5 * share, "{admitted} of {share:.0}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_sync_killed_under_load_is_a_loan() {
    let cost = Cost { alone: 1, least: 0.95, lost: 0.0, repaid: Duration::from_secs(15) };
    is_a_loan(Fault::WeirSyncKilled, cost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_cut_off_from_redis_under_load_is_a_loan() {
    let cost =
        Cost { alone: CUT_OFF_ALONE, least: CUT_OFF_LEAST, lost: 0.0, repaid: Duration::from_secs(17) };
    is_a_loan(Fault::StoreCut, cost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_back_empty_under_load_is_a_loan() {
    // What its budget owed is forgotten, and a new budget is full.
    let cost = Cost {
        alone: NO_REDIS_ALONE,
        least: CUT_OFF_LEAST,
        lost: f64::from(BURST),
        repaid: Duration::from_secs(20),
    };
    is_a_loan(Fault::RedisKilled, cost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_hears_nothing_under_load_is_a_loan() {
    let cost = Cost { alone: 1, least: 0.95, lost: 0.0, repaid: Duration::from_secs(15) };
    is_a_loan(Fault::PopSilenced, cost).await;
}
