//! Reports of a POP, and the replies to them.

use super::*;

// I4
#[test]
fn a_key_within_its_fair_share_stays_off_the_wire() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/m", 40), Some(1)), LocalSlots::new(4));
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    assert!(greeting.keys.is_empty());
    answer(&mut limiter, &mut slots, &greeting, 4, grant(1, 1, 0), T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 5);
    assert_eq!(limiter.report(&mut slots, false, T0 + 250 * MS), None);
    // A cold key may use half of a fair share: five of 40 at one POP of four.
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0));
    let report = limiter.report(&mut slots, false, T0 + 500 * MS).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].unconfirmed), (6, 6));
    assert_eq!(report.keys[0].value, [4, 32, 192, 0, 2, 1]);
    assert_eq!(report.rules[0].name, "r");
}

/// Each request is in one report, whichever weir-sync receives it; the demand of a failed report is reported again.
// I5
#[test]
fn demand_is_reported_once_unless_the_report_fails() {
    let (mut limiter, mut slots) = watching();
    let asks = |limiter: &mut Limiter, slots: &mut LocalSlots, at: u64| {
        allows(limiter, slots, "192.0.2.1", T0 + at * MS);
        let report = limiter.report(slots, false, T0 + at * MS).unwrap();
        (report.sequence, report.keys[0].asked_recently)
    };
    assert_eq!(asks(&mut limiter, &mut slots, 0), (1, 2));
    assert_eq!(asks(&mut limiter, &mut slots, 10), (2, 1));
    assert_eq!(asks(&mut limiter, &mut slots, 20), (3, 1));
    limiter.report_failed(2, T0 + 25 * MS);
    assert_eq!(asks(&mut limiter, &mut slots, 30), (4, 3), "the demand of the second, and since");
    limiter.report_failed(1, T0 + 35 * MS);
    limiter.report_failed(3, T0 + 35 * MS);
    assert_eq!(asks(&mut limiter, &mut slots, 40), (5, 6), "all of it");
    limiter.report_failed(4, T0 + 45 * MS);
    limiter.report_failed(5, T0 + 45 * MS);
    assert_eq!(asks(&mut limiter, &mut slots, 50), (6, 7));
}

#[test]
fn a_grant_caps_the_bucket_less_later_admissions() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/m", 20), Some(1)), LocalSlots::new(4));
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    answer(&mut limiter, &mut slots, &greeting, 10, grant(1, 1, 0), T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0), 4);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 2, T0), 2);
    // Five were left in the world when the report was made; two of them are gone.
    answer(&mut limiter, &mut slots, &report, 10, grant(1, 1, 5_000), T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, T0), 3);
}

proptest! {
    /// I7, the POP's half: whatever is lost or repeated, the counts are those of the admitted requests.
    #[test]
    fn reports_add_up_to_what_was_admitted(
        steps in prop::collection::vec((0usize..2, 0u8..3, 0u64..200), 1..200),
    ) {
        let rule_set = one_rule("30/s", 3);
        let mut workers: Vec<_> = (0..2).map(|w| limiter(rule_set.clone(), Some(w))).collect();
        let (mut slots, mut now, mut admitted) = (LocalSlots::new(1), T0, 0u64);
        let (mut epoch, mut charged) = (None, 0u64);
        for (worker, what, step_ms) in steps {
            now += step_ms * MS;
            let limiter = &mut workers[worker];
            admitted += u64::from(allows(limiter, &mut slots, "192.0.2.1", now));
            if what == 0 { continue; }
            let Some(report) = limiter.report(&mut slots, false, now) else { continue };
            for key in &report.keys {
                // The receiver's rule: the maximum of an epoch it knows, else what is unconfirmed.
                charged = match epoch {
                    Some(known) if known == key.epoch => charged.max(key.admitted),
                    _ => charged + key.unconfirmed,
                };
                epoch = Some(key.epoch);
                prop_assert_eq!(charged, key.admitted);
            }
            if what == 1 { limiter.report_failed(report.sequence, T0); } else {
                answer(limiter, &mut slots, &report, 2, grant(1, 1, 3_000), now);
            }
        }
        let last = workers[0].report(&mut slots, false, now + 11 * SECOND_NS);
        let reported = last.and_then(|report| report.keys.first().map(|key| key.admitted));
        prop_assert!(reported.is_none_or(|tokens| tokens <= admitted), "{:?} of {}", reported, admitted);
    }

    /// Reports count admitted and requested tokens, whatever requests cost, and whatever is lost.
    #[test]
    fn reports_add_up_to_the_tokens(
        steps in prop::collection::vec((0u64..200, 1u32..9, 0u8..3), 1..150),
    ) {
        // The rate is so low that nothing refills during the test.
        let rule = json!([{"name": "r", "key": ["client_address"], "rate": "1/d", "burst": 100,
            "cost": {"header": "cost"}}]);
        let mut limiter = limiter(rules(&rule), Some(1));
        let (mut slots, mut now, mut admitted, mut asked) = (LocalSlots::new(1), T0, 0u64, 0u64);
        for (step_ms, cost, what) in steps {
            now += step_ms * MS;
            let stated = std::format!("{cost}");
            let mut request = Asks(vec![("source", "192.0.2.1"), ("cost", &stated)]);
            let is_allowed = limiter.decide(&mut request, &mut slots, now).outcome() == DecisionKind::Allow;
            admitted += if is_allowed { u64::from(cost) } else { 0 };
            asked += u64::from(cost);
            if what == 0 { continue; }
            let Some(report) = limiter.report(&mut slots, false, now) else { continue };
            let key = &report.keys[0];
            prop_assert_eq!((key.admitted, key.asked), (admitted, asked));
            if what == 1 { limiter.report_failed(report.sequence, now); } else {
                answer(&mut limiter, &mut slots, &report, 1, grant(1, 1, 100_000), now);
            }
        }
    }
}
