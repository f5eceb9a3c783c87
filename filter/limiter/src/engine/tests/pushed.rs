//! Rule sets that the fleet is to run.

use super::*;
use weir_protocol::messages::{AdmitRatio, Ban, Grant};

/// The fetch that the engine makes after a reply with rule set 7 as the one to run.
fn fetch_of_7(engine: &mut Engine, host: &mut LocalHost, now: Time) -> SyncCall {
    fetch_of(7, &Allowance::Warm, engine, host, now)
}

/// The engine's fetch of a rule set that weir-sync announced; each key that it reports gets `allowance`.
fn fetch_of(version: u64, allowance: &Allowance, engine: &mut Engine, host: &mut LocalHost, now: Time) -> SyncCall {
    let [report] = calls(engine.tick(host, now)).try_into().expect("a report");
    let answer = Ok(reply(&report, allowance, version));
    let [fetch] = calls(engine.answer(report.number, answer, host, now)).try_into().expect("a fetch");
    assert_eq!((&fetch.path, fetch.body.len()), (&format!("/v1/rules?version={version}"), 0));
    fetch
}

/// An engine with a rule of these fields, then of others, then of these again. A client takes `taken` of the first and
/// `between` of the others, and its grants are `allowance`. The requests of 20 that pass at each of `later_ms`.
fn changed_and_back(
    [first, other]: [&str; 2],
    [taken, between]: [usize; 2],
    allowance: &Allowance,
    later_ms: &[u64],
) -> Vec<usize> {
    changed(first, &[(taken, other), (between, first)], allowance, later_ms)
}

