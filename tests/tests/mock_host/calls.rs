//! HTTP calls that a host counts or answers as no host should, and what is left where a VM dies all the same.
//!
//! Tests of I1.

use weir_tests::mock_host::{Answer, CallAnswer, Host, Script, Worker};

use crate::harness::{client, exchange, rule, shared, synced};

#[test]
fn a_later_http_call_may_be_unimplemented() {
    let script = Script::only("proxy_http_call", 2, Answer::Status(12));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 2)));
    worker.tick();
    assert_eq!(worker.host().logged("made no call to cluster \"weir-sync\": status 12"), 1);
    worker.advance_ms(10_000);
    exchange(&mut worker, |_| CallAnswer::timeout());
}

#[test]
fn two_calls_may_have_one_number() {
    let script = Script::always("proxy_http_call", Answer::Number(7));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 2)));
    for _ in 0..3 {
        worker.tick();
        worker.advance_ms(10_000);
    }
    worker.answer_call(7, CallAnswer::timeout());
    assert_eq!(worker.allowed_of(3, &client(1)), 2);
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 2)));
    worker.answer_call(99, CallAnswer::timeout());
    exchange(&mut worker, |_| CallAnswer::timeout());
    worker.answer_call(1, CallAnswer::timeout());
    assert_eq!(worker.allowed_of(3, &client(1)), 2);
}

#[test]
fn a_trap_shows_the_end_of_the_log() {
    let trap = format!("{:?}", Worker::configured(&shared(), &synced(&rule("1/h", 2))).exhaust());
    assert!(trap.starts_with("proxy_on_memory_allocate trapped: "), "{trap}");
    assert!(trap.contains("[5] weir: panicked"), "{trap}");
}

#[test]
fn a_successor_of_a_trapped_worker_serves_on() {
    let (shared, plugin) = (shared(), synced(&rule("1/h", 3)));
    let mut worker = Worker::configured(&shared, &plugin);
    assert_eq!(worker.allowed_of(2, &client(1)), 2);
    let _ = worker.exhaust();
    let mut successor = Worker::configured(&shared, &plugin);
    assert_eq!(successor.allowed_of(5, &client(1)), 1, "the buckets outlive the VM");
    exchange(&mut successor, |_| CallAnswer::timeout());
}
