//! In whatever order contexts begin, have their headers, and end.

use serde_json::{Value, json};
use weir_tests::mock_host::{Callback, Created, Passing, Worker};

use crate::harness::{client, plugin, rule, shared};

/// A rule that lets a client have one request in flight.
fn one_at_a_time() -> Value {
    plugin(&json!({"name": "one", "key": ["client_address"], "algorithm": "concurrency", "limit": 1}))
}

#[test]
fn requests_that_begin_together_are_each_decided() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 3)));
    let [first, second, third, fourth] = [(); 4].map(|()| worker.created());
    let passes = [third, first, fourth, second].map(|request| worker.passes(request, &client(1)).is_some());
    assert_eq!(passes, [true, true, true, false]);
}

#[test]
fn a_request_that_ends_before_its_headers_consumes_nothing() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 2)));
    let [first, second] = [(); 2].map(|()| worker.created());
    worker.given_up(second);
    worker.given_up(first);
    for ended in [first, second] {
        assert!(worker.passes(ended, &client(1)).is_some(), "nobody's");
    }
    assert_eq!(worker.allowed_of(5, &client(1)), 2);
}

#[test]
fn a_reused_number_is_a_new_request() {
    let mut worker = Worker::configured(&shared(), &one_at_a_time());
    let request = worker.created();
    assert!(worker.passes(request, &client(1)).is_some());
    assert!(!worker.request(&client(1)).allowed());
    let again = worker.created_again(request);
    assert!(worker.passes(again, &client(1)).is_some(), "what the first held is released");
    assert!(!worker.request(&client(1)).allowed());
}

/// A request that is decided while the host makes these calls; the worker, and what became of it.
fn decided_meanwhile(callbacks: impl FnOnce(&mut Worker, Created) -> Vec<Callback>) -> (Worker, Option<Passing>) {
    let mut worker = Worker::configured(&shared(), &one_at_a_time());
    let request = worker.created();
    let callbacks = callbacks(&mut worker, request);
    worker.host_mut().calls_back = Some(("proxy_set_shared_data".into(), callbacks));
    let passing = worker.passes(request, &client(1));
    assert_eq!(worker.host().calls_back, None, "they were made");
    (worker, passing)
}

#[test]
fn a_request_that_ends_while_undecided_holds_nothing() {
    let (mut worker, passing) = decided_meanwhile(|_, request| vec![Callback::Ends(request)]);
    assert!(passing.is_some());
    assert!(worker.request(&client(1)).allowed());
}

#[test]
fn other_requests_begin_while_one_is_decided() {
    let mut other = None;
    let (mut worker, passing) = decided_meanwhile(|worker, _| vec![Callback::Begins(*other.insert(worker.to_come()))]);
    let other = other.unwrap();
    assert!(worker.passes(other, &client(1)).is_none(), "the first is in flight");
    worker.given_up(other);
    worker.respond(passing.unwrap());
    assert!(worker.request(&client(1)).allowed(), "and then it is not any more");
}

#[test]
fn a_number_reused_while_undecided_is_a_new_request() {
    let mut number = None;
    let (mut worker, _) = decided_meanwhile(|_, request| {
        number = Some(request);
        vec![Callback::Ends(request), Callback::Begins(request)]
    });
    assert!(worker.passes(number.unwrap(), &client(1)).is_some(), "what the first held is released");
    assert!(!worker.request(&client(1)).allowed(), "this one is counted");
}
