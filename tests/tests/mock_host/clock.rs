//! Clocks that jump, stand still, or are not there.
//!
//! Tests of I8.

use serde_json::json;
use weir_tests::mock_host::{Answer, Host, Script, Worker};

use crate::harness::{client, plugin, rule, shared, with};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn tokens_come_back_with_the_monotonic_clock() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/s", 3)));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    worker.host_mut().monotonic_ns += SECOND_NS - 1;
    assert_eq!(worker.allowed_of(5, &client(1)), 0);
    worker.host_mut().monotonic_ns += 1;
    assert_eq!(worker.allowed_of(5, &client(1)), 1);
    worker.host_mut().monotonic_ns += 3_600 * SECOND_NS;
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
}

// I8
#[test]
fn a_monotonic_clock_that_goes_back_gives_no_tokens() {
    let shared = shared();
    let [mut worker, mut other] = [0, 1].map(|_| Worker::configured(&shared, &plugin(&rule("1/s", 3))));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    let now = worker.host().monotonic_ns;
    for back in [1, SECOND_NS, 1_800 * SECOND_NS, now] {
        // The first worker has a deny cache, the second has not.
        for worker in [&mut worker, &mut other] {
            worker.host_mut().monotonic_ns = now - back;
            assert_eq!(worker.allowed_of(5, &client(1)), 0, "{back} ns back");
        }
    }
    // It takes none either: a second later there is another token, wherever the clock is. How much of the way back
    // to where it was is time cannot be known, and gives none.
    for (at, allowed) in [(SECOND_NS, 1), (now + 2 * SECOND_NS, 0), (now + 3 * SECOND_NS, 1)] {
        worker.host_mut().monotonic_ns = at;
        assert_eq!(worker.allowed_of(5, &client(1)), allowed, "{at}");
    }
}

// I8
#[test]
fn a_wall_clock_that_jumps_changes_nothing_but_the_reset_as_unix_time() {
    let epoch = with(rule("1/s", 3), "response", json!({"reset": "epoch"}));
    let mut worker = Worker::configured(&shared(), &plugin(&epoch));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    let unix_s = worker.host().unix_ns / SECOND_NS;
    let before = worker.request(&client(1)).answer().clone();
    assert_eq!(before.header("x-ratelimit-reset"), (unix_s + 1).to_string());
    for wall_s in [0, unix_s - 86_400, unix_s + 86_400] {
        worker.host_mut().unix_ns = wall_s * SECOND_NS;
        let mut after = worker.request(&client(1)).answer().clone();
        assert_eq!(after.header("x-ratelimit-reset"), (wall_s + 1).to_string());
        for (_, value) in after.headers.iter_mut().filter(|(name, _)| name == "x-ratelimit-reset") {
            *value = before.header("x-ratelimit-reset").to_owned();
        }
        assert_eq!(after, before);
    }
}

#[test]
fn a_host_without_a_monotonic_clock_limits_by_the_wall_clock_held_from_going_back() {
    let script = Script::always("clock_time_get", Answer::Status(52));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &plugin(&rule("1/s", 3)));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    let now = worker.host().unix_ns;
    worker.host_mut().unix_ns = now - 3_600 * SECOND_NS;
    assert_eq!(worker.allowed_of(5, &client(1)), 0);
    worker.host_mut().unix_ns = now + SECOND_NS;
    assert_eq!(worker.allowed_of(5, &client(1)), 1);
}

#[test]
fn a_host_without_any_clock_still_decides() {
    let broken = |function: &str, _| match function {
        "clock_time_get" => Answer::Status(52),
        "proxy_get_current_time_nanoseconds" => Answer::Status(10),
        _ => Answer::Work,
    };
    let mut worker =
        Worker::configured_on(Host::new(&shared()).with(Script::of(broken)), &plugin(&rule("1/s", 3)));
    assert_eq!(worker.allowed_of(5, &client(1)), 3, "time stands still");
}
