//! All parts up, a round trip of 100 ms between them.

use std::time::Duration;

use weir_tests::fleet::scenario::{
    BELOW, BELOW_MOVING, BURST as BURST_AT_ALL, EVEN, MOVING, MOVING_FAST, ONE_POP, ZIPF,
};

use super::{BURST, RATE, accounts, assert_paid_back, exact, fleet, overshoot_max, schedules};

/// How long each load lasts.
const LASTS: Duration = Duration::from_secs(12);

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_client_gets_one_quota_however_it_is_spread() {
    let (_place, mut fleet) = fleet().await;
    let scenarios = [EVEN, ZIPF];
    let run = fleet.run(schedules(scenarios, LASTS)).await;
    for account in accounts(&run, scenarios) {
        assert!((0.95..=1.06).contains(&account.ratio()), "{:.3} of the ideal", account.ratio());
        assert!(account.overshoot_most() <= overshoot_max(), "{:.0} tokens", account.overshoot_most());
        assert_paid_back(&account, 0.0, LASTS);
        let fullest = account.fullest_second(Duration::from_secs(2));
        assert!(fullest <= 1.0, "{fullest:.2} of rate and burst in a second");
    }
}

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_below_its_limit_or_at_one_pop_alone_notices_no_budget() {
    let (_place, mut fleet) = fleet().await;
    let scenarios = [BELOW, BELOW_MOVING, ONE_POP];
    let run = fleet.run(schedules(scenarios, LASTS)).await;
    let [below, moving, one_pop] = accounts(&run, scenarios);
    for account in [below, moving] {
        assert!(account.part_admitted() >= 0.99, "{:.3} of what was asked for", account.part_admitted());
    }
    // The one bucket that it has is exact.
    assert!((0.98..=1.01).contains(&one_pop.ratio()), "{:.3} of the ideal", one_pop.ratio());
    assert!(one_pop.overshoot_most() <= exact(&run), "{:.1} tokens", one_pop.overshoot_most());
}

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_moves_from_pop_to_pop_gains_nothing() {
    let (_place, mut fleet) = fleet().await;
    let scenarios = [MOVING_FAST, MOVING];
    let run = fleet.run(schedules(scenarios, LASTS)).await;
    for account in accounts(&run, scenarios) {
        assert!((0.93..=1.07).contains(&account.ratio()), "{:.3} of the ideal", account.ratio());
        assert!(account.overshoot_most() <= overshoot_max(), "{:.0} tokens", account.overshoot_most());
        assert_paid_back(&account, 0.0, LASTS);
    }
}

// I4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_at_all_pops_at_once_is_a_loan() {
    let (_place, mut fleet) = fleet().await;
    let run = fleet.run(schedules([BURST_AT_ALL], LASTS)).await;
    let [account] = accounts(&run, [BURST_AT_ALL]);
    let most = account.overshoot_most();
    assert!(most >= 1.5 * f64::from(BURST), "only {most:.0} tokens: there was no burst at all three");
    assert!(most <= overshoot_max(), "{most:.0} tokens");
    assert_paid_back(&account, 0.0, LASTS);
    assert!((0.95..=1.06).contains(&account.ratio()), "{:.3} of the ideal since the start", account.ratio());
    // Once it is paid back, the client has its rate again.
    let rate = account.rate_between(LASTS / 2, LASTS) / f64::from(RATE);
    assert!((0.9..=1.1).contains(&rate), "{rate:.2} of the rate");
}
