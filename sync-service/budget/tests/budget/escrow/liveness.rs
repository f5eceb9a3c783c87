//! A strict budget's tokens can be spent: while messages get through, little is lost by being strict.
//!
//! Tests of I6.

use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use super::pop::{Pop, Report};
use super::{SECOND_US, Store, quota};

/// Report interval of a POP, in microseconds.
const INTERVAL_US: u64 = 100_000;
/// Time of a message on its way, in microseconds.
const TRIP_US: u64 = 25_000;
/// The step of these runs, in microseconds.
const STEP_US: u64 = 1_000;

/// A minute in which one POP is asked for a token every `asked_every_us` and wants `ahead`; every
/// `lost_every`th answer is lost. Returns what it admitted, as a part of what the quota alone allows.
fn admitted(quota: Quota, asked_every_us: u64, ahead: u32, lost_every: u64) -> f64 {
    let (mut store, mut pop) = (Store::new(RefillPolicy::Continuous, quota), Pop::new(1));
    let mut on_the_way: Vec<(u64, Report)> = Vec::new();
    let mut answers = Vec::new();
    let (mut admitted, mut epoch, mut answered) = (0_u32, 1, 0_u64);
    for now_us in (0..60 * SECOND_US).step_by(usize::try_from(STEP_US).unwrap()) {
        if now_us % INTERVAL_US == 0 {
            epoch += 1;
            on_the_way.push((now_us + TRIP_US, pop.report(now_us, ahead, epoch)));
        }
        for (_, report) in on_the_way.extract_if(.., |(at_us, _)| *at_us <= now_us) {
            let lease = store.claim(now_us, report.claim);
            answered += 1;
            if answered % lost_every != 0 {
                answers.push((now_us + TRIP_US, report, lease));
            }
        }
        for (_, report, lease) in answers.extract_if(.., |(at_us, ..)| *at_us <= now_us) {
            epoch += 1;
            pop.observe(now_us, &report, lease, epoch);
        }
        if now_us % asked_every_us == 0 {
            admitted += u32::from(pop.spend(now_us, 1) == 1);
        }
    }
    let asked = 60 * SECOND_US / asked_every_us;
    let allowed = u64::from(quota.burst()) + 60 * SECOND_US * 1_000 / quota.token_ns();
    f64::from(admitted) / f64::from(u32::try_from(asked.min(allowed)).unwrap())
}

#[test]
fn a_steady_client_gets_the_full_rate_despite_lost_answers() {
    for (rate, asked_every_us, ahead, lost_every) in [
        (100, 5_000, 40, u64::MAX),
        (100, 20_000, 20, u64::MAX),
        (5, 200_000, 1, u64::MAX),
        (5, 100_000, 2, u64::MAX),
        (100, 5_000, 80, 10),
        (100, 5_000, 80, 2),
    ] {
        let ratio = admitted(quota(rate, Period::Second, rate), asked_every_us, ahead, lost_every);
        assert!((0.99..=1.0).contains(&ratio), "{rate}/s, {ahead} ahead, every {lost_every}th lost: {ratio}");
    }
}

/// If a client leaves, what its POP had ahead is missing until the lease ends, or until it is given back.
#[test]
fn a_client_that_moves_costs_at_most_what_was_ahead() {
    let quota = quota(10, Period::Second, 10);
    let spent = |gives_back: bool| {
        let (mut store, mut spent) = (Store::new(RefillPolicy::Continuous, quota), 0);
        for epoch in 0..300_u64 {
            let now_us = 1 + epoch * 200_000;
            let mut pop = Pop::new(epoch);
            let report = pop.report(now_us, 2, 0);
            let lease = store.claim(now_us, report.claim);
            pop.observe(now_us, &report, lease, 0);
            spent += pop.spend(now_us, 1);
            if gives_back {
                let report = pop.give_back(now_us, 0);
                store.claim(now_us, report.claim);
            }
        }
        spent
    };
    assert_eq!(spent(true), 300, "half the rate, all served");
    let kept = spent(false);
    assert!((150..300).contains(&kept), "at worst two tokens for one: {kept}");
}
