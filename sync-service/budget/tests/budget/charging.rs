//! Every admitted token is charged exactly once, whatever the network does; time only ever refills.

use proptest::prelude::*;
use weir_budget::budget::{
    Budget, Charge, Count, DEFICIT_NS_MAX, Demand, GRACE_US, REPLICA_IDLE_US, REPLICAS_MAX, STEP_KEPT_US,
};
use weir_budget::records::FAN_OUT_KEPT_US;
use weir_protocol::quota::{Period, Quota};

use crate::{SECOND_US, quota};

fn charge(budget: &mut Budget, now_us: u64, quota: Quota, pop: &str, counts: &[(u64, u64, u64)]) -> u64 {
    let count =
        |&(epoch, admitted, unconfirmed)| Count { epoch, admitted, unconfirmed, span_us: 0, missing: 0, made_ms: 0 };
    let counts: Vec<Count> = counts.iter().map(count).collect();
    let charge = Charge { quota, replica: "fra", demand: Demand::default(), pop, counts: &counts };
    budget.charge(now_us, &charge).charged
}

/// A report arrives at `now_ms` that POP a made at `made_ms` by its own clock. Returns the deficit after it.
fn deficit_after(budget: &mut Budget, now_ms: u64, quota: Quota, admitted: u64, span_ms: u64, made_ms: u64) -> u64 {
    let count = Count { epoch: 1, admitted, unconfirmed: admitted, span_us: span_ms * 1_000, missing: 0, made_ms };
    deficit_after_count(budget, now_ms, quota, count)
}

fn deficit_after_count(budget: &mut Budget, now_ms: u64, quota: Quota, count: Count) -> u64 {
    let charge = Charge { quota, replica: "fra", demand: Demand::default(), pop: "a", counts: &[count] };
    budget.charge(now_ms * 1_000, &charge).deficit_ns
}

/// A POP's bucket is empty all the time: at each report it lacks a whole burst, which is all that the budget may lack
/// once the reports of a silence have arrived, in whichever order.
// I5
#[test]
fn delayed_reports_of_an_empty_bucket_leave_the_debt_of_that_bucket() {
    let (quota, begin_ms, silent_ms) = (quota(8, Period::Second, 8), 1_000, 4_000);
    let burst = u64::from(quota.burst());
    for held_up in [
        &[4_000_u64][..],
        &[500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500, 4_000],
        &[1_500, 2_500, 3_000, 3_500, 500, 2_000, 1_000, 4_000],
    ] {
        let mut budget = Budget::default();
        let count = |ms: u64| Count {
            epoch: 1,
            admitted: burst + ms * 1_000_000 / quota.token_ns(),
            unconfirmed: ms * 1_000_000 / quota.token_ns(),
            span_us: (ms + 250) * 1_000,
            missing: burst,
            made_ms: 77_000 + ms,
        };
        deficit_after_count(&mut budget, begin_ms, quota, count(0));
        let arrives_ms = begin_ms + silent_ms;
        let after = |ms: &u64| deficit_after_count(&mut budget, arrives_ms, quota, count(*ms));
        let owed = held_up.iter().map(after).last().unwrap();
        assert_eq!(owed, quota.fill_ns(), "{held_up:?}");
    }
}

/// Replies are lost, so the spans in reports grow. The reports arrive, so the budget still knows when tokens were new.
// I4
#[test]
fn a_rest_does_not_pay_for_the_burst_after_it() {
    let quota = quota(50, Period::Second, 50);
    let (mut budget, mut span_ms) = (Budget::default(), 0);
    deficit_after(&mut budget, 1_000, quota, 1, 0, 1_000);
    // Reports take up to 90 ms more or less, and the POP's clock is slow by a thousandth.
    for n in 1..240 {
        span_ms += 250;
        let (now_ms, made_ms) = (1_000 + n * 250 + n * 37 % 90, 1_000 + n * 250 - n / 4);
        assert_eq!(deficit_after(&mut budget, now_ms, quota, 1, span_ms, made_ms), 0);
    }
    let owed = deficit_after(&mut budget, 61_045, quota, 51, span_ms + 250, 60_940);
    // A quarter of a second, the longest trip, and a quarter of a second more.
    assert!(owed >= 50 * quota.token_ns() - 610_000_000, "{owed}");
}

