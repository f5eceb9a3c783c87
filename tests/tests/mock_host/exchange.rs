//! The exchange with weir-sync, and everything it may answer.

use std::cell::RefCell;
use std::rc::Rc;

use weir_protocol::messages::{CONTENT_TYPE, Message, PushedGrant, Reply, Report, Settled};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;
use weir_tests::mock_host::{Answer, CallAnswer, Host, Script, Worker, grant, reply};

use crate::harness::{client, exchange, plugin, report, rule, shared, synced};

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
fn the_first_tick_greets() {
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

#[test]
fn without_a_token_there_is_no_authorization() {
    let mut plugin = synced(&rule("1/h", 3));
    plugin["sync"].as_object_mut().unwrap().remove("token");
    let mut worker = Worker::configured(&shared(), &plugin);
    worker.tick();
    assert!(worker.host().http_calls[0].headers.iter().all(|(name, _)| name != "authorization"));
}

#[test]
fn a_worker_without_news_greets_once_an_interval() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 3)));
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 1, Vec::new())));
    worker.advance_ms(200);
    worker.tick();
    assert!(worker.host().http_calls.is_empty());
    worker.advance_ms(50);
    worker.tick();
    assert_eq!(report(&worker).1.sequence, 2);
}

#[test]
fn what_rules_decided_is_said_once_a_second_as_the_hosts_metrics_have_it() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 3)));
    let says = |worker: &mut Worker| {
        let status =
            exchange(worker, |report| CallAnswer::new("200", reply(report.sequence, 1, vec![]))).status;
        status
            .map(|status| status.rules.into_iter().map(|rule| (rule.name, rule.decided)).collect::<Vec<_>>())
    };
    let name = rule("1/h", 3)["name"].as_str().unwrap().to_owned();
    assert_eq!(says(&mut worker), Some(vec![(name.clone(), [0; 4])]));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    worker.advance_ms(250);
    assert_eq!(says(&mut worker), None, "in the same second");
    worker.advance_ms(1_000);
    assert_eq!(says(&mut worker), Some(vec![(name, [3, 2, 0, 0])]));
}

#[test]
fn of_several_workers_one_greets() {
    let shared = shared();
    let plugin = synced(&rule("1/h", 3));
    let (mut first, mut second) =
        (Worker::configured(&shared, &plugin), Worker::configured(&shared, &plugin));
    first.tick();
    second.tick();
    assert_eq!((first.host().http_calls.len(), second.host().http_calls.len()), (1, 0));
}

#[test]
fn a_grant_is_held_for_a_client_that_has_not_come_yet() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 3)));
    let nothing = grant(0, -1, 2_000);
    exchange(&mut worker, |report| {
        let value = KeyValue::of_address("192.0.2.1".parse().unwrap(), Prefixes::default());
        let value = value.as_bytes().to_vec();
        let quota = Quota::new(Rate::new(1, Period::Hour).unwrap(), 3).unwrap();
        let pushed = vec![PushedGrant { rule: 0, value, quota, grant: nothing }];
        let rules = vec!["per-address".into()];
        let reply = Reply {
            sequence: report.sequence,
            pops: 2,
            settled: Settled::All,
            grants: Vec::new(),
            rules,
            pushed,
            ..Reply::default()
        };
        CallAnswer::new("200", reply.encode())
    });
    assert!(!worker.request(&client(1)).allowed());
    assert!(worker.request(&client(2)).allowed());
}

#[test]
fn a_report_says_what_was_admitted_and_asked_for() {
    let mut worker = with_a_watched_client();
    worker.tick();
    let (_, report) = report(&worker);
    let [key] = report.keys.as_slice() else { panic!("{report:?}") };
    assert_eq!((key.admitted, key.unconfirmed), (3, 3));
    assert_eq!(key.asked, 5);
    assert_eq!(report.rules[usize::from(key.rule)].name, "per-address");
    assert_eq!(report.rules[usize::from(key.rule)].quota.burst(), 3);
}

// I7
#[test]
fn what_a_deleted_plugin_had_not_reported_the_next_one_reports() {
    let mut worker = with_a_watched_client();
    assert!(worker.update(synced(&rule("1/h", 3)).to_string()));
    worker.tick();
    let (_, report) = report(&worker);
    let [key] = report.keys.as_slice() else { panic!("{report:?}") };
    assert_eq!((key.admitted, key.unconfirmed), (3, 3), "though its client does not come back");
}

