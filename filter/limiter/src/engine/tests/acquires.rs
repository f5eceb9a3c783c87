//! Requests that wait for an acquire.

use super::*;
use weir_protocol::messages::{Leased, Replies};

/// Tokens of a window that ends while the answer is under way, or has ended by then, are asked for again.
#[test]
fn an_answer_that_arrives_expired_is_acquired_again() {
    let none = Leased { lease_ms: 900, wait_ms: 900, ..Leased::NONE };
    for (first, ms, is_again) in [
        (Leased::of(1, 3), 3, true),
        (Leased { wait_ms: 1, ..Leased::NONE }, 1, true),
        (Leased { lease_ms: 2, wait_ms: 3, ..none }, 3, true),
        (Leased::NONE, 1, true),
        (none, 5, false),
        (Leased::of(1, 3), 1_000, false),
    ] {
        let (mut host, mut open) = (host(), OpenRequest::new(5));
        let rule = r#""rate": "5/s", "algorithm": "fixed_window", "strict": true"#;
        let (mut engine, _) = configured(rule, true, &mut host);
        let call = waiting(&mut engine, &mut open, &mut host);
        let answer = |call: &SyncCall, leased| Ok(reply(call, &Allowance::Leased(leased), 0));
        let now = T0 + ms * 1_000_000;
        let decided = answered(&mut engine, &mut open, &call, answer(&call, first), &mut host, now);
        let Err(again) = decided else {
            assert_eq!(decided.ok().as_deref(), Some("429"), "{first:?}");
            assert!(!is_again, "{first:?}");
            continue;
        };
        assert!(is_again, "{first:?}");
        assert!(u64::from(again.timeout_ms) <= 1_000 - ms, "within the same time");
        let [before, after] = [&call, &again].map(|call| Report::decode(&call.body).unwrap().keys.remove(0));
        // The next window may give the same epoch tokens, if this one gave it none.
        let is_same = first.wait_ms > 0;
        assert_eq!((before.epoch == after.epoch, after.ahead), (is_same, before.ahead), "{after:?}");
        let answer = answer(&again, Leased::of(1, 900));
        let decided = answered(&mut engine, &mut open, &again, answer, &mut host, now + 1_000_000);
        assert_eq!(decided.ok().as_deref(), Some("continue"), "{first:?}");
    }
}

#[test]
fn an_epoch_that_expires_twice_is_not_acquired_again() {
    let (mut host, mut open) = (host(), OpenRequest::new(5));
    let (mut engine, _) = configured(STRICT, true, &mut host);
    let call = waiting(&mut engine, &mut open, &mut host);
    let none = |call: &SyncCall| Ok(reply(call, &Allowance::Leased(Leased::NONE), 0));
    let again = answered(&mut engine, &mut open, &call, none(&call), &mut host, T0).unwrap_err();
    assert_eq!(answered(&mut engine, &mut open, &again, none(&again), &mut host, T0).unwrap(), "429");
}

fn failed() -> CallResult {
    Err(Unread::Failed("no route".into()))
}

/// weir-sync answers the greeting of `engine`, which takes this long.
fn greeted(engine: &mut Engine, host: &mut LocalHost, takes_ns: u64) -> SyncCall {
    let [greeting] = calls(engine.tick(host, T0)).try_into().expect("a greeting");
    engine.answer(greeting.number, Ok(reply(&greeting, &Allowance::Warm, 0)), host, T0 + takes_ns);
    greeting
}

/// The outcome of a first request after weir-sync was silent for too long: its answer to the greeting came at `T0`.
fn asked_long_after(engine: &mut Engine, host: &mut LocalHost, ms: u64) -> String {
    asked(engine, &mut OpenRequest::new(9), host, T0 + 6 * SECOND_NS + ms * 1_000_000)
}

/// The report times out while the whole machine stands still, and the engine sees its failure first.
#[test]
fn a_report_lost_to_a_suspended_machine_is_no_miss() {
    for (fails_after_ms, expected) in [(1_000, "503"), (1_499, "503"), (1_500, "call"), (5_700, "call")] {
        let mut host = host();
        let (mut engine, _) = configured(STRICT, true, &mut host);
        greeted(&mut engine, &mut host, 0);
        let [report] = calls(engine.tick(&mut host, T0 + INTERVAL_NS)).try_into().expect("a greeting");
        let woken = T0 + INTERVAL_NS + fails_after_ms * 1_000_000;
        engine.answer(report.number, failed(), &mut host, woken);
        assert_eq!(asked_long_after(&mut engine, &mut host, 0), expected, "{fails_after_ms} ms");
    }
}

