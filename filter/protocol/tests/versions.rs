//! The version of the messages, and the limits of a report.

use weir_protocol::messages::{
    Allowance, BudgetRule, COUNTED_MAX, HELD_MS_MAX, HeldEpoch, Key, MODULE_MAX, Message, Reply, Report, RuleCounts,
    Settled, StatusReport, VERSION, WireError,
};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;

fn report() -> Report {
    let quota = Quota::from_token_ns(100_000_000, 100).unwrap();
    let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
    let key = Key { value: vec![4, 32, 192, 0, 2, 1], admitted: 7, unconfirmed: 7, asked: 7, ..Key::default() };
    Report { pop: "fra1".into(), sequence: 1, rules, keys: vec![key; 3], ..Report::default() }
}

fn reply(settled: Settled) -> Reply {
    Reply { sequence: 1, pops: 1, settled, grants: vec![Allowance::Warm; 3], ..Reply::default() }
}

// I9
#[test]
fn a_message_of_another_version_is_refused_by_name() {
    for bytes in [report().encode(), reply(Settled::All).encode()] {
        let other = [&[VERSION + 6], &bytes[1..]].concat();
        let refusal = WireError::Version(VERSION + 6);
        assert_eq!((Report::decode(&other), Reply::decode(&other)), (Err(refusal), Err(refusal)));
        assert_eq!(refusal.to_string(), "the message has version 7, expected 1");
    }
}

#[test]
fn settled_covers_each_charged_key() {
    for charged in [[true, false, true], [false, true, false], [false, false, false], [true, true, true]] {
        let settled = Settled::of(charged.into_iter());
        let read = Reply::decode(&reply(settled.clone()).encode()).unwrap().settled;
        assert_eq!((&read, [0, 1, 2].map(|place| read.covers(place))), (&settled, charged));
    }
    let many = Settled::of((0..20).map(|place| place != 11));
    assert_eq!(many, Settled::But(vec![0, 0b1000, 0]));
    assert!((0..24).all(|place| many.covers(place) == (place != 11)) && !many.covers(24));
    for bytes in [0, 2, 1_000] {
        let wrong = reply(Settled::But(vec![0; bytes])).encode();
        assert_eq!(Reply::decode(&wrong), Err(WireError::Limit("settled")), "{bytes}");
    }
}

#[test]
fn a_report_lists_held_epochs_and_their_times() {
    let held = |key, for_ms| HeldEpoch { key, for_ms };
    let holding = |held: &[HeldEpoch], strict| {
        let mut report = report();
        report.rules[0].sharing.strict = strict;
        Report { held: held.to_vec(), ..report }
    };
    let two = holding(&[held(0, 60_000), held(2, 0)], true);
    let read = Report::decode(&two.encode()).unwrap();
    assert_eq!((&read, [0, 1, 2, 3].map(|place| read.held_ms(place))), (&two, [Some(60_000), None, Some(0), None]));
    for (field, wrong) in [
        ("held[].key", holding(&[held(0, 1)], false)),
        ("held[].key", holding(&[held(3, 1)], true)),
        ("held[].for_ms", holding(&[held(0, HELD_MS_MAX + 1)], true)),
        ("held", holding(&[held(1, 1), held(1, 2)], true)),
        ("held", holding(&[held(2, 1), held(0, 1)], true)),
    ] {
        assert_eq!(Report::decode(&wrong.encode()), Err(WireError::Limit(field)));
    }
}

#[test]
fn a_report_carries_its_pops_status() {
    let counts = RuleCounts { name: "login".into(), decided: [1 << 40, 300, 0, u64::MAX] };
    let status = StatusReport {
        step: 1,
        unix_ms: 1_700_000_000_000,
        module: "0.1.0".into(),
        every_ms: 1_000,
        rules: vec![counts.clone()],
        refusal: "rules: expected a list".into(),
        blocked: 7,
    };
    let with_status = |status: StatusReport| Report { status: Some(status), ..report() };
    assert_eq!(Report::decode(&with_status(status.clone()).encode()), Ok(with_status(status.clone())));
    let unnamed = RuleCounts { name: String::new(), ..counts.clone() };
    for (field, wrong) in [
        ("status.step", StatusReport { step: 3, ..status.clone() }),
        ("status.module", StatusReport { module: "x".repeat(MODULE_MAX + 1), ..status.clone() }),
        ("status.rules", StatusReport { rules: vec![counts; COUNTED_MAX + 1], ..status.clone() }),
        ("status.rules[].name", StatusReport { rules: vec![unnamed], ..status.clone() }),
    ] {
        assert_eq!(Report::decode(&with_status(wrong).encode()), Err(WireError::Limit(field)));
    }
}