// I7
#[test]
fn what_several_left_one_worker_reports() {
    let shared = shared();
    let workers = [1, 2, 3, 4].map(|_| Worker::configured(&shared, &synced(&rule("1/h", 3))));
    let [mut first, second, mut third, fourth] = workers;
    let (second, fourth) = (Rc::new(RefCell::new(second)), Rc::new(RefCell::new(fourth)));
    assert_eq!(first.allowed_of(4, &client(1)), 3);
    assert_eq!(second.borrow_mut().allowed_of(4, &client(2)), 3);
    // Another ends between this one's read and write, and another takes what they left.
    let ends = second.clone();
    first.host_mut().before_write = Some(Box::new(move || {
        assert!(ends.borrow_mut().update(plugin(&rule("1/h", 3)).to_string()));
    }));
    assert!(first.update(plugin(&rule("1/h", 3)).to_string()));
    assert!(shared.size_of(b"weir.parted5").is_some_and(|size| size > 0));
    let takes = fourth.clone();
    third.host_mut().before_write = Some(Box::new(move || takes.borrow_mut().tick()));
    third.tick();
    let (_, said) = report(&fourth.borrow());
    assert_eq!(said.keys.iter().map(|key| key.admitted).collect::<Vec<_>>(), [3, 3]);
    assert!(third.host().http_calls.is_empty(), "it has nothing to say, and another greeted");
}

// I7
#[test]
fn what_nobody_can_have_left_is_passed_over() {
    let shared = shared();
    let mut worker = Worker::configured(&shared, &synced(&rule("1/h", 3)));
    for nonsense in [&[0xff; 40][..], &[3, b'a'], &[1, b'a', 200], &vec![0; 1 << 20]] {
        assert!(shared.put(b"weir.parted5", nonsense));
        worker.advance_ms(250);
        let said =
            exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 1, Vec::new())));
        assert!(said.keys.is_empty());
        assert_eq!(shared.size_of(b"weir.parted5"), Some(0), "taken");
    }
    assert_eq!(worker.allowed_of(4, &client(1)), 3);
    assert!(shared.put(b"weir.parted5", &vec![0xff; 1 << 20]));
    assert!(worker.update(synced(&rule("1/h", 3)).to_string()));
    assert!(shared.size_of(b"weir.parted5").is_some_and(|size| size < 100), "nonsense makes room");
    worker.tick();
    assert_eq!(report(&worker).1.keys.len(), 1);
}

#[test]
fn a_grant_of_nothing_limits_and_its_lease_ends() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 100)));
    // Each of a hundred POPs may let through one in an hour: the first request makes the key watched.
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 101, Vec::new())));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    let told = exchange(&mut worker, |report| {
        let grants = report.keys.iter().map(|_| grant(0, 90, 5_000)).collect();
        CallAnswer::new("200", reply(report.sequence, 101, grants))
    });
    assert_eq!(told.keys[0].admitted, 3);
    assert_eq!(worker.allowed_of(4, &client(1)), 0);
    // Its bucket has tokens: if its client stops, the budget lets it through again after 1.75 s.
    assert_eq!(worker.request(&client(1)).answer().header("retry-after"), "2");
    assert_eq!(worker.allowed_of(1, &client(2)), 1, "another key has no such grant");
    assert_eq!(worker.counted("weir.sync.answered"), 2);
    worker.advance_ms(5_000);
    assert_eq!(worker.allowed_of(1, &client(1)), 1);
}

#[test]
fn a_level_below_the_bucket_lowers_it() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 100)));
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 101, Vec::new())));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    exchange(&mut worker, |report| granted(report, 1_000, 4));
    assert_eq!(worker.allowed_of(20, &client(1)), 4);
}

#[test]
fn another_workers_grant_counts_here_too() {
    let shared = shared();
    let mut workers = [1, 2].map(|_| Worker::configured(&shared, &synced(&rule("1/h", 100))));
    exchange(&mut workers[0], |report| CallAnswer::new("200", reply(report.sequence, 101, Vec::new())));
    assert_eq!(workers[0].allowed_of(3, &client(1)), 3);
    exchange(&mut workers[0], |report| granted(report, 0, 50));
    assert_eq!(workers[1].allowed_of(3, &client(1)), 0);
}

