//! Rule sets that the fleet is to run.

use super::*;
use weir_protocol::messages::RunningRules;

/// Tells the engine that the fleet is to run rule set 7, and returns the fetch that it makes.
fn fetch_of_7(engine: &mut Engine, site: &mut LocalHost, now: Time) -> SyncCall {
    let [greeting] = calls(engine.tick(site, now)).try_into().expect("a greeting");
    let answer = Ok(reply(&greeting, &Allowance::Warm, 7));
    let [fetch] = calls(engine.answer(greeting.number, answer, site, now)).try_into().expect("a fetch");
    assert_eq!((fetch.path.as_str(), fetch.body.len()), ("/v1/rules?version=7", 0));
    fetch
}

#[test]
fn a_pushed_rule_set_is_fetched_once_and_in_force_at_every_worker() {
    let mut site = site();
    let [mut engine, mut other] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut site).0);
    assert_eq!(asked(&mut engine, &mut OpenRequest::new(1), &mut site, T0), "continue");
    let fetch = fetch_of_7(&mut engine, &mut site, T0);
    let document = format!(r#"{{"rules": [{}]}}"#, rule(r#""rate": "3/h""#));
    let mut effects = engine.answer(fetch.number, Ok(document.into_bytes()), &mut site, T0);
    assert_eq!(logged(&effects), ["rule set 7 is in force, of 1 rules"]);
    let counted = effects.iter_mut().find_map(|effect| match effect {
        Effect::NewRules(counted) => Some(counted.take_rule(0).allowed),
        _ => None,
    });
    assert_eq!(counted, Some(1), "what the rules before had counted");
    let effects = other.tick(&mut site, T0 + INTERVAL_NS);
    let running = RunningRules { version: 7, refused: 0 };
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Running(found) if *found == running)));
    assert!(calls(effects).iter().all(|call| call.path == REPORT_PATH), "it needs no fetch");
    for engine in [&mut engine, &mut other] {
        assert_eq!(engine.rules().rules()[0].quota.burst(), 3);
    }
    assert!(core::ptr::eq(engine.rules(), other.rules()), "one has read it for both");
    let (late, _) = configured(r#""rate": "1/h""#, true, &mut site);
    assert_eq!(late.rules().rules()[0].quota.burst(), 3, "and at one that begins later");
}

