//! One engine that reports for all workers of a program.

use super::*;
use weir_protocol::messages::{AdmitRatio, Ban, Grant};

const RULE: &str = r#""rate": "10/h", "burst": 10"#;

/// The reporter, and two workers.
struct Program {
    reporter: Engine,
    workers: [Engine; 2],
    host: LocalHost,
}

impl Program {
    fn of(fields: &str) -> Self {
        let mut host = host();
        let mut engine = || configured(fields, true, &mut host).0;
        let (mut reporter, workers) = (engine(), [engine(), engine()]);
        reporter.become_reporter();
        Self { reporter, workers, host }
    }

    /// The same, in a fleet of four POPs that all workers know of, so that keys are watched early.
    fn among_four(fields: &str) -> Self {
        let mut program = Self::of(fields);
        for at in [T0, T0 + INTERVAL_NS] {
            let [first, _] = program.tick(at);
            let (call, report) = only(first);
            program.answer(&call, &Reply { pops: 4, ..greeted(&report) }, at);
        }
        program
    }

    /// The outcomes of requests at these workers.
    fn ask<const N: usize>(&mut self, workers: [usize; N], now: Time) -> [String; N] {
        workers.map(|worker| asked(&mut self.workers[worker], &mut OpenRequest::new(1), &mut self.host, now))
    }

    /// A tick of all: the calls of the reporter, and of the workers.
    fn tick(&mut self, now: Time) -> [Vec<SyncCall>; 2] {
        assert!(self.reporter.is_about_to_report());
        for worker in &mut self.workers {
            self.reporter.gather(worker, now);
        }
        let first = calls(self.reporter.tick(&mut self.host, now));
        let others = self.workers.iter_mut().flat_map(|worker| calls(worker.tick(&mut self.host, now)));
        [first, others.collect()]
    }

    /// Answers the reporter's call, and applies the answer to the workers.
    fn answer(&mut self, call: &SyncCall, reply: &Reply, now: Time) {
        self.reporter.answer(call.number, Ok(reply.encode()), &mut self.host, now);
        let forgotten = self.reporter.take_forgotten();
        for worker in &mut self.workers {
            worker.forget_denials(&forgotten);
        }
    }
}

fn greeted(report: &Report) -> Reply {
    Reply { sequence: report.sequence, pops: 1, settled: Settled::All, ..Reply::default() }
}

fn only(mut calls: Vec<SyncCall>) -> (SyncCall, Report) {
    assert_eq!(calls.len(), 1, "{calls:?}");
    let call = calls.remove(0);
    let report = Report::decode(&call.body).expect("a report");
    (call, report)
}

#[test]
fn reports_of_one_pop_contain_a_key_once() {
    let mut program = Program::among_four(RULE);
    program.ask([0, 0, 0, 0, 0, 1, 1, 1], T0);
    let [first, others] = program.tick(T0 + 2 * INTERVAL_NS);
    let (call, report) = only(first);
    let [key] = &report.keys[..] else { panic!("one key: {report:?}") };
    assert_eq!(key.admitted, 8, "what both workers admitted");
    let asked = key.asked;
    assert!(others.is_empty(), "workers report nothing: {others:?}");

    let grant = Grant { ratio: AdmitRatio::ONE, level_milli: 2_000, burst: 10, divisor: 1, lease_ms: 10_000 };
    let hot = Reply { pops: 4, grants: vec![Allowance::Hot(grant)], ..greeted(&report) };
    program.answer(&call, &hot, T0 + 2 * INTERVAL_NS);
    program.ask([1, 0, 1], T0 + 2 * INTERVAL_NS);
    let [first, others] = program.tick(T0 + 3 * INTERVAL_NS);
    let (_, report) = only(first);
    assert_eq!((report.keys[0].admitted, report.keys[0].asked, report.keys[0].asked_recently), (10, asked + 3, 3));
    assert!(others.is_empty(), "{others:?}");
}

/// A client's request of this many tokens.
struct Paying(u32);

impl Request for Paying {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::Header(_) => Some(format!("{}", self.0).into_bytes()),
            _ => client().attribute(attribute),
        }
    }
}

