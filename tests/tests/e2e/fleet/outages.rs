//! Parts killed and links cut under load, then repaired. No request fails, nobody is locked out, and what was
//! admitted too much meanwhile is paid back.
//!
//! Tests of I1, I4 and I5.

use std::time::Duration;

use weir_protocol::sharing::OnSyncLoss;
use weir_tests::fleet::reference::Account;
use weir_tests::fleet::run::Run;
use weir_tests::fleet::scenario::{AT_BROKEN, EVEN};
use weir_tests::fleet::{BROKEN, Fault, Outage};

use super::{BURST, RATE, accounts, apart_max, assert_paid_back, exact, fleet, overshoot_max, schedules, tokens};

/// The time at which a part is broken: once the load has settled.
const FROM: Duration = Duration::from_secs(4);
/// For how long.
const LASTS: Duration = Duration::from_secs(4);
/// Time that it may take until all know each other's news again: a weir-sync that tries Redis every 2 s at
/// the latest, a POP that gives an answer up after 1 s, and an interval.
const BACK: Duration = Duration::from_millis(3_500);
/// Time for which the client must have had one quota again at the end of a load.
const AFTER: Duration = Duration::from_secs(3);

/// The stated cost of a fault.
struct Cost {
    /// The broken region's use of the quota beside what the others share of it.
    beside: Option<OnSyncLoss>,
    /// Admissions of the broken region's client meanwhile, as a part of the quota.
    meanwhile: f64,
    /// The part that is never paid back, in tokens.
    lost: f64,
    /// The time at which everything else is paid back.
    repaid: Duration,
}

/// A region that does not reach Redis goes on with its share: its POPs, of all POPs.
const SHARE: f64 = 1.0 / 3.0;
/// The amount by which a client may get less than that in a whole load, as a part of it.
const LESS: f64 = 0.05;
/// The amount by which such a region may admit more than its share, as a part of it: it takes some exchanges until it
/// knows that Redis is gone, and it begins with what is left of the burst.
const MORE: f64 = 0.5;

/// Asserts everything that holds for a client that asks all POPs and for one that asks the broken region's
/// alone.
async fn overshoots_and_repays(fault: Fault, cost: Cost) {
    let (_place, mut fleet) = fleet().await;
    let outage = Outage { fault, from: FROM, to: FROM + LASTS };
    let scenarios = [EVEN, AT_BROKEN];
    let run = fleet.run_through(schedules(scenarios, cost.repaid + AFTER), outage).await;
    let [even, at_broken] = accounts(&run, scenarios);
    is_paid_back(&run, &even, &cost);
    goes_on(&run, &cost);
    // A client that asks one POP alone asks one bucket, which is exact without anybody's news.
    assert!(at_broken.overshoot_most() <= exact(&run), "{:.1} tokens at one POP", at_broken.overshoot_most());
    let least = least(&cost);
    assert!(at_broken.ratio() >= least, "{:.3} of the ideal at one POP, of {least:.3}", at_broken.ratio());
    fleet.settled().await;
}

/// The least that a client of the broken region alone gets in a whole load, as a part of what one ideal
/// bucket gives.
fn least(cost: &Cost) -> f64 {
    let rate = f64::from(RATE);
    let missing = (1.0 - cost.meanwhile) * rate * (LASTS + BACK).as_secs_f64();
    1.0 - LESS - missing / (f64::from(BURST) + rate * (cost.repaid + AFTER).as_secs_f64())
}

fn is_paid_back(run: &Run, account: &Account, cost: &Cost) {
    let rate = f64::from(RATE);
    let beside = cost.beside.map_or(0.0, |does| apart_max(does, LASTS + BACK));
    let most = overshoot_max() + beside + cost.lost;
    assert!(account.overshoot_most() <= most, "{:.0} tokens of {most:.0}", account.overshoot_most());
    let end = cost.repaid + AFTER;
    assert_paid_back(account, cost.lost, end);
    assert!((0.9..=1.07).contains(&account.ratio()), "{:.3} of the ideal since the start", account.ratio());
    let after = account.rate_between(cost.repaid, end) / rate;
    // A request is decided some time between when it was sent and its answer.
    let late = run.slowest().as_secs_f64() / AFTER.as_secs_f64();
    assert!((0.85 - late..=1.15 + late).contains(&after), "{after:.2} of one quota in the end");
}

/// The broken region admitted half of its share of the quota at the very least, and where it keeps to its
/// share not much more than that.
fn goes_on(run: &Run, cost: &Cost) {
    let admitted = tokens(run.admitted_by_pop(0, FROM, FROM + LASTS)[BROKEN]);
    let share = f64::from(RATE) * LASTS.as_secs_f64() * SHARE;
    println!("{admitted} of {share:.0} in the broken region meanwhile");
    assert!(admitted >= 0.5 * share, "{admitted} of {share:.0}");
    assert!(cost.meanwhile > SHARE || admitted <= (1.0 + MORE) * share, "{admitted} of {share:.0}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_cut_off_from_redis_overshoots_and_repays() {
    // The others share the whole quota, and get nothing about its clients.
    let beside = Some(OnSyncLoss::Share);
    let cost = Cost { beside, meanwhile: SHARE, lost: 0.0, repaid: Duration::from_secs(17) };
    overshoots_and_repays(Fault::StoreCut, cost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_restarted_empty_overshoots_and_repays() {
    // What its budget owed is forgotten, and a new budget is full.
    let lost = f64::from(BURST);
    // Three shares are one quota.
    let cost = Cost { beside: None, meanwhile: SHARE, lost, repaid: Duration::from_secs(20) };
    overshoots_and_repays(Fault::RedisKilled, cost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_without_messages_overshoots_and_repays() {
    // It has the whole quota for itself, beside the others.
    let beside = Some(OnSyncLoss::Local);
    let cost = Cost { beside, meanwhile: 1.0, lost: 0.0, repaid: Duration::from_secs(15) };
    overshoots_and_repays(Fault::PopSilenced, cost).await;
}