// I2
#[test]
fn replicas_are_bounded_and_the_silent_are_forgotten() {
    let (quota, mut budget, mut replicas) = (quota(1, Period::Second, 1), Budget::default(), 0);
    let mut charge_as = |now_us, replica: &str| {
        let charge = Charge { quota, replica, demand: Demand::default(), pop: "a", counts: &[] };
        let account = budget.charge(now_us, &charge);
        assert!(account.replicas.iter().any(|m| *m.name == *replica && m.age_us == 0));
        account.replicas.len()
    };
    for at_us in 0..2 * REPLICAS_MAX as u64 {
        replicas = charge_as(at_us, &format!("region-{at_us:04}"));
    }
    assert_eq!(replicas, REPLICAS_MAX);
    assert_eq!(charge_as(2 * REPLICA_IDLE_US, "late"), 1);
}

#[test]
fn a_budget_is_kept_as_long_as_its_fan_out() {
    let (quota, mut budget) = (quota(10, Period::Second, 20), Budget::default());
    charge(&mut budget, 0, quota, "a", &[(1, 20, 20)]);
    assert_eq!(budget.expires_us(), 2 * SECOND_US + GRACE_US, "one burst is nothing to remember");
    charge(&mut budget, 0, quota, "a", &[(1, 100, 0)]);
    let forgotten_us = 8 * SECOND_US + FAN_OUT_KEPT_US;
    assert_eq!(budget.expires_us(), forgotten_us + STEP_KEPT_US, "four bursts are owed");
    let fan_out_at = |budget: &mut Budget, now_us| {
        let charge = Charge { quota, replica: "fra", demand: Demand::default(), pop: "a", counts: &[] };
        budget.charge(now_us, &charge).fan_out
    };
    (1..=8).for_each(|s| assert_eq!(fan_out_at(&mut budget, s * SECOND_US), 5));
    assert_eq!(fan_out_at(&mut budget, forgotten_us - 1), 5);
    assert_eq!(fan_out_at(&mut budget, forgotten_us), 0);
    assert_eq!(budget.expires_us(), forgotten_us + GRACE_US);
}

/// A report on its way: (pop, epoch, admitted, unconfirmed).
type Sent = (usize, u64, u64, u64);

/// Step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Admit {
        pop: usize,
        tokens: u64,
    },
    Send {
        pop: usize,
    },
    /// Delivers any report that was ever sent (late, twice, out of order), and perhaps its reply.
    Deliver {
        which: prop::sample::Index,
        reply: bool,
    },
    /// The bucket is made anew; its last counts were reported with the next report.
    NewEpoch {
        pop: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_usize, 1..50_u64).prop_map(|(pop, tokens)| Step::Admit { pop, tokens }),
        (0..3_usize).prop_map(|pop| Step::Send { pop }),
        (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(which, reply)| Step::Deliver { which, reply }),
        (0..3_usize).prop_map(|pop| Step::NewEpoch { pop }),
    ]
}