/// A grant's burst is smaller, and cheap requests at another worker hold the bucket to it.
#[test]
fn a_grant_leaves_room_for_the_most_expensive_request_of_any_worker() {
    let mut program = Program::among_four(r#""rate": "10/s", "burst": 100, "cost": {"header": "x-cost"}"#);
    let passes = |program: &mut Program, worker: usize, cost, now| {
        let mut open = OpenRequest::new(1);
        let decision = program.workers[worker].request(&mut open, &mut Paying(cost), &mut program.host, now);
        shown(&decision.step) == "continue"
    };
    let grant = Grant { ratio: AdmitRatio::ONE, level_milli: 100_000, burst: 5, divisor: 1, lease_ms: 10_000 };
    let mut now = T0 + INTERVAL_NS;
    assert!(passes(&mut program, 0, 40, now));
    for _ in 0..20 {
        now += INTERVAL_NS;
        let (call, report) = only(program.tick(now).into_iter().next().unwrap());
        assert_eq!(report.keys.len(), 1);
        program.answer(&call, &Reply { grants: vec![Allowance::Hot(grant)], ..greeted(&report) }, now);
        assert!(passes(&mut program, 1, 1, now));
    }
    assert!(passes(&mut program, 0, 40, now + INTERVAL_NS), "the bucket holds 40 again");
}

#[test]
fn a_reset_ends_a_keys_refusals_at_every_worker() {
    let mut program = Program::of(r#""rate": "1/h", "burst": 2"#);
    assert_eq!(program.ask([0, 0, 0, 1], T0), ["continue", "continue", "429", "429"]);
    let [first, _] = program.tick(T0);
    let (call, report) = only(first);
    let ban = Ban { rule: 0, value: report.keys[0].value.clone(), for_ms: 0 };
    let grants = vec![Allowance::Warm];
    let reset = Reply { grants, rules: vec!["r".into()], bans: vec![ban], ..greeted(&report) };
    program.answer(&call, &reset, T0);
    assert_eq!(program.ask([0, 1, 0, 1], T0), ["continue", "continue", "429", "429"], "it was reset");
}

#[test]
fn the_keys_of_strict_rules_stay_with_their_workers() {
    let mut program = Program::of(STRICT);
    let mut open = OpenRequest::new(1);
    let call = waiting(&mut program.workers[0], &mut open, &mut program.host);
    let lease = Allowance::Leased(weir_protocol::messages::Leased::of(2, 60_000));
    let acquired = Ok(reply(&call, &lease, 0));
    let worker = &mut program.workers[0];
    assert_eq!(answered(worker, &mut open, &call, acquired, &mut program.host, T0).ok().as_deref(), Some("continue"));
    let [first, others] = program.tick(T0 + 10 * INTERVAL_NS);
    assert!(only(first).1.keys.is_empty(), "a greeting");
    assert_eq!(only(others).1.keys.len(), 1, "it gives back what it did not spend");
}

#[test]
fn a_workers_ban_is_reported_once() {
    let mut program =
        Program::of(r#""rate": "1/h", "burst": 1, "penalty": {"after": 1, "within": "1m", "deny_for": "1h"}"#);
    assert_eq!(program.ask([0, 0, 1], T0), ["continue", "429", "429"]);
    let [first, others] = program.tick(T0);
    assert_eq!(only(first).1.bans.len(), 1);
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_worker_with_other_rules_hands_over_common_ones() {
    let mut program = Program::among_four(RULE);
    let rules =
        format!(r#"{{"rules": [{{"name": "new", "key": ["client_address"], "rate": "9/h"}}, {}]}}"#, rule(RULE));
    let rules = weir_rules::document::parse(rules.as_bytes()).expect("good rules");
    program.reporter.limiter.replace_rules(rules);
    program.ask([0, 0, 0, 0, 0, 0, 1, 1], T0);
    let [first, others] = program.tick(T0 + 2 * INTERVAL_NS);
    let report = only(first).1;
    assert_eq!((report.rules[0].name.as_str(), report.keys[0].admitted), ("r", 8));
    assert!(others.is_empty(), "{others:?}");
}
