//! All parts up, a round trip of 100 ms between them.

use std::time::Duration;

use weir_tests::fleet::scenario::{
    BELOW, BELOW_MOVING, BURST as BURST_AT_ALL, EVEN, MOVING, MOVING_FAST, ONE_POP, ZIPF,
};

use super::{BURST, RATE, accounts, assert_paid_back, exact, fleet, overshoot_max, schedules};

/// The length of each load.
const LASTS: Duration = Duration::from_secs(12);

/// Clients beside each other: other keys are none of a budget's business.
// I4, I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_regions_share_one_quota_under_any_traffic() {
    let (_place, mut fleet) = fleet().await;
    let scenarios = [EVEN, ZIPF, BELOW, BELOW_MOVING];
    let run = fleet.run(schedules(scenarios, LASTS)).await;
    let [even, zipf, below, below_moving] = accounts(&run, scenarios);
    let scenarios = [MOVING_FAST, MOVING, ONE_POP, BURST_AT_ALL];
    let second = fleet.run(schedules(scenarios, LASTS)).await;
    let [moving_fast, moving, one_pop, at_all] = accounts(&second, scenarios);
    for (account, ratios) in [
        (&even, 0.95..=1.06),
        (&zipf, 0.95..=1.06),
        (&moving_fast, 0.93..=1.07),
        (&moving, 0.93..=1.07),
        (&at_all, 0.95..=1.06),
    ] {
        assert!(ratios.contains(&account.ratio()), "{:.3} of the ideal", account.ratio());
        assert!(account.overshoot_most() <= overshoot_max(), "{:.0} tokens", account.overshoot_most());
        assert_paid_back(account, 0.0, LASTS);
    }
    for account in [even, zipf] {
        let fullest = account.fullest_second(Duration::from_secs(2));
        assert!(fullest <= 1.0, "{fullest:.2} of rate and burst in a second");
    }
    for account in [below, below_moving] {
        assert!(account.part_admitted() >= 0.99, "{:.3} of what was asked for", account.part_admitted());
    }
    // The one bucket that it has is exact.
    assert!((0.98..=1.01).contains(&one_pop.ratio()), "{:.3} of the ideal", one_pop.ratio());
    assert!(one_pop.overshoot_most() <= exact(&second), "{:.1} tokens", one_pop.overshoot_most());
    // A burst at all three is a loan: once it is paid back, the client has its rate again.
    let most = at_all.overshoot_most();
    assert!(most >= 1.5 * f64::from(BURST), "only {most:.0} tokens: there was no burst at all three");
    let rate = at_all.rate_between(LASTS / 2, LASTS) / f64::from(RATE);
    assert!((0.9..=1.1).contains(&rate), "{rate:.2} of the rate");
}
