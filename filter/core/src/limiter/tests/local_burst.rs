//! A local burst below the burst: what a POP reports of a key that gets only a part of the burst.

use super::*;
use weir_protocol::messages::PushedGrant;
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;

/// 100/s with a burst of 1,000, of which a POP in a fleet of `pops` gives ten before the fleet has heard of a key.
fn ten_of_a_thousand(pops: u32) -> (Limiter, LocalSlots) {
    let rule =
        json!([{"name": "r", "key": ["client_address"], "rate": "100/s", "burst": 1_000, "local_burst": 10}]);
    let mut limiter = limiter(rules(&rule), Some(1));
    limiter.record_reply(pops, false, T0);
    (limiter, LocalSlots::new(4))
}

fn reply(report: &Report, grants: Vec<Allowance>, pushed: Vec<PushedGrant>) -> Vec<u8> {
    let (sequence, rules) = (report.sequence, vec!["r".into()]);
    Reply { sequence, pops: 3, settled: Settled::All, grants, rules, pushed, ..Reply::default() }.encode()
}

#[test]
fn a_key_that_becomes_watched_reports_what_was_admitted_and_not_what_was_withheld() {
    // It is watched because it went past its fair share, or because it was refused within it.
    for (pops, asked, expected) in [(330, 2, 2), (100, 6, 6), (3, 40, 10)] {
        let (mut limiter, mut slots) = ten_of_a_thousand(pops);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", asked, T0), expected);
        let report = limiter.report(&mut slots, false, T0 + 250 * MS).unwrap();
        assert_eq!(report.keys[0].admitted, expected as u64, "{pops} POPs");
        assert_eq!(report.keys[0].unconfirmed, expected as u64, "{pops} POPs");
        assert_eq!(report.keys[0].asked, u64::from(asked), "{pops} POPs");
    }
}

#[test]
fn a_key_that_a_grant_is_pushed_for_reports_what_was_admitted_and_not_what_was_withheld() {
    let (mut limiter, mut slots) = ten_of_a_thousand(3);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 3, T0), 3);
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    assert!(greeting.keys.is_empty());
    let value = KeyValue::of_address("192.0.2.1".parse().unwrap(), Prefixes::default());
    let quota = limiter.rules().rules()[0].quota;
    let pushed =
        PushedGrant { rule: 0, value: value.as_bytes().to_vec(), quota, grant: grant(1, 1, 900_000) };
    limiter.apply(greeting.sequence, &reply(&greeting, vec![], vec![pushed]), &mut slots, T0).unwrap();
    let report = limiter.report(&mut slots, false, T0 + 250 * MS).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].unconfirmed), (3, 3));
}

#[test]
fn a_warm_key_misses_what_its_local_bucket_has_not_refilled() {
    let (mut limiter, mut slots) = ten_of_a_thousand(330);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 2, T0), 2);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let warm = reply(&report, vec![Allowance::Warm], vec![]);
    limiter.apply(report.sequence, &warm, &mut slots, T0).unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 6, T0 + 1_000 * MS), 6);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 1, T0 + 1_990 * MS), 1);
    let report = limiter.report(&mut slots, false, T0 + 2_000 * MS).unwrap();
    // The six have refilled long ago, and the one of ten milliseconds ago just now.
    assert_eq!((report.keys[0].unconfirmed, report.keys[0].missing), (7, 0));
    limiter
        .apply(report.sequence, &reply(&report, vec![Allowance::Warm], vec![]), &mut slots, T0 + 2_100 * MS)
        .unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0 + 4_095 * MS), 4);
    let report = limiter.report(&mut slots, false, T0 + 4_100 * MS).unwrap();
    assert_eq!((report.keys[0].unconfirmed, report.keys[0].missing), (4, 4));
}

proptest! {
    /// I7, for any local burst and any number of POPs, whatever the clock does.
    #[test]
    fn no_more_is_reported_than_was_admitted(
        local_burst in 1u32..=40,
        pops in 1u32..60,
        steps in prop::collection::vec((0u32..6, -20i64..120, 1u32..60, prop::bool::ANY), 1..80),
    ) {
        let rule = json!([{"name": "r", "key": ["client_address"], "rate": "20/s", "burst": 40, "local_burst": local_burst}]);
        let (mut limiter, mut slots, mut now) = (limiter(rules(&rule), Some(1)), LocalSlots::new(1), T0);
        limiter.record_reply(pops, false, now);
        let (mut all, mut cold) = (0, 0);
        for (asks, step_ms, pops, hears) in steps {
            now = Time::from_nanos(now.as_nanos().saturating_add_signed(step_ms * 1_000_000));
            if hears { limiter.record_reply(pops, false, now); }
            for _ in 0..asks {
                all += u64::from(allows(&mut limiter, &mut slots, "192.0.2.1", now));
                let is_watched = matches!(limiter.entry(0, &[4, 32, 192, 0, 2, 1], &mut slots), Some(crate::table::slot::Entry::Watched(_)));
                if !is_watched { cold = all; }
            }
            if let Some(key) = limiter.report(&mut slots, false, now).and_then(|mut report| report.keys.pop()) {
                prop_assert!(key.admitted <= all, "{} of {all}", key.admitted);
                prop_assert!(key.admitted >= all - cold, "{} of {all}, {cold} of them cold", key.admitted);
            }
        }
    }
}