proptest! {
    /// I7: what is charged in all is what was admitted in all, however reports are lost, repeated and reordered, if the
    /// last report of each epoch arrives.
    #[test]
    fn every_admitted_token_is_charged_exactly_once(steps in prop::collection::vec(step(), 1..200)) {
        let quota = quota(1, Period::Day, 400);
        let mut budget = Budget::default();
        let (mut charged, mut total) = (0, 0);
        // Per POP: epoch, admitted, confirmed.
        let mut pops = [(0_u64, 0_u64, 0_u64); 3];
        let mut sent: Vec<Sent> = Vec::new();
        let mut last_words: Vec<Sent> = Vec::new();
        let deliver = |budget: &mut Budget, (pop, epoch, admitted, unconfirmed): Sent| {
            charge(budget, 0, quota, ["a", "b", "c"][pop], &[(epoch, admitted, unconfirmed)])
        };
        for step in steps {
            match step {
                Step::Admit { pop, tokens } => { pops[pop].1 += tokens; total += tokens; }
                Step::Send { pop } => { let (e, a, c) = pops[pop]; sent.push((pop, e, a, a - c)); }
                Step::Deliver { which, reply } if !sent.is_empty() => {
                    let report = *which.get(&sent);
                    charged += deliver(&mut budget, report);
                    let (epoch, _, confirmed) = pops[report.0];
                    if reply && epoch == report.1 { pops[report.0].2 = confirmed.max(report.2); }
                }
                Step::Deliver { .. } => {}
                Step::NewEpoch { pop } => {
                    let (epoch, admitted, confirmed) = pops[pop];
                    last_words.push((pop, epoch, admitted, admitted - confirmed));
                    pops[pop] = (epoch + 1, 0, 0);
                }
            }
            prop_assert!(charged <= total);
        }
        last_words.extend((0..3).map(|pop| { let (e, a, c) = pops[pop]; (pop, e, a, a - c) }));
        for report in last_words {
            charged += deliver(&mut budget, report);
        }
        prop_assert_eq!(charged, total);
        prop_assert_eq!(budget.deficit_ns(), total * quota.token_ns());
    }

    /// A store that loses its data still charges each token at least once, and exactly once if no reply was lost.
    // I7
    #[test]
    fn forgetting_heals(
        rounds in prop::collection::vec((0..50_u64, any::<bool>(), any::<bool>()), 1..60),
        lossy in any::<bool>(),
    ) {
        let quota = quota(1, Period::Day, 400);
        let (mut budget, mut admitted, mut confirmed, mut charged) = (Budget::default(), 0, 0, 0);
        for (tokens, forget, lose_reply) in rounds {
            admitted += tokens;
            if forget { budget = Budget::default(); }
            charged += charge(&mut budget, 0, quota, "a", &[(1, admitted, admitted - confirmed)]);
            prop_assert!(charged >= admitted);
            if !(lossy && lose_reply) { confirmed = admitted; }
        }
        if !lossy { prop_assert_eq!(charged, admitted); }
    }

    /// The reports of a steady client are held up, repeated and reordered. Once the last has arrived, the client
    /// owes what it would owe if each had arrived at once; before that, at most a burst more.
    #[test]
    fn held_up_reports_of_a_steady_client_leave_no_debt(
        gaps in prop::collection::vec((1..2_000_u64, 0..4_000_u64), 1..25),
        rate in 1..1_000_u32,
        milli in 100..=1_000_u64,
    ) {
        let quota = quota(rate, Period::Second, rate);
        let admitted = |ms: u64| u64::from(rate) + ms * u64::from(rate) * milli / 1_000_000;
        let (mut made_ms, mut arrivals) = (0, vec![(0, 0)]);
        for (gap_ms, delay_ms) in gaps {
            made_ms += gap_ms;
            arrivals.push((made_ms + delay_ms, made_ms));
        }
        arrivals.push((made_ms + 4_000, made_ms + 4_000));
        arrivals.sort_unstable();
        let mut budget = Budget::default();
        let mut owed = 0;
        for (at_ms, made_ms) in arrivals {
            owed = deficit_after(&mut budget, 1_000 + at_ms, quota, admitted(made_ms), made_ms, made_ms);
            prop_assert!(owed <= quota.fill_ns() + 3 * quota.token_ns() + at_ms * 20_000, "{} at {}", owed, at_ms);
        }
        // A bucket that counts each token at once.
        let naive_ns = quota.fill_ns().saturating_sub((made_ms + 4_000) * (1_000 - milli) * 1_000);
        prop_assert!(owed <= naive_ns + 3 * quota.token_ns() + (made_ms + 4_000) * 20_000, "{} for {}", owed, naive_ns);
    }

    /// I8 and the maxima hold for any input and any clock.
    #[test]
    fn anything_goes(charges in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 1..50)) {
        let quota = quota(1_000_000, Period::Second, 1);
        let mut budget = Budget::default();
        for (now_us, epoch, admitted, unconfirmed) in charges {
            // As large as a store that only has doubles can hold.
            let now_us = now_us >> 11;
            charge(&mut budget, now_us, quota, "a", &[(epoch % 4, admitted, unconfirmed)]);
            prop_assert!(budget.deficit_ns() <= DEFICIT_NS_MAX);
            prop_assert!(budget.expires_us() >= now_us);
        }
    }
}

