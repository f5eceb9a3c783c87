//! Requests that take their tokens from the budget themselves.

use super::*;
use weir_protocol::messages::Leased;

const WIDE: &str = r#""rate": "1000/s", "burst": 1000, "strict": true"#;

fn taking(fields: &str, host: &mut LocalHost) -> Engine {
    let (mut engine, _) = configured(fields, true, host);
    engine.let_take();
    engine
}

/// The outcome of a request that takes tokens, with this answer of the budget.
fn taken(engine: &mut Engine, host: &mut LocalHost, now: Time, taken: impl Into<Option<ConsumeReply>>) -> String {
    let taken = taken.into();
    let mut open = OpenRequest::new(5);
    assert_eq!(asked(engine, &mut open, host, now), "take 1");
    assert!(!open.is_done());
    let decided = engine.taken(&mut open, taken, &mut client(), host, now + 1_000_000);
    let shown = shown(&decided.expect("it waited").step);
    assert!(open.is_done() && engine.taken(&mut open, taken, &mut client(), host, now).is_none());
    shown
}

fn got(left: u32) -> ConsumeReply {
    ConsumeReply { is_taken: true, left, wait_ms: 0 }
}

#[test]
fn a_request_that_takes_tokens_leaves_nothing_to_report() {
    let mut host = host();
    let mut engine = taking(STRICT, &mut host);
    assert_eq!(taken(&mut engine, &mut host, T0, got(1)), "continue");
    assert_eq!(taken(&mut engine, &mut host, T0, got(0)), "continue");
    let short = Some(ConsumeReply { is_taken: false, left: 0, wait_ms: 500 });
    assert_eq!(taken(&mut engine, &mut host, T0, short), "429");
    let mut open = OpenRequest::new(6);
    assert_eq!(asked(&mut engine, &mut open, &mut host, T0 + 400_000_000), "429", "the budget is not asked before");
    assert_eq!(asked(&mut engine, &mut open, &mut host, T0 + 600_000_000), "take 1");
    let [greeting] = calls(engine.tick(&mut host, T0 + SECOND_NS)).try_into().expect("a greeting");
    assert!(Report::decode(&greeting.body).expect("a report").keys.is_empty());
}

#[test]
fn the_rule_decides_without_its_budget() {
    let mut host = host();
    let mut engine = taking(STRICT, &mut host);
    assert_eq!(taken(&mut engine, &mut host, T0, None::<ConsumeReply>), "503");
    let mut engine = taking(r#""rate": "2/s", "strict": true, "on_sync_loss": "local""#, &mut host);
    assert_eq!(taken(&mut engine, &mut host, T0, None::<ConsumeReply>), "continue");
}

#[test]
fn a_frequent_key_gets_a_lease_and_tokens_ahead() {
    let mut host = host();
    let mut engine = taking(WIDE, &mut host);
    for _ in 0..4 {
        assert_eq!(taken(&mut engine, &mut host, T0, got(900)), "continue");
    }
    let mut open = OpenRequest::new(6);
    let call = waiting(&mut engine, &mut open, &mut host);
    assert_eq!(Report::decode(&call.body).expect("a report").keys[0].ahead, 1 + 1_000 / 64);
}

#[test]
fn nothing_is_acquired_ahead_from_a_low_budget() {
    let mut host = host();
    let mut engine = taking(WIDE, &mut host);
    for _ in 0..20 {
        assert_eq!(taken(&mut engine, &mut host, T0, got(249)), "continue");
    }
}

#[test]
fn a_request_that_another_rule_may_refuse_does_not_take() {
    let both = |fields: &str| {
        let rules = format!(
            r#"{{"rules": [{}, {{"name": "s", "key": ["client_address"], {fields}}}],
                "sync": {{"cluster": "weir-sync", "pop": "fra1"}}}}"#,
            rule(WIDE)
        );
        let configured = Engine::configure(rules.as_bytes(), &mut host(), T0);
        let mut engine = configured.expect("good rules").0;
        engine.let_take();
        engine
    };
    let mut host = host();
    let (mut engine, mut open) = (both(&format!(r#""cost": 5, {WIDE}"#)), OpenRequest::new(5));
    let call = waiting(&mut engine, &mut open, &mut host);
    let leased = reply(&call, &Allowance::Leased(Leased::of(5, 2_000)), 0);
    let shown = answered(&mut engine, &mut open, &call, Ok(leased), &mut host, T0);
    assert_eq!(shown.expect("an outcome"), "continue", "both are acquired from at once");
    // Of the first there are four on hand, which others may spend while this one waits for the second.
    assert_eq!(asked(&mut engine, &mut OpenRequest::new(6), &mut host, T0), "call");
    let (mut engine, mut host) = (both(r#""rate": "1/d", "burst": 1"#), LocalHost::new([7; 16], 1));
    assert_eq!(taken(&mut engine, &mut host, T0, got(1)), "continue");
    assert_eq!(asked(&mut engine, &mut OpenRequest::new(5), &mut host, T0), "429");
}

#[test]
fn taken_tokens_admit_their_request_after_sync_loss() {
    let mut host = host();
    let mut engine = taking(STRICT, &mut host);
    let [call] = calls(engine.tick(&mut host, T0)).try_into().expect("a greeting");
    engine.answer(call.number, Ok(reply(&call, &Allowance::Warm, 0)), &mut host, T0);
    assert_eq!(taken(&mut engine, &mut host, T0 + (5 * SECOND_NS - 500_000), got(0)), "continue");
}
