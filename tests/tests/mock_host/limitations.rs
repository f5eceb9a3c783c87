//! What the SDK's own calls do not survive. Each is a known gap in "never traps", pinned here so that
//! closing it shows: a host that answers so turns these tests red once the filter no longer traps.

use weir_tests::mock_host::{Answer, CallAnswer, Host, Script, Worker};

use crate::harness::{exchange, plugin, rule, shared, synced};
use crate::sweep::{STATUSES, everything};

/// Statuses of `proxy_http_call` that the SDK knows (2, 10), or that the filter asks for beforehand (12).
const CALL_STATUSES_SURVIVED: [u32; 3] = [2, 10, 12];

/// Whether a host that always answers `function` with `status` is known to cost the worker its VM.
pub(crate) fn is_known(function: &str, status: u32) -> bool {
    match function {
        "proxy_http_call" => !CALL_STATUSES_SURVIVED.contains(&status),
        "proxy_set_effective_context" => status != 0,
        _ => false,
    }
}

/// The same for a single answer.
pub(crate) fn is_known_answer(function: &str, answer: &Answer) -> bool {
    match answer {
        Answer::Status(status) => is_known(function, *status),
        // The same token for two calls.
        Answer::Nothing => function == "proxy_http_call",
        _ => false,
    }
}

#[test]
fn http_calls_survive_the_statuses_that_hosts_give() {
    for status in CALL_STATUSES_SURVIVED {
        let script = Script::always("proxy_http_call", Answer::Status(status));
        assert!(everything(Host::new(&shared()).with(script)).is_ok(), "{status}");
    }
}

#[test]
fn the_sdk_traps_on_every_other_status_of_an_http_call_and_of_the_effective_context() {
    for function in ["proxy_http_call", "proxy_set_effective_context"] {
        for status in STATUSES.into_iter().filter(|status| is_known(function, *status)) {
            let script = Script::always(function, Answer::Status(status));
            let survived = everything(Host::new(&shared()).with(script)).is_ok();
            assert!(
                !survived,
                "{function} answers {status} and nothing traps any more: take it off the list"
            );
        }
    }
}

#[test]
fn the_sdk_traps_when_only_a_later_http_call_is_unimplemented() {
    let script = Script::only("proxy_http_call", 2, Answer::Status(12));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 2)));
    assert!(worker.try_tick().is_err(), "nothing traps any more: take this off the list");
}

#[test]
fn the_sdk_traps_on_a_token_it_has_seen_and_on_one_it_has_not() {
    let script = Script::always("proxy_http_call", Answer::Number(7));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 2)));
    worker.tick();
    worker.advance_ms(10_000);
    assert!(worker.try_tick().is_err(), "nothing traps any more: take this off the list");

    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 2)));
    let strange = worker.try_answer_call(99, CallAnswer::timeout());
    assert!(strange.is_err(), "nothing traps any more: take this off the list");
}

#[test]
fn a_trap_shows_the_end_of_the_log() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 2)));
    let trap = format!("{:?}", worker.try_answer_call(99, CallAnswer::timeout()).unwrap_err());
    assert!(trap.starts_with("proxy_on_http_call_response trapped: "), "{trap}");
    assert!(trap.contains("[5] weir: panicked"), "{trap}");
}

#[test]
fn a_successor_of_a_trapped_worker_serves_on() {
    let (shared, plugin) = (shared(), synced(&rule("1/h", 3)));
    let mut worker = Worker::configured(&shared, &plugin);
    assert_eq!(worker.allowed_of(2, &crate::harness::client(1)), 2);
    assert!(worker.try_answer_call(99, CallAnswer::timeout()).is_err());
    let mut successor = Worker::configured(&shared, &plugin);
    assert_eq!(successor.allowed_of(5, &crate::harness::client(1)), 1, "the buckets outlive the VM");
    exchange(&mut successor, |_| CallAnswer::timeout());
}