/// If the store's clock steps a little forward, that looks like a delay, which is soon forgotten. A larger step
/// does not.
// I4
#[test]
fn a_clock_step_counts_as_a_delay_for_a_while_only() {
    let quota = quota(50, Period::Second, 50);
    let owed_after = |seconds: u64, jump_ms: u64| {
        let mut budget = Budget::default();
        deficit_after(&mut budget, 1_000, quota, 1, 0, 1_000);
        for n in 0..4 * seconds {
            deficit_after(&mut budget, jump_ms + n * 250, quota, 1, 250, 1_250 + n * 250);
        }
        deficit_after(&mut budget, jump_ms + seconds * 1_000, quota, 51, 250, 1_250 + seconds * 1_000)
    };
    let its_span_and_as_much_again = 50 * quota.token_ns() - 500_000_000;
    assert_eq!(owed_after(1, 9_000), 0, "nine seconds are accepted");
    assert_eq!(owed_after(1_001, 9_000), its_span_and_as_much_again);
    assert_eq!(owed_after(1, 3_600_000), its_span_and_as_much_again);
}

// I8
#[test]
fn a_clock_that_steps_back_gives_nothing() {
    let (quota, mut budget) = (quota(10, Period::Second, 20), Budget::default());
    charge(&mut budget, 100 * SECOND_US, quota, "a", &[(1, 20, 20)]);
    let before = budget.deficit_ns();
    for now_us in [99 * SECOND_US, 50 * SECOND_US, 0] {
        charge(&mut budget, now_us, quota, "a", &[(1, 20, 0)]);
        assert_eq!(budget.deficit_ns(), before, "at {now_us}");
    }
    charge(&mut budget, SECOND_US, quota, "a", &[(1, 20, 0)]);
    assert_eq!(before - budget.deficit_ns(), 1_000_000_000, "and goes on from where it stepped to");
}

/// Level of the budget under this quota.
fn level(budget: &mut Budget, now_us: u64, quota: Quota, pop: &str) -> u64 {
    charge(budget, now_us, quota, pop, &[]);
    quota.fill_ns().saturating_sub(budget.deficit_ns()) / quota.token_ns()
}

proptest! {
    /// POPs that admit what the budget has by their own quota, and report it at once, get no more together than the
    /// larger burst and the larger rate x t.
    // I4
    #[test]
    fn a_new_quota_admits_at_most_the_larger_burst_and_rate(
        rates in [1_u32..200, 1..200],
        bursts in [1_u32..300, 1..300],
        steps in prop::collection::vec((0_u64..3_000_000, 0_usize..2, 0_u64..400), 1..60),
    ) {
        let quotas = [0, 1].map(|of| quota(rates[of], Period::Second, bursts[of]));
        let (mut budget, mut now_us, mut admitted) = (Budget::default(), 1_u64 << 50, [0_u64; 2]);
        let begun_us = now_us;
        for (pause_us, of, wanted) in steps {
            now_us += pause_us;
            let pop = ["a", "b"][of];
            let given = wanted.min(level(&mut budget, now_us, quotas[of], pop));
            admitted[of] += given;
            prop_assert_eq!(charge(&mut budget, now_us, quotas[of], pop, &[(1, admitted[of], given)]), given);
            let (burst, rate) = (bursts[0].max(bursts[1]), rates[0].max(rates[1]));
            let most = u64::from(burst) + (now_us - begun_us) * u64::from(rate) / 1_000_000 + 1;
            prop_assert!(admitted[0] + admitted[1] <= most, "{} {:?}", most, admitted);
        }
    }
}