/// Numbers of requests of 20 that pass at each of `later_ms`, after these numbers have passed before each change.
fn changed(first: &str, changes: &[(usize, &str)], allowance: &Allowance, later_ms: &[u64]) -> Vec<usize> {
    let mut host = host();
    let (mut engine, _) = configured(first, true, &mut host);
    let passed = |engine: &mut Engine, host: &mut LocalHost, asked: usize, now| {
        (0..asked).filter(|_| asked_once(engine, host, now)).count()
    };
    let mut now = T0;
    for (version, (asked, fields)) in (1..).zip(changes) {
        assert_eq!(passed(&mut engine, &mut host, *asked, now), *asked, "{changes:?}");
        // Once more, for a bucket that is empty: its key is reported.
        if *asked == 1 {
            assert!(!asked_once(&mut engine, &mut host, now));
        }
        now += INTERVAL_NS;
        let fetch = fetch_of(version, allowance, &mut engine, &mut host, now);
        let document = format!(r#"{{"rules": [{}]}}"#, rule(fields));
        engine.answer(fetch.number, Ok(document.into_bytes()), &mut host, now);
    }
    later_ms.iter().map(|ms| passed(&mut engine, &mut host, 20, now + ms * 1_000_000)).collect()
}

fn asked_once(engine: &mut Engine, host: &mut LocalHost, now: Time) -> bool {
    asked(engine, &mut OpenRequest::new(1), host, now) == "continue"
}

/// Rules that are put and withdrawn give nobody back what he used under them, and take no more from him either.
// I3
#[test]
fn a_quota_that_returns_keeps_what_is_left_of_the_one_between() {
    let bucket = [r#""rate": "10/h", "burst": 10"#, r#""rate": "20/h", "burst": 20"#];
    // Ten of twenty were left, then one: half a token of ten, and a token takes six minutes.
    let passed = changed_and_back(bucket, [5, 9], &Allowance::Warm, &[0, 170_000, 190_000, 540_000]);
    assert_eq!(passed, [0, 0, 1, 1]);
    // A third quota follows the one between, too, though nothing passed since.
    let third = r#""rate": "40/h", "burst": 40"#;
    let changes = [(5, bucket[1]), (9, bucket[0]), (0, third)];
    assert_eq!(changed(bucket[0], &changes, &Allowance::Warm, &[0]), [2]);
    // A debt of two tokens is one of two tokens under a wide quota, too.
    let owing =
        Allowance::Hot(Grant { ratio: AdmitRatio::ONE, level_milli: -2_000, burst: 1, divisor: 1, lease_ms: 1_000 });
    let narrow = [r#""rate": "1000/s", "burst": 1000"#, r#""rate": "1/h", "burst": 1"#];
    assert_eq!(changed_and_back(narrow, [2, 1], &owing, &[0, 100]), [0, 20]);
    // With another quota these are new; with the same again, as they were.
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let fields = ["10/h", "16/h"].map(|rate| format!(r#""algorithm": "{algorithm}", "rate": "{rate}""#));
        let passed = changed_and_back([&fields[0], &fields[1]], [5, 9], &Allowance::Warm, &[0]);
        assert_eq!(passed, [5], "{algorithm}");
    }
}

/// A reset is not undone by what the key used under the quota before.
#[test]
fn a_reset_key_of_a_changed_quota_starts_anew() {
    let mut host = host();
    let (mut engine, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut host);
    let passed =
        |engine: &mut Engine, host: &mut LocalHost, now| (0..30).filter(|_| asked_once(engine, host, now)).count();
    assert_eq!(passed(&mut engine, &mut host, T0), 10);
    let mut now = T0 + INTERVAL_NS;
    let [call] = calls(engine.tick(&mut host, now)).try_into().expect("a report");
    let value = Report::decode(&call.body).unwrap().keys[0].value.clone();
    let announced = Ok(reply(&call, &Allowance::Warm, 1));
    let [fetch] = calls(engine.answer(call.number, announced, &mut host, now)).try_into().expect("a fetch");
    let document = format!(r#"{{"rules": [{}]}}"#, rule(r#""rate": "20/h", "burst": 20"#));
    engine.answer(fetch.number, Ok(document.into_bytes()), &mut host, now);
    assert_eq!(passed(&mut engine, &mut host, now), 0);
    now += INTERVAL_NS;
    let [call] = calls(engine.tick(&mut host, now)).try_into().expect("a report");
    let answer = Reply::decode(&reply(&call, &Allowance::Warm, 1)).unwrap();
    let reset = Reply { rules: vec!["r".into()], bans: vec![Ban { rule: 0, value, for_ms: 0 }], ..answer };
    engine.answer(call.number, Ok(reset.encode()), &mut host, now);
    assert_eq!(passed(&mut engine, &mut host, now), 20);
}

/// Three losses take less than three seconds.
#[test]
fn a_failed_fetch_is_repeated_at_doubling_intervals() {
    for (fails_after_ms, expected) in
        [(u64::MAX, [750, 750, 1_250, 2_250, 4_250, 5_250]), (0, [250, 500, 1_000, 2_000, 4_000, 5_000])]
    {
        let mut host = host();
        let (mut engine, _) = configured(r#""rate": "1/h""#, true, &mut host);
        let (mut fetch, mut began, mut now, mut waited) = (fetch_of_7(&mut engine, &mut host, T0), T0, T0, Vec::new());
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

/// A ban or a tier ends at its time, also if weir-sync has lost it since.
#[test]
fn bans_and_tiers_end_by_themselves_at_every_worker() {
    const END_MS: u64 = 1_795_435_200_000;
    let mut host = host();
    let [mut engine, mut other] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut host).0);
    host.unix_ns = (END_MS - 10_000) * 1_000_000;
    let fetch = fetch_of_7(&mut engine, &mut host, T0);
    let tier =
        format!(r#""rate": "1/h", "tiers": [{{"name": "more", "rate": "9/h", "when": {{"until_ms": {END_MS}}}}}]"#);
    let rule = rule(&tier);
    let deny = format!(r#"[{{"addresses": ["0.0.0.0/0", "::/0"], "until_ms": {END_MS}}}]"#);
    let document = format!(r#"{{"rules": [{rule}], "deny": {deny}}}"#);
    engine.answer(fetch.number, Ok(document.into_bytes()), &mut host, T0);
    other.tick(&mut host, T0 + INTERVAL_NS);
    let ask = |engine: &mut Engine, host: &mut LocalHost, now| asked(engine, &mut OpenRequest::new(1), host, now);
    for engine in [&mut engine, &mut other] {
        assert_eq!(ask(engine, &mut host, T0 + INTERVAL_NS), "403");
    }
    host.unix_ns = (END_MS + 999) * 1_000_000;
    engine.tick(&mut host, T0 + 2 * INTERVAL_NS);
    assert_eq!(ask(&mut engine, &mut host, T0 + 2 * INTERVAL_NS), "403", "weir-sync's clock counts for a second");
    host.unix_ns = (END_MS + 1_000) * 1_000_000;
    for engine in [&mut engine, &mut other] {
        engine.tick(&mut host, T0 + 3 * INTERVAL_NS);
    }
    assert_eq!(ask(&mut engine, &mut host, T0 + 3 * INTERVAL_NS), "continue");
    assert_eq!(ask(&mut other, &mut host, T0 + 3 * INTERVAL_NS), "429", "the rule has its own rate again");
    let (mut late, _) = configured(r#""rate": "1/h""#, true, &mut host);
    assert_ne!(ask(&mut late, &mut host, T0 + 3 * INTERVAL_NS), "403", "nor does it hold at one that begins later");
}
