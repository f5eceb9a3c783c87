//! Strict rules in the real module: a request is held for one exchange, and then decided.

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, Settled};
use weir_tests::mock_host::{Answer, Begun, CallAnswer, Host, Script, Waiting, Worker};

use crate::harness::{client, exchange, rule, shared, synced, with};

fn strict(on_sync_loss: &str) -> Value {
    let rule = with(rule("5/m", 5), "strict", json!(true));
    synced(&with(rule, "on_sync_loss", json!(on_sync_loss)))
}

fn told(waiting: &Waiting) -> Report {
    Report::decode(&waiting.call.body).expect("weir-sync could not read this report")
}

fn leased(report: &Report, charged: u64) -> CallAnswer {
    let lease = Allowance::Leased(Leased::of(charged, 2_000));
    let grants = vec![lease; report.keys.len()];
    let (sequence, rules, pushed) = (report.sequence, vec![], vec![]);
    CallAnswer::new(
        "200",
        Reply { sequence, pops: 1, settled: Settled::All, grants, rules, pushed, ..Reply::default() }
            .encode(),
    )
}

// I1
#[test]
fn a_request_waits_for_its_token_and_goes_on_once() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    let waiting = worker.held(&client(1));
    let report = told(&waiting);
    assert_eq!((report.keys.len(), report.keys[0].ahead), (1, 1));
    assert_eq!((waiting.call.upstream.as_str(), waiting.call.timeout_ms), ("weir-sync", 700));
    assert!(worker.answer_waiting(&waiting, leased(&report, 1)).allowed());
    assert_eq!(worker.counted("weir.strict.paused"), 1);
    assert_eq!(worker.host().metric("weir.rule.per-address.allowed"), Some(1));
    // Answers are quick, so the next draw is given half of the time, and may be sent again.
    assert_eq!(worker.held(&client(2)).call.timeout_ms, 350);
}

#[test]
fn without_a_token_it_is_limited_and_the_next_one_does_not_wait() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    let waiting = worker.held(&client(1));
    let served = worker.answer_waiting(&waiting, leased(&told(&waiting), 0));
    assert_eq!((served.answer().status, served.answer().header("retry-after")), (429, "1"));
    assert_eq!(worker.request(&client(1)).answer().status, 429);
    assert!(matches!(worker.begin_request(&client(2)), Begun::Waiting(_)));
}

#[test]
fn a_client_is_told_what_weir_sync_says_of_the_next_token() {
    let shared = shared();
    let mut workers = [(); 2].map(|()| Worker::configured(&shared, &strict("deny")));
    let waiting = workers[0].held(&client(1));
    let lease = Allowance::Leased(Leased { wait_ms: 9_500, ..Leased::of(0, 2_000) });
    let (sequence, grants) = (told(&waiting).sequence, vec![lease]);
    let reply = Reply { sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() };
    let served = workers[0].answer_waiting(&waiting, CallAnswer::new("200", reply.encode()));
    assert_eq!((served.answer().status, served.answer().header("retry-after")), (429, "10"));
    for worker in &mut workers {
        worker.advance_ms(3_000);
        let refused = worker.request(&client(1));
        let header = |name| refused.answer().header(name);
        assert_eq!((refused.answer().status, header("retry-after")), (429, "7"), "{refused:?}");
        assert_eq!((header("ratelimit"), header("x-ratelimit-reset")), (r#""per-address";r=0;t=7"#, "7"));
    }
}

// I1
#[test]
fn unanswered_it_fails_as_its_rule_says() {
    for (policy, status) in [("deny", Some(503)), ("local", None), ("share", None)] {
        let answers = [
            CallAnswer::timeout(),
            CallAnswer::new("503", vec![]),
            CallAnswer::new("200", vec![9; 40]),
            CallAnswer { claimed_size: Some(u32::MAX), ..CallAnswer::new("200", vec![2]) },
        ];
        for answer in answers {
            let mut worker = Worker::configured(&shared(), &strict(policy));
            let waiting = worker.held(&client(1));
            let again = worker.answer_and_hold(&waiting, answer.clone());
            let served = worker.answer_waiting(&again, answer);
            match status {
                Some(status) => {
                    assert_eq!(served.answer().status, status, "never 429");
                    assert_eq!(served.answer().header("retry-after"), "1");
                    assert_eq!(worker.counted("weir.rule.per-address.denied"), 1);
                }
                None => assert!(served.allowed(), "{policy}"),
            }
        }
    }
}

/// As where one of two weir-syncs is gone: the next call goes to the other.
#[test]
fn a_call_that_fails_is_made_once_more() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    let first = worker.held(&client(1));
    worker.advance_ms(10);
    let again = worker.answer_and_hold(&first, CallAnswer::new("503", vec![]));
    assert_eq!((told(&again).keys, again.call.timeout_ms), (told(&first).keys, 690));
    assert!(worker.answer_waiting(&again, leased(&told(&again), 1)).allowed());
    assert_eq!(worker.counted("weir.sync.failed"), 1);
}

/// As where the cluster has no healthy weir-sync.
#[test]
fn a_call_that_the_host_could_not_make_is_not_repeated_at_once() {
    let script = Script::always("proxy_http_call", Answer::Status(10));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &strict("deny"));
    let before = worker.host().called("proxy_http_call");
    assert_eq!(worker.request(&client(1)).answer().status, 503);
    assert_eq!(worker.host().called("proxy_http_call") - before, 1);
}

// I1
#[test]
fn a_client_that_leaves_leaves_nothing_behind() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    for _ in 0..2_000 {
        let waiting = worker.held(&client(1));
        worker.abandon(&waiting);
    }
    // What it would have spent is not asked for any more.
    let waiting = worker.held(&client(1));
    assert_eq!(told(&waiting).keys[0].ahead, 1);
}

// I1, I2
#[test]
fn requests_that_wait_are_bounded_and_any_beyond_are_decided_at_once() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    let waiting: Vec<_> = (0..1_000).map(|_| worker.held(&client(1))).collect();
    assert_eq!(worker.request(&client(1)).answer().status, 503);
    assert!(worker.answer_waiting(&waiting[0], leased(&told(&waiting[0]), 1)).allowed());
    assert!(matches!(worker.begin_request(&client(1)), Begun::Waiting(_)));
}

// I1
#[test]
fn a_worker_that_has_lost_weir_sync_holds_nothing_up() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    exchange(&mut worker, |report| leased(report, 0));
    worker.advance_ms(4_999);
    let waiting = worker.held(&client(1));
    let again = worker.answer_and_hold(&waiting, CallAnswer::timeout());
    assert_eq!(worker.answer_waiting(&again, CallAnswer::timeout()).answer().status, 503);
    assert!(matches!(worker.begin_request(&client(1)), Begun::Waiting(_)));
    worker.advance_ms(1);
    assert_eq!(worker.request(&client(1)).answer().status, 503);
    worker.host_mut().http_calls.clear();
    assert_eq!(worker.counted("weir.sync.state"), 2);
}

#[test]
fn another_workers_word_is_heard_too() {
    let shared = shared();
    let mut first = Worker::configured(&shared, &strict("deny"));
    let mut second = Worker::configured(&shared, &strict("deny"));
    exchange(&mut first, |report| leased(report, 0));
    assert_eq!(second.counted("weir.sync.state"), 0);
    for worker in [&mut first, &mut second] {
        worker.advance_ms(2_000);
    }
    assert_eq!(second.counted("weir.sync.state"), 1);
}
