//! Measures three real regions under load and prints what they reached, as a table: `make regions`.

use std::time::Duration;

use weir_tests::fleet::run::{HEAD, Run};
use weir_tests::fleet::scenario::{
    AT_BROKEN, Arrival, BELOW, BELOW_MOVING, BURST as BURST_AT_ALL, EVEN, MOVING, MOVING_FAST, ONE_POP, Scenario, ZIPF,
};
use weir_tests::fleet::{FAR, Fault, Fleet, INTERVAL, NEAR, Outage};

/// Requests per second that the rule admits.
const RATE: u32 = 50;
/// And at once.
const BURST: u32 = 50;
/// Length of a load while all parts are up.
const STEADY: Duration = Duration::from_mins(1);
/// And with an outage.
const BROKEN: Duration = Duration::from_secs(50);
/// The time at which a part is broken.
const FROM: Duration = Duration::from_secs(10);
/// The time at which it is repaired.
const TO: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() {
    let mut fleet = Fleet::start(RATE, BURST).await;
    println!(
        "Limit {RATE}/s, burst {BURST}; a report every {} ms, a round trip of {} ms from a POP to Redis; {} s \
         each, {} s with an outage from {} s to {} s.\n\n{HEAD}",
        INTERVAL.as_millis(),
        2 * (NEAR + FAR).as_millis(),
        STEADY.as_secs(),
        BROKEN.as_secs(),
        FROM.as_secs(),
        TO.as_secs(),
    );
    let mut latest = Duration::ZERO;
    // Beside each other: other keys are none of a budget's business.
    let loads: [&[Scenario]; 3] =
        [&[EVEN, ZIPF], &[BELOW, BELOW_MOVING, ONE_POP, BURST_AT_ALL], &[MOVING_FAST, MOVING]];
    for scenarios in loads {
        let run = fleet.run(schedules(scenarios, STEADY)).await;
        latest = latest.max(print_rows(&run, scenarios, ""));
    }
    for fault in Fault::ALL {
        let scenarios = [EVEN, AT_BROKEN];
        let outage = Outage { fault, from: FROM, to: TO };
        let run = fleet.run_through(schedules(&scenarios, BROKEN), outage).await;
        latest = latest.max(print_rows(&run, &scenarios, &format!("{}: ", fault.name())));
        fleet.settled().await;
    }
    println!("\nNo request failed. The latest was sent {} ms after it was due.", latest.as_millis());
}

fn schedules(scenarios: &[Scenario], lasts: Duration) -> Vec<Vec<Arrival>> {
    (1..).zip(scenarios).map(|(seed, scenario)| scenario.schedule(seed, RATE, BURST, lasts)).collect()
}

fn print_rows(run: &Run, scenarios: &[Scenario], before: &str) -> Duration {
    run.assert_only_decisions();
    for (client, scenario) in scenarios.iter().enumerate() {
        println!("{}", run.row(client, &format!("{before}{}", scenario.name)));
    }
    run.latest()
}
