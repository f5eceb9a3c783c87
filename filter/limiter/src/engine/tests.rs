//! An engine without a host: configured, asked, ticked and answered by hand.

mod acquires;
mod clock;
mod gather;
mod pushed;
mod takes;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::*;
use crate::counters::reported_in_turn;
use weir_protocol::messages::{Allowance, Message, Reply, Report, Settled};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::request::{Attribute, Request};

const T0: Time = Time::from_nanos(1_000 * SECOND_NS);
const INTERVAL_NS: u64 = SECOND_NS / 4;
const STRICT: &str = r#""rate": "2/s", "strict": true"#;

/// A request from an address.
struct Client(&'static str);

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| self.0.as_bytes().to_vec())
    }
}

fn client() -> Client {
    Client("192.0.2.1:80")
}

/// The rule `r` for every client.
fn rule(fields: &str) -> String {
    format!(r#"{{"name": "r", "key": ["client_address"], {fields}}}"#)
}

/// An engine with this rule, in a fleet or alone, and what it is to do first.
fn configured(fields: &str, is_in_a_fleet: bool, host: &mut LocalHost) -> (Engine, Vec<Effect>) {
    let sync = if is_in_a_fleet { r#", "sync": {"cluster": "weir-sync", "pop": "fra1"}"# } else { "" };
    let configuration = format!(r#"{{"rules": [{}]{sync}}}"#, rule(fields));
    host.random += 1;
    Engine::configure(configuration.as_bytes(), host, T0).expect("a good configuration")
}

fn host() -> LocalHost {
    LocalHost::new([7; 16], 1)
}

/// The outcome of a request: `continue`, `hold`, or the answer's status.
fn shown(step: &RequestStep<'_>) -> String {
    match step {
        RequestStep::Continue => "continue".to_owned(),
        RequestStep::Hold => "hold".to_owned(),
        RequestStep::Call(_) => "call".to_owned(),
        RequestStep::Take(take) => format!("take {}", take.tokens),
        RequestStep::Answer(answer) => format!("{}", answer.status),
    }
}

fn asked(engine: &mut Engine, open: &mut OpenRequest, host: &mut LocalHost, now: Time) -> String {
    shown(&engine.request(open, &mut client(), host, now).step)
}

fn calls(effects: Vec<Effect>) -> Vec<SyncCall> {
    let call = |effect| if let Effect::Call(call) = effect { Some(call) } else { None };
    effects.into_iter().filter_map(call).collect()
}

fn logged(effects: &[Effect]) -> Vec<&str> {
    effects.iter().filter_map(|e| if let Effect::Log(_, text) = e { Some(text.as_str()) } else { None }).collect()
}

/// A reply to the report in `call`; each key gets `allowance`.
fn reply(call: &SyncCall, allowance: &Allowance, rule_set: u64) -> Vec<u8> {
    let report = Report::decode(&call.body).expect("a report");
    let grants = vec![*allowance; report.keys.len()];
    let sequence = report.sequence;
    Reply { sequence, pops: 1, settled: Settled::All, grants, rule_set, ..Reply::default() }.encode()
}

/// The call that the request of `open` is held for.
fn waiting(engine: &mut Engine, open: &mut OpenRequest, host: &mut LocalHost) -> SyncCall {
    match engine.request(open, &mut client(), host, T0).step {
        RequestStep::Call(call) => call,
        other => panic!("expected it to wait, found {}", shown(&other)),
    }
}

/// The outcome of the request that waits for `call`, which is answered at `now`; a call if it is made again.
fn answered(
    engine: &mut Engine,
    open: &mut OpenRequest,
    call: &SyncCall,
    answer: CallResult,
    host: &mut LocalHost,
    now: Time,
) -> Result<String, SyncCall> {
    let decided = engine.answer_request(open, (call.number, answer), &mut client(), host, now);
    match decided.expect("it waited").step {
        RequestStep::Call(call) => Err(call),
        step => Ok(shown(&step)),
    }
}

#[test]
fn trouble_is_logged_when_it_begins_and_when_it_ends() {
    let mut host = host();
    let (mut engine, _) = configured(r#""rate": "1/h""#, true, &mut host);
    let mut log = Vec::new();
    for (n, fails) in [(1, true), (2, true), (3, false), (4, false)] {
        let now = T0 + n * INTERVAL_NS;
        let [call] = calls(engine.tick(&mut host, now)).try_into().expect("a greeting");
        let good = reply(&call, &Allowance::Warm, 0);
        let answer = if fails { Err(Unread::Failed("no route".into())) } else { Ok(good) };
        log.extend(logged(&engine.answer(call.number, answer, &mut host, now)).iter().map(|&s| s.to_owned()));
    }
    assert_eq!(log, ["no route; requests are decided locally until it works", "weir-sync answers again"]);
}

#[test]
fn a_pop_reports_its_status_once_a_second() {
    let mut host = host();
    host.unix_ns = 1_700_000_000_000_000_000;
    let [mut first, mut second] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut host).0);
    let mut status_at = |engine: &mut Engine, now| {
        let [call] = calls(engine.tick(&mut host, now)).try_into().expect("a greeting");
        Report::decode(&call.body).unwrap().status
    };
    let status = status_at(&mut first, T0).expect("at first");
    assert_eq!((status.step, status.unix_ms, status.every_ms), (2, 1_700_000_000_000, 1_000));
    assert_eq!((status.module.as_str(), status.rules.len()), (env!("CARGO_PKG_VERSION"), 0));
    for quarter in 1..4 {
        assert_eq!(status_at(&mut second, T0 + quarter * INTERVAL_NS), None);
    }
    assert!(status_at(&mut second, T0 + SECOND_NS).is_some(), "whichever worker greets");
}

#[test]
fn every_rule_is_reported_in_turn() {
    let due = |turn, rules| reported_in_turn(turn, rules).collect::<Vec<_>>();
    assert_eq!((due(7, 0), due(7, 2)), (vec![], vec![0, 1]));
    // A weir-sync that receives only some of the reports relies on these numbers of turns.
    for (rules, turns) in [(64, 1), (65, 2), (100, 2), (129, 3), (1_000, 16)] {
        for first in [0, 7, u64::MAX - 16] {
            let mut times = vec![0; rules];
            (first..first + turns).flat_map(|turn| due(turn, rules)).for_each(|at| times[at] += 1);
            assert!(times.iter().all(|times| *times == 1), "{rules}: {times:?}");
        }
        assert!((0..turns).all(|turn| due(turn, rules).len() <= 64) && due(turns, rules) == due(0, rules));
    }
}

// I2
#[test]
fn ten_thousand_requests_are_held_at_most() {
    let mut host = host();
    let leaky = r#""algorithm": "leaky_bucket", "rate": "10000/s", "queue": 20000"#;
    let (mut engine, _) = configured(leaky, false, &mut host);
    let held = (0..10_005).filter(|id| asked(&mut engine, &mut OpenRequest::new(*id), &mut host, T0) == "hold");
    assert_eq!(held.count(), 10_000);
}

#[test]
fn a_request_that_only_asks_is_not_held() {
    let mut host = host();
    let leaky = r#""algorithm": "leaky_bucket", "rate": "10/s", "queue": 2"#;
    let (mut engine, _) = configured(leaky, false, &mut host);
    assert_eq!(asked(&mut engine, &mut OpenRequest::new(1), &mut host, T0), "continue");
    for id in 2..9 {
        engine.only_asks(true);
        let mut open = OpenRequest::new(id);
        assert_eq!(asked(&mut engine, &mut open, &mut host, T0), "continue");
        engine.take_back(&mut open, &mut host, T0);
    }
    engine.only_asks(false);
    assert_eq!(asked(&mut engine, &mut OpenRequest::new(9), &mut host, T0), "hold");
    let effects = engine.tick(&mut host, T0 + SECOND_NS);
    let resumed = effects.iter().filter_map(|e| if let Effect::Resume(id) = e { Some(*id) } else { None });
    assert_eq!(resumed.collect::<Vec<_>>(), [9]);
}

#[test]
fn an_ending_worker_reports_its_remaining_counts() {
    let mut host = host();
    (&mut host as &mut dyn Host).set_contact(3, false, T0);
    let (mut engine, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut host);
    let admitted = |calls: Vec<SyncCall>| -> Vec<u64> {
        let report = |call: SyncCall| Report::decode(&call.body).expect("a report");
        calls.into_iter().flat_map(|call| report(call).keys).map(|key| key.admitted).collect()
    };
    for _ in 0..6 {
        asked(&mut engine, &mut OpenRequest::new(1), &mut host, T0);
    }
    // A warm key is not due for two seconds, and a key in four reports under way is in no further one.
    let [call] = calls(engine.tick(&mut host, T0)).try_into().expect("a report");
    engine.answer(call.number, Ok(reply(&call, &Allowance::Warm, 0)), &mut host, T0);
    asked(&mut engine, &mut OpenRequest::new(1), &mut host, T0);
    assert!(admitted(calls(engine.tick(&mut host, T0 + INTERVAL_NS))).is_empty());
    assert_eq!(admitted(calls(engine.report_all(&mut host, T0 + INTERVAL_NS))), [7]);
    assert_eq!(admitted(calls(engine.report_all(&mut host, T0 + INTERVAL_NS))), [7], "until it is answered");
}

#[test]
fn nothing_is_held_where_no_timer_would_resume_it() {
    let mut host = host();
    let leaky = r#""algorithm": "leaky_bucket", "rate": "10/s", "queue": 2"#;
    let (mut engine, _) = configured(leaky, false, &mut host);
    engine.has_no_timer();
    let outcomes = [1, 2, 3, 4].map(|id| asked(&mut engine, &mut OpenRequest::new(id), &mut host, T0));
    assert_eq!(outcomes, ["continue", "continue", "continue", "429"]);
}
