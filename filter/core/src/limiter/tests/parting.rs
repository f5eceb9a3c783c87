//! What a worker that ends leaves to the others.

use super::*;
use crate::fleet::PARTING_BYTES_MAX;

/// A worker whose fleet has so many POPs that a key with a burst of 10 is watched from its second request on.
fn worker(number: u64) -> Limiter {
    let mut limiter = limiter(one_rule("1/m", 10), Some(number));
    limiter.record_reply(4, false, T0);
    limiter
}

fn counts(report: Option<Report>) -> Vec<(u64, u64)> {
    let keys = report.map(|report| report.keys).unwrap_or_default();
    keys.iter().map(|key| (key.admitted, key.unconfirmed)).collect()
}

#[test]
fn what_no_answer_has_confirmed_the_next_worker_reports() {
    let (mut first, mut second, mut slots) = (worker(1), worker(2), LocalSlots::new(64));
    assert_eq!(admitted(&mut first, &mut slots, "192.0.2.1", 5, T0), 5);
    let report = first.report(&mut slots, false, T0).unwrap();
    answer(&mut first, &mut slots, &report, 4, grant(1, 1, 9_000), T0);
    assert_eq!(first.leave(&[]), None, "it is confirmed");
    assert_eq!(admitted(&mut first, &mut slots, "192.0.2.2", 6, T0), 6);
    assert_eq!(first.report(&mut slots, false, T0).unwrap().keys.len(), 1, "under way when it ends");
    assert_eq!(admitted(&mut first, &mut slots, "192.0.2.3", 7, T0), 7);
    let left = first.leave(&[]).unwrap();
    second.inherit(&left, &slots, T0);
    let mut said = counts(second.report(&mut slots, false, T0));
    said.sort_unstable();
    assert_eq!(said, [(6, 6), (7, 7)]);
}

#[test]
fn what_two_workers_knew_is_left_once() {
    let (mut first, mut second, mut slots) = (worker(1), worker(2), LocalSlots::new(64));
    assert_eq!(admitted(&mut first, &mut slots, "192.0.2.1", 5, T0), 5);
    let left = first.leave(&[]).unwrap();
    assert!(allows(&mut second, &mut slots, "192.0.2.1", T0));
    assert_eq!(second.leave(&left), None);
    assert_eq!(admitted(&mut second, &mut slots, "192.0.2.2", 5, T0), 5);
    let both = second.leave(&left).unwrap();
    let mut third = worker(3);
    third.inherit(&both, &slots, T0);
    assert_eq!(third.report(&mut slots, false, T0).unwrap().keys.len(), 2);
}

#[test]
fn it_is_bounded_and_whole_up_to_the_bound() {
    let mut slots = LocalSlots::new(4_096);
    let mut left = Vec::new();
    for number in 0..3 {
        let mut one = worker(number);
        for key in 0..3_500_u64 {
            let address = std::format!("2001:db8:{number}:{key:x}::1");
            assert!(admitted(&mut one, &mut slots, &address, 3, T0) > 0);
        }
        left = one.leave(&left).unwrap();
        assert!(left.len() <= PARTING_BYTES_MAX);
    }
    // Two bytes of rule, eleven of key.
    assert!(left.len() > PARTING_BYTES_MAX - 13 && left.len() % 13 == 0, "{} bytes", left.len());
    let mut heir = worker(9);
    heir.inherit(&left, &slots, T0);
    let watched = heir.leave(&[]).map(|left| left.len() / 13);
    assert_eq!(watched, Some(4_096), "as many as its list holds");
    assert_eq!(
        usize::try_from(heir.counters().take_event(CountedEvent::SyncDropped)).unwrap(),
        left.len() / 13 - 4_096
    );
}

#[test]
fn a_rule_that_is_not_in_force_is_passed_over() {
    let (mut first, mut slots) = (worker(1), LocalSlots::new(64));
    assert_eq!(admitted(&mut first, &mut slots, "192.0.2.1", 5, T0), 5);
    let left = first.leave(&[]).unwrap();
    let others = rules(&json!([{"name": "other", "key": ["client_address"], "rate": "1/m", "burst": 10}]));
    let mut second = limiter(others, Some(2));
    second.inherit(&left, &slots, T0);
    assert_eq!(second.report(&mut slots, false, T0), None);
}

proptest! {
    #[test]
    fn nonsense_is_passed_over(
        left in prop::collection::vec(any::<u8>(), 0..300),
        copies in prop_oneof![Just(1_usize), Just(1_000)],
    ) {
        let left = left.repeat(copies);
        let (mut limiter, mut slots) = (worker(1), LocalSlots::new(4));
        limiter.inherit(&left, &slots, T0);
        prop_assert_eq!(limiter.report(&mut slots, false, T0), None);
        admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0);
        let all = limiter.leave(&left).unwrap();
        prop_assert!(all.len() <= PARTING_BYTES_MAX);
        let mut heir = worker(2);
        heir.inherit(&all, &slots, T0);
        let is_reported = heir.report(&mut slots, false, T0).is_some();
        prop_assert!(is_reported || all.len() > PARTING_BYTES_MAX / 2, "what can be read may have left no room");
    }
}
