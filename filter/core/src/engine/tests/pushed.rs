//! Rule sets that the fleet is to run.

use super::*;

/// The fetch that the engine makes after a reply with rule set 7 as the one to run.
fn fetch_of_7(engine: &mut Engine, host: &mut LocalHost, now: Time) -> SyncCall {
    let [greeting] = calls(engine.tick(host, now)).try_into().expect("a greeting");
    let answer = Ok(reply(&greeting, &Allowance::Warm, 7));
    let [fetch] = calls(engine.answer(greeting.number, answer, host, now)).try_into().expect("a fetch");
    assert_eq!((fetch.path.as_str(), fetch.body.len()), ("/v1/rules?version=7", 0));
    fetch
}

/// Three losses take less than three seconds.
#[test]
fn a_failed_fetch_is_repeated_at_doubling_intervals() {
    for (fails_after_ms, expected) in
        [(u64::MAX, [750, 750, 1_250, 2_250, 4_250, 5_250]), (0, [250, 500, 1_000, 2_000, 4_000, 5_000])]
    {
        let mut host = host();
        let (mut engine, _) = configured(r#""rate": "1/h""#, true, &mut host);
        let (mut fetch, mut began, mut now, mut waited) =
            (fetch_of_7(&mut engine, &mut host, T0), T0, T0, Vec::new());
        while waited.len() < expected.len() {
            let fails_at = began + u64::from(fetch.timeout_ms).min(fails_after_ms) * 1_000_000;
            let failed = Err(Unread::Failed("lost".into()));
            engine.answer(fetch.number, failed, &mut host, fails_at);
            fetch = loop {
                now += INTERVAL_NS;
                let mut made = if now < fails_at { Vec::new() } else { calls(engine.tick(&mut host, now)) };
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

/// A ban of which weir-sync has lost all knowledge ends all the same, and so does a tier.
#[test]
fn conditions_end_by_themselves_at_every_worker() {
    const END_MS: u64 = 1_795_435_200_000;
    let mut host = host();
    let [mut engine, mut other] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut host).0);
    host.unix_ns = (END_MS - 10_000) * 1_000_000;
    let fetch = fetch_of_7(&mut engine, &mut host, T0);
    let tier = format!(
        r#""rate": "1/h", "tiers": [{{"name": "more", "rate": "9/h", "when": {{"until_ms": {END_MS}}}}}]"#
    );
    let rule = rule(&tier);
    let deny = format!(r#"[{{"addresses": ["0.0.0.0/0", "::/0"], "until_ms": {END_MS}}}]"#);
    let document = format!(r#"{{"rules": [{rule}], "deny": {deny}}}"#);
    engine.answer(fetch.number, Ok(document.into_bytes()), &mut host, T0);
    other.tick(&mut host, T0 + INTERVAL_NS);
    let ask =
        |engine: &mut Engine, host: &mut LocalHost, now| asked(engine, &mut OpenRequest::new(1), host, now);
    for engine in [&mut engine, &mut other] {
        assert_eq!(ask(engine, &mut host, T0 + INTERVAL_NS), "403");
    }
    host.unix_ns = (END_MS + 999) * 1_000_000;
    engine.tick(&mut host, T0 + 2 * INTERVAL_NS);
    assert_eq!(
        ask(&mut engine, &mut host, T0 + 2 * INTERVAL_NS),
        "403",
        "weir-sync's clock counts for a second"
    );
    host.unix_ns = (END_MS + 1_000) * 1_000_000;
    for engine in [&mut engine, &mut other] {
        engine.tick(&mut host, T0 + 3 * INTERVAL_NS);
    }
    assert_eq!(ask(&mut engine, &mut host, T0 + 3 * INTERVAL_NS), "continue");
    assert_eq!(ask(&mut other, &mut host, T0 + 3 * INTERVAL_NS), "429", "the rule has its own rate again");
    let (mut late, _) = configured(r#""rate": "1/h""#, true, &mut host);
    assert_ne!(
        ask(&mut late, &mut host, T0 + 3 * INTERVAL_NS),
        "403",
        "nor does it hold at one that begins later"
    );
}