#[test]
fn a_pushed_rule_set_that_is_no_good_is_refused_once() {
    let mut site = site();
    let (mut engine, _) = configured(r#""rate": "1/h""#, true, &mut site);
    let fetch = fetch_of_7(&mut engine, &mut site, T0);
    let effects = engine.answer(fetch.number, Ok(b"{}".to_vec()), &mut site, T0);
    let expected = [
        "rule set 7: rules: missing: expected a list of rules",
        "rule set 7 is refused: correct the places above; what ran before runs on",
    ];
    assert_eq!(logged(&effects), expected);
    let [report] = calls(engine.tick(&mut site, T0 + INTERVAL_NS)).try_into().expect("no second fetch");
    let report = Report::decode(&report.body).expect("a report");
    assert_eq!(report.running, RunningRules { version: 0, refused: 7 });
    // Any worker of the POP may say it.
    let why = "rules: missing: expected a list of rules";
    let (mut other, _) = configured(r#""rate": "1/h""#, true, &mut site);
    let [greeting] = calls(other.tick(&mut site, T0 + 10 * INTERVAL_NS)).try_into().expect("a greeting");
    let status = Report::decode(&greeting.body).expect("a report").status.expect("a status");
    assert_eq!(status.refusal, why);
}

#[test]
fn a_fetch_that_fails_is_made_again() {
    let mut site = site();
    let (mut engine, _) = configured(r#""rate": "1/h""#, true, &mut site);
    let fetch = fetch_of_7(&mut engine, &mut site, T0);
    let effects = engine.answer(fetch.number, Err(Unread::Failed("no route".into())), &mut site, T0);
    assert_eq!(logged(&effects).len(), 1);
    let paths: Vec<String> =
        calls(engine.tick(&mut site, T0 + INTERVAL_NS)).into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/v1/rules?version=7", REPORT_PATH]);
}

/// Three losses take less than three seconds.
#[test]
fn a_fetch_that_fails_is_made_again_after_an_interval_and_then_twice_as_late() {
    for (fails_after_ms, expected) in
        [(u64::MAX, [750, 750, 1_250, 2_250, 4_250, 5_250]), (0, [250, 500, 1_000, 2_000, 4_000, 5_000])]
    {
        let mut site = site();
        let (mut engine, _) = configured(r#""rate": "1/h""#, true, &mut site);
        let (mut fetch, mut began, mut now, mut waited) =
            (fetch_of_7(&mut engine, &mut site, T0), T0, T0, Vec::new());
        while waited.len() < expected.len() {
            let fails_at = began + u64::from(fetch.timeout_ms).min(fails_after_ms) * 1_000_000;
            let failed = Err(Unread::Failed("lost".into()));
            engine.answer(fetch.number, failed, &mut site, fails_at);
            fetch = loop {
                now += INTERVAL_NS;
                let mut made = if now < fails_at { Vec::new() } else { calls(engine.tick(&mut site, now)) };
                made.retain(|call| call.body.is_empty());
                if let Some(fetch) = made.pop() {
                    break fetch;
                }
            };
            waited.push(now.nanos_since(began) / 1_000_000);
            began = now;
        }
        assert_eq!(waited, expected);
    }
}

#[test]
fn rules_that_hold_requests_make_the_timer_quicker() {
    let mut site = site();
    let (mut engine, effects) = configured(r#""rate": "1/h""#, true, &mut site);
    let timer = |effects: &[Effect]| {
        effects.iter().find_map(|e| if let Effect::SetTimer(ms) = e { Some(*ms) } else { None })
    };
    assert_eq!(timer(&effects), Some(250));
    let fetch = fetch_of_7(&mut engine, &mut site, T0);
    let leaky = rule(r#""algorithm": "leaky_bucket", "rate": "10/s", "queue": 2"#);
    let document = format!(r#"{{"rules": [{leaky}]}}"#);
    let effects = engine.answer(fetch.number, Ok(document.into_bytes()), &mut site, T0);
    assert_eq!(timer(&effects), Some(10));
}

/// A ban of which weir-sync has lost all knowledge ends all the same, and so does a tier.
#[test]
fn conditions_end_by_themselves_at_every_worker() {
    const END_MS: u64 = 1_795_435_200_000;
    let mut site = site();
    let [mut engine, mut other] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut site).0);
    site.unix_ns = (END_MS - 10_000) * 1_000_000;
    let fetch = fetch_of_7(&mut engine, &mut site, T0);
    let tier = format!(
        r#""rate": "1/h", "tiers": [{{"name": "more", "rate": "9/h", "when": {{"until_ms": {END_MS}}}}}]"#
    );
    let rule = rule(&tier);
    let deny = format!(r#"[{{"addresses": ["0.0.0.0/0", "::/0"], "until_ms": {END_MS}}}]"#);
    let document = format!(r#"{{"rules": [{rule}], "deny": {deny}}}"#);
    engine.answer(fetch.number, Ok(document.into_bytes()), &mut site, T0);
    other.tick(&mut site, T0 + INTERVAL_NS);
    let ask =
        |engine: &mut Engine, site: &mut LocalHost, now| asked(engine, &mut OpenRequest::new(1), site, now);
    for engine in [&mut engine, &mut other] {
        assert_eq!(ask(engine, &mut site, T0 + INTERVAL_NS), "403");
    }
    site.unix_ns = (END_MS + 999) * 1_000_000;
    engine.tick(&mut site, T0 + 2 * INTERVAL_NS);
    assert_eq!(
        ask(&mut engine, &mut site, T0 + 2 * INTERVAL_NS),
        "403",
        "weir-sync's clock counts for a second"
    );
    site.unix_ns = (END_MS + 1_000) * 1_000_000;
    for engine in [&mut engine, &mut other] {
        engine.tick(&mut site, T0 + 3 * INTERVAL_NS);
    }
    assert_eq!(ask(&mut engine, &mut site, T0 + 3 * INTERVAL_NS), "continue");
    assert_eq!(ask(&mut other, &mut site, T0 + 3 * INTERVAL_NS), "429", "the rule has its own rate again");
    let (mut late, _) = configured(r#""rate": "1/h""#, true, &mut site);
    assert_ne!(
        ask(&mut late, &mut site, T0 + 3 * INTERVAL_NS),
        "403",
        "nor does it hold at one that begins later"
    );
}
