//! The exchange with weir-sync, and everything it may answer.

use weir_protocol::messages::{CONTENT_TYPE, Report};
use weir_tests::mock_host::{Answer, CallAnswer, Host, Script, Worker, grant, reply};

use crate::harness::{client, exchange, report, rule, shared, synced};

/// A worker whose client 1 is watched, has been admitted 3 times, and was limited 2 times.
fn with_a_watched_client() -> Worker {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 3)));
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 1, Vec::new())));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    worker
}

fn granted(report: &Report, ratio: u64, level: i64) -> CallAnswer {
    let grants = report.keys.iter().map(|_| grant(ratio, level, 60_000)).collect();
    CallAnswer::new("200", reply(report.sequence, 1, grants))
}

#[test]
fn the_first_tick_sends_a_report() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 3)));
    assert_eq!(worker.host().tick_period_ms, Some(250));
    assert!(worker.host().http_calls.is_empty());
    worker.tick();
    let (_, report) = report(&worker);
    assert_eq!((report.pop.as_str(), report.sequence, report.keys.len()), ("fra1", 1, 0));
    let call = &worker.host().http_calls[0];
    assert_eq!((call.upstream.as_str(), call.timeout_ms), ("weir-sync", 700));
    let headers = [
        (":method", "POST"),
        (":path", "/v1/report"),
        (":authority", "weir-sync"),
        ("content-type", CONTENT_TYPE),
        ("authorization", "Bearer secret"),
    ];
    assert_eq!(call.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

// I1, I9
#[test]
fn an_unreadable_reply_repeats_the_report() {
    let oversize = CallAnswer { claimed_size: Some(256 * 1024 + 1), ..CallAnswer::new("200", vec![1; 64]) };
    let larger_than_claimed = CallAnswer { claimed_size: Some(1), ..CallAnswer::new("200", vec![1; 64]) };
    let lying = CallAnswer { claimed_size: Some(u32::MAX), ..CallAnswer::new("200", vec![1; 64]) };
    let answers = [
        CallAnswer::timeout(),
        CallAnswer::new("503", Vec::new()),
        CallAnswer::new("", Vec::new()),
        CallAnswer { headers: vec![("x".into(), b"y".to_vec())], ..CallAnswer::default() },
        CallAnswer { headers: vec![(":status".into(), vec![0xff; 9])], ..CallAnswer::default() },
        CallAnswer::new("200", Vec::new()),
        CallAnswer::new("200", vec![1]),
        CallAnswer::new("200", vec![3, 1, 1, 0]),
        CallAnswer::new("200", vec![0xff; 4_096]),
        CallAnswer::new("200", reply(2, 0, vec![grant(0, 0, 1)])),
        CallAnswer::new("200", reply(2, 1, vec![grant(0, 0, 60_000); 2])),
        oversize,
        larger_than_claimed,
        lying,
    ];
    for answer in answers {
        let mut worker = with_a_watched_client();
        let sent = exchange(&mut worker, |_| answer.clone());
        assert_eq!((sent.keys.len(), sent.sequence), (1, 2));
        worker.tick();
        let (token, again) = report(&worker);
        assert_eq!(again.keys, sent.keys, "{answer:?}");
        assert_eq!(again.sequence, 3);
        assert_eq!(worker.counted("weir.sync.failed"), 1, "{answer:?}");
        assert_eq!(worker.host().logged("requests are decided locally"), 1, "{answer:?}");
        worker.answer_call(token, granted(&again, 1_000, 1));
        assert_eq!(worker.host().logged("weir-sync answers again"), 1, "{answer:?}");
    }
}

#[test]
fn a_host_without_http_calls_limits_locally() {
    let script = Script::always("proxy_http_call", Answer::Status(12));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 3)));
    assert_eq!(worker.host().logged("the host makes no HTTP calls"), 1);
    assert_eq!(worker.host().tick_period_ms, Some(1_000));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    worker.tick();
    assert_eq!(worker.host().called("proxy_http_call"), 1, "it was asked once");
}

#[test]
fn a_missing_cluster_is_logged_once() {
    let script = Script::of(|function, nth| match (function, nth) {
        ("proxy_http_call", 2..) => Answer::Status(2),
        _ => Answer::Work,
    });
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 3)));
    for _ in 0..5 {
        worker.advance_ms(2_000);
        worker.tick();
    }
    assert_eq!(worker.host().called("proxy_http_call"), 6, "it is tried again");
    assert_eq!(worker.host().logged("made no call to cluster \"weir-sync\""), 1);
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
}