// I1, I9
#[test]
fn an_answer_that_is_none_makes_the_worker_say_the_same_again() {
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
        let said = exchange(&mut worker, |_| answer.clone());
        assert_eq!((said.keys.len(), said.sequence), (1, 2));
        worker.tick();
        let (token, again) = report(&worker);
        assert_eq!(again.keys, said.keys, "{answer:?}");
        assert_eq!(again.sequence, 3);
        assert_eq!(worker.counted("weir.sync.failed"), 1, "{answer:?}");
        assert_eq!(worker.host().logged("requests are decided locally"), 1, "{answer:?}");
        worker.answer_call(token, granted(&again, 1_000, 1));
        assert_eq!(worker.host().logged("weir-sync answers again"), 1, "{answer:?}");
    }
}

#[test]
fn a_reply_without_grants_confirms_nothing_and_is_no_failure() {
    let mut worker = with_a_watched_client();
    let said = exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 1, Vec::new())));
    worker.tick();
    assert_eq!(report(&worker).1.keys, said.keys);
    assert_eq!(worker.counted("weir.sync.failed"), 0);
}

#[test]
fn a_granted_report_is_confirmed_and_not_said_again() {
    let mut worker = with_a_watched_client();
    exchange(&mut worker, |report| granted(report, 1_000, 0));
    worker.tick();
    assert!(worker.host().http_calls.is_empty());
    assert_eq!(worker.allowed_of(1, &client(1)), 0);
    worker.tick();
    let (_, report) = report(&worker);
    assert_eq!((report.keys[0].admitted, report.keys[0].unconfirmed), (3, 0));
}

#[test]
fn reports_that_are_not_answered_are_bounded() {
    let mut worker = with_a_watched_client();
    for _ in 0..9 {
        worker.tick();
        worker.advance_ms(250);
    }
    assert_eq!(worker.host().http_calls.len(), 4);
}

#[test]
fn a_late_reply_to_a_report_that_was_given_up_changes_nothing() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 100)));
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 101, Vec::new())));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    worker.tick();
    let (first_token, first) = report(&worker);
    worker.advance_ms(10_000);
    worker.tick();
    let second = worker.host().http_calls[1].clone();
    worker.answer_call(first_token, granted(&first, 0, 0));
    assert_eq!(worker.allowed_of(3, &client(1)), 3, "the late grant is not applied");
    assert_eq!(report(&worker).0, second.token, "the second is still under way");
    let unknown = CallAnswer::new("200", reply(77, 1, vec![grant(0, 0, 60_000)]));
    worker.answer_call(second.token, unknown);
    assert_eq!(worker.allowed_of(3, &client(1)), 3, "nor one for a report that never was");
    worker.advance_ms(10_000);
    exchange(&mut worker, |report| granted(report, 0, 0));
    assert_eq!(worker.allowed_of(3, &client(1)), 0);
}

#[test]
fn a_late_failure_of_a_report_that_was_given_up_leaves_its_successor_alone() {
    let mut worker = with_a_watched_client();
    worker.tick();
    let (first_token, _) = report(&worker);
    worker.advance_ms(10_000);
    worker.tick();
    worker.answer_call(first_token, CallAnswer::timeout());
    let (second_token, second) = report(&worker);
    worker.answer_call(second_token, granted(&second, 1_000, 0));
    worker.tick();
    assert!(worker.host().http_calls.is_empty(), "the second report was answered with grants");
}

#[test]
fn a_host_without_http_calls_is_on_its_own() {
    let script = Script::always("proxy_http_call", Answer::Status(12));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &synced(&rule("1/h", 3)));
    assert_eq!(worker.host().logged("the host makes no HTTP calls"), 1);
    assert_eq!(worker.host().tick_period_ms, Some(1_000));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    worker.tick();
    assert_eq!(worker.host().called("proxy_http_call"), 1, "it was asked once");
}

#[test]
fn a_cluster_that_is_not_there_is_logged_once() {
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