/// Sent again, its report would have the budget debited for an epoch from which no request spends.
#[test]
fn a_call_for_an_ended_epoch_is_not_repeated() {
    let empty = Leased { lease_ms: 900, wait_ms: 900, ..Leased::NONE };
    for (of_other, expected) in [(empty, Some("429")), (Leased::NONE, None)] {
        let (mut host, mut open, mut other) = (host(), OpenRequest::new(5), OpenRequest::new(6));
        let rule = r#""rate": "5/s", "algorithm": "fixed_window", "strict": true"#;
        let (mut engine, _) = configured(rule, true, &mut host);
        greeted(&mut engine, &mut host, 1_000_000);
        let [first, second] = [&mut open, &mut other].map(|open| waiting(&mut engine, open, &mut host));
        let answer = Ok(reply(&second, &Allowance::Leased(of_other), 0));
        let soon = T0 + 20_000_000;
        let anew = answered(&mut engine, &mut other, &second, answer, &mut host, soon);
        assert_eq!(anew.as_deref().ok(), expected);
        let half = T0 + 501_000_000;
        let again = answered(&mut engine, &mut open, &first, failed(), &mut host, half);
        assert_eq!(again.as_deref().ok(), expected, "{of_other:?}");
        if let (Err(anew), Err(again)) = (anew, again) {
            let epoch = |call: &SyncCall| Report::decode(&call.body).unwrap().keys[0].epoch;
            assert!(epoch(&anew) == epoch(&again) && epoch(&again) != epoch(&first));
            assert!(again.timeout_ms <= 499, "within the same time");
        }
    }
}

/// After half of the time, if answers are usually quick. Where they take long, or none came yet, the first call has all
/// of the time: otherwise no answer would ever be in time.
#[test]
fn an_unanswered_call_is_repeated_after_half_the_time() {
    let slow = SECOND_NS * 2 / 5;
    for (takes_ns, first_ms) in
        [(Some(1_000_000), 500), (Some(SECOND_NS * 3 / 8), 500), (Some(slow), 1_000), (None, 1_000)]
    {
        let (mut host, mut open) = (host(), OpenRequest::new(5));
        let (mut engine, _) = configured(STRICT, true, &mut host);
        if let Some(takes_ns) = takes_ns {
            greeted(&mut engine, &mut host, takes_ns);
        }
        let mut call = waiting(&mut engine, &mut open, &mut host);
        assert_eq!(call.timeout_ms, first_ms);
        if first_ms < 1_000 {
            let half = T0 + 501_000_000;
            call = answered(&mut engine, &mut open, &call, failed(), &mut host, half).unwrap_err();
            assert_eq!(call.timeout_ms, 499);
        }
        let end = T0 + SECOND_NS;
        assert_eq!(answered(&mut engine, &mut open, &call, failed(), &mut host, end).unwrap(), "503");
    }
}

/// The time of an answer to an acquire counts as the usual one, unless the acquire was sent twice.
#[test]
fn an_acquire_after_a_quick_answer_gets_half_the_time() {
    for (fails_first, expected_ms) in [(false, 500), (true, 1_000)] {
        let (mut host, mut open) = (host(), OpenRequest::new(5));
        let (mut engine, _) = configured(STRICT, true, &mut host);
        let mut call = waiting(&mut engine, &mut open, &mut host);
        if fails_first {
            call = answered(&mut engine, &mut open, &call, failed(), &mut host, T0).unwrap_err();
        }
        let answer = Ok(reply(&call, &Allowance::Leased(Leased::of(1, 2_000)), 0));
        let soon = T0 + 1_000_000;
        assert_eq!(answered(&mut engine, &mut open, &call, answer, &mut host, soon).unwrap(), "continue");
        let mut next = OpenRequest::new(6);
        assert_eq!(waiting(&mut engine, &mut next, &mut host).timeout_ms, expected_ms);
    }
}

/// The weir-sync that was asked first may have answered, with bans and grants that never arrived.
#[test]
fn pushes_for_an_acquire_sent_twice_count_as_lost() {
    let (mut host, mut open) = (host(), OpenRequest::new(5));
    let (mut engine, _) = configured(STRICT, true, &mut host);
    let first = waiting(&mut engine, &mut open, &mut host);
    let again = answered(&mut engine, &mut open, &first, failed(), &mut host, T0).unwrap_err();
    let answer = Ok(reply(&again, &Allowance::Leased(Leased::of(1, 2_000)), 0));
    assert_eq!(answered(&mut engine, &mut open, &again, answer, &mut host, T0).unwrap(), "continue");
    let [report] = calls(engine.tick(&mut host, T0 + SECOND_NS)).try_into().expect("a report");
    let report = Report::decode(&report.body).expect("it is one");
    assert_eq!(report.replies, Replies { done: first.number, lost: first.number });
}

#[test]
fn awaited_tokens_are_kept_until_the_request_times_out() {
    let mut host = host();
    let sync = r#""sync": {"cluster": "weir-sync", "pop": "fra1", "timeout_ms": 5000}"#;
    let configuration = format!(r#"{{"rules": [{}], {sync}}}"#, rule(STRICT));
    let [mut first, mut second] = [(); 2].map(|()| {
        host.random += 1;
        Engine::configure(configuration.as_bytes(), &mut host, T0).expect("a good one").0
    });
    waiting(&mut first, &mut OpenRequest::new(1), &mut host);
    let late = T0 + 4_500_000_000;
    let step = second.request(&mut OpenRequest::new(2), &mut client(), &mut host, late).step;
    let RequestStep::Call(call) = step else { panic!("expected it to wait, found {}", shown(&step)) };
    assert_eq!(Report::decode(&call.body).expect("a report").keys[0].ahead, 2, "one for each of the two");
}
