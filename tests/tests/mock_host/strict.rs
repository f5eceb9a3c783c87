//! Strict rules in the real module: a request is held for one exchange, and then decided.

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, Settled};
use weir_tests::mock_host::{Begun, CallAnswer, Waiting, Worker};

use crate::harness::{client, rule, shared, synced, with};

fn strict(on_sync_loss: &str) -> Value {
    let rule = with(rule("5/m", 5), "strict", json!(true));
    synced(&with(rule, "on_sync_loss", json!(on_sync_loss)))
}

fn report_of(waiting: &Waiting) -> Report {
    Report::decode(&waiting.call.body).expect("weir-sync could not read this report")
}

fn leased(report: &Report, charged: u64) -> CallAnswer {
    let lease = Allowance::Leased(Leased::of(charged, 2_000));
    let grants = vec![lease; report.keys.len()];
    let (sequence, rules, pushed) = (report.sequence, vec![], vec![]);
    CallAnswer::new(
        "200",
        Reply { sequence, pops: 1, settled: Settled::All, grants, rules, pushed, ..Reply::default() }.encode(),
    )
}

// I1
#[test]
fn a_waiting_request_resumes_once() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    let waiting = worker.held(&client(1));
    let report = report_of(&waiting);
    assert_eq!((report.keys.len(), report.keys[0].ahead), (1, 1));
    assert_eq!((waiting.call.upstream.as_str(), waiting.call.timeout_ms), ("weir-sync", 700));
    assert!(worker.answer_waiting(&waiting, leased(&report, 1)).allowed());
    assert_eq!(worker.counted("weir.strict.paused"), 1);
    assert_eq!(worker.host().metric("weir.rule.per-address.allowed"), Some(1));
    // Answers are quick, so the next acquire is given half of the time, and may be sent again.
    assert_eq!(worker.held(&client(2)).call.timeout_ms, 350);
}

// I1
#[test]
fn without_an_answer_it_fails_by_on_sync_loss() {
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

// I1, I2
#[test]
fn waiting_requests_are_bounded() {
    let mut worker = Worker::configured(&shared(), &strict("deny"));
    let waiting: Vec<_> = (0..1_000).map(|_| worker.held(&client(1))).collect();
    assert_eq!(worker.request(&client(1)).answer().status, 503);
    assert!(worker.answer_waiting(&waiting[0], leased(&report_of(&waiting[0]), 1)).allowed());
    assert!(matches!(worker.begin_request(&client(1)), Begun::Waiting(_)));
}
