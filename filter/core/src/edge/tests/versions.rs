//! An edge and a weir-sync that is older.

use super::*;
use crate::counters::Event;
use weir_wire::messages::{AdmitRatio, Grant, Leased, Version};

/// All of a quota.
const WHOLE: Grant =
    Grant { ratio: AdmitRatio::ONE, level_milli: 100_000, burst: 100, parts: 1, lease_ms: 2_000 };

/// weir-sync cannot read what it is sent.
fn not_read() -> Answered {
    Err(Unread::NotRead("status 400".into()))
}

fn version_of(call: &Call) -> Version {
    Report::read(&call.body).expect("a report").0
}

#[test]
fn an_older_weir_sync_is_spoken_to_in_its_version_and_nothing_is_lost() {
    let mut site = site();
    site.set_heard(&Heard { pops: 3, is_guess: false, at: T0 });
    let (mut edge, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut site);
    for _ in 0..10 {
        asked(&mut edge, &mut Open::new(1), &mut site, T0);
    }
    let [first] = calls(edge.tick(&mut site, T0)).try_into().expect("a report");
    assert_eq!(version_of(&first), Version::Latest);
    assert_eq!(logged(&edge.answer(first.number, not_read(), &mut site, T0)), [""; 0]);
    let mut versions = Vec::new();
    for n in 1..=48 {
        let now = T0 + n * INTERVAL_NS;
        let [call] = calls(edge.tick(&mut site, now)).try_into().expect("a report");
        let (version, said) = Report::read(&call.body).expect("a report");
        if n == 1 {
            assert_eq!((said.keys[0].admitted, said.keys[0].unconfirmed), (10, 10), "it is said again");
        }
        let answer =
            if version == Version::Latest { not_read() } else { Ok(reply(&call, &Allowance::Warm, 0)) };
        assert_eq!(logged(&edge.answer(call.number, answer, &mut site, now)), [""; 0]);
        versions.push(version);
    }
    let tried = versions.iter().filter(|version| **version == Version::Latest).count();
    assert_eq!(tried, 1, "once in ten seconds: {versions:?}");
    assert_eq!(edge.counters().take_event(Event::SyncFailed), 2);
}

/// An older weir-sync that is far away.
#[test]
fn reports_that_were_under_way_when_the_first_was_not_read_say_nothing_against_weir_sync() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut site);
    let under_way: Vec<Call> =
        (0..3).flat_map(|n| calls(edge.tick(&mut site, T0 + n * INTERVAL_NS))).collect();
    assert_eq!(under_way.len(), 3);
    let late = T0 + 3 * INTERVAL_NS;
    for call in &under_way {
        assert_eq!(logged(&edge.answer(call.number, not_read(), &mut site, late)), [""; 0]);
    }
    let [call] = calls(edge.tick(&mut site, late)).try_into().expect("a report");
    assert_eq!(version_of(&call), Version::Before);
    let refused_again = edge.answer(call.number, not_read(), &mut site, late + INTERVAL_NS);
    assert_eq!(logged(&refused_again).len(), 1, "it is not for the version");
}

/// As behind one address while an upgrade is under way.
#[test]
fn of_an_older_and_a_newer_weir_sync_in_turn_the_older_refuses_one_report_in_ten_seconds() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "100/s", "burst": 100"#, true, &mut site);
    site.set_heard(&Heard { pops: 30, is_guess: false, at: T0 });
    let (mut refused, mut admitted, mut charged) = (0, 0, 0);
    for n in 0..240 {
        let now = T0 + n * INTERVAL_NS;
        for _ in 0..4 {
            admitted += u64::from(asked(&mut edge, &mut Open::new(1), &mut site, now) == "continue");
        }
        let [call] = calls(edge.tick(&mut site, now)).try_into().expect("a report");
        let (version, said) = Report::read(&call.body).expect("a report");
        let answer = if n % 2 == 0 && version == Version::Latest {
            refused += 1;
            not_read()
        } else {
            charged = said.keys.first().map_or(charged, |key| key.admitted);
            Ok(reply(&call, &Allowance::Hot(WHOLE), 0))
        };
        edge.answer(call.number, answer, &mut site, now);
    }
    assert!((6..=7).contains(&refused), "{refused} in a minute");
    assert_eq!((charged, edge.counters().take_event(Event::SyncFailed)), (admitted, refused));
}

#[test]
fn a_draw_that_an_older_weir_sync_cannot_read_is_made_again_in_its_version() {
    for is_first_ever in [true, false] {
        let (mut site, mut open) = (site(), Open::new(5));
        let (mut edge, _) = configured(STRICT, true, &mut site);
        if !is_first_ever {
            let [greeting] = calls(edge.tick(&mut site, T0)).try_into().expect("a greeting");
            edge.answer(greeting.number, not_read(), &mut site, T0);
        }
        let mut call = waiting(&mut edge, &mut open, &mut site);
        if is_first_ever {
            assert_eq!(version_of(&call), Version::Latest);
            call = answered(&mut edge, &mut open, &call, not_read(), &mut site, T0).unwrap_err();
        }
        assert_eq!(version_of(&call), Version::Before);
        let answer = Ok(reply(&call, &Allowance::Leased(Leased::of(1, 2_000)), 0));
        assert_eq!(answered(&mut edge, &mut open, &call, answer, &mut site, T0).unwrap(), "continue");
    }
}
