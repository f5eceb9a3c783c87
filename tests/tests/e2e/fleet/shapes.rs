//! A POP that gives little before the fleet has heard of a client, and a Redis that is far away.

use std::time::Duration;

use weir_tests::fleet::scenario::{BELOW, EVEN, ZIPF};
use weir_tests::fleet::{FAR, Shape};

use super::{BURST, RATE, accounts, fleet_of, schedules, tokens};

/// How long a load lasts: of a burst of ten seconds' worth at three times the rate, half is at an empty budget.
const LASTS: Duration = Duration::from_secs(12);
/// The rate of the rules with a `local_burst`.
const QUICK: u32 = 100;

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_burst_far_below_the_burst_costs_nobody_anything() {
    let shape = Shape { local_burst: 10, ..Shape::of(QUICK, 1_000) };
    let (_place, mut fleet) = fleet_of(shape).await;
    let run = fleet.run(vec![EVEN.schedule(1, QUICK, 1_000, LASTS)]).await;
    let [account] = accounts(&run, [EVEN]);
    // A budget is steered for a level of a tenth of its burst, so that much is not given out.
    let kept = 0.1 * 1_000.0 / tokens(account.ideal);
    let ratio = account.ratio();
    assert!((0.99 - kept..=1.02).contains(&ratio), "{ratio:.3} of the ideal, with {kept:.3} kept");
    let rate = account.rate_between(LASTS * 2 / 3, LASTS) / f64::from(QUICK);
    assert!((0.95..=1.05).contains(&rate), "{rate:.2} of the rate once the burst is used");
    // But for what each POP admitted within its fair share, while nobody watched the client.
    let (charged, admitted) = (tokens(fleet.charged().await), tokens(account.admitted()));
    assert!((0.98 * admitted..=admitted).contains(&charged), "{charged} charged of {admitted} admitted");
}

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_its_limit_a_client_notices_no_local_burst() {
    let shape = Shape { local_burst: 25, ..Shape::of(QUICK, 100) };
    let (_place, mut fleet) = fleet_of(shape).await;
    let run = fleet.run(vec![BELOW.schedule(1, QUICK, 100, LASTS / 2)]).await;
    let [account] = accounts(&run, [BELOW]);
    assert!(account.part_admitted() >= 0.98, "{:.3} of what was asked for", account.part_admitted());
}

/// Reports and charges take a round trip of 400 ms to Redis, which the budget loop allows for.
// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_far_from_their_redis_share_one_quota() {
    let far = Duration::from_millis(200);
    assert!(far > 4 * FAR, "further than elsewhere");
    let (_place, mut fleet) = fleet_of(Shape { far, ..Shape::of(RATE, BURST) }).await;
    let scenarios = [EVEN, ZIPF];
    let run = fleet.run(schedules(scenarios, LASTS)).await;
    for account in accounts(&run, scenarios) {
        assert!((0.95..=1.05).contains(&account.ratio()), "{:.3} of the ideal", account.ratio());
    }
}
