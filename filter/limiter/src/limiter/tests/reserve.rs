//! Tokens that a request reserves until its response states its cost.

use super::*;
use crate::table::EntryPlace;
use alloc::format;
use weir_protocol::quota::Quota;

const ADDRESS: &str = "192.0.2.1";

/// A rule of 10/s, with a burst of 100, that reserves 30 of them.
fn reserving(fields: &Value) -> Value {
    changed(
        json!({
            "name": "r", "key": ["client_address"], "rate": "10/s", "burst": 100,
            "cost": {"after": {"metadata": ["llm", "total_tokens"]}, "reserve": 30},
        }),
        fields,
    )
}

fn alone() -> (Limiter, LocalSlots) {
    (limiter(rules(&json!([reserving(&json!({}))])), None), LocalSlots::new(1))
}

/// The action for the end of a request that is let through.
fn begun(limiter: &mut Limiter, slots: &mut LocalSlots, now: Time) -> EndAction {
    afterwards(ask(limiter, slots, ADDRESS, now)).remove(0)
}

/// The bucket of the key that has this place.
fn bucket_of(place: EntryPlace, slots: &mut LocalSlots, now: Time) -> Bucket {
    let mut slot = Slot::empty();
    slots.read(place.slot, &mut slot).unwrap();
    slot.find_or_new(place.tag, now).entry.bucket()
}

fn quota() -> Quota {
    Quota::new("10/s".parse().unwrap(), 100).unwrap()
}

#[test]
fn every_algorithm_that_charges_afterwards_reserves() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let fields = json!({
            "algorithm": algorithm, "rate": "10/h", "burst": null,
            "cost": {"after": {"metadata": ["llm", "total_tokens"]}, "reserve": 4},
        });
        let mut rule = reserving(&fields);
        rule.as_object_mut().unwrap().remove("burst");
        let (mut limiter, mut slots) = (limiter(rules(&json!([rule])), None), LocalSlots::new(1));
        let first = begun(&mut limiter, &mut slots, T0);
        let second = begun(&mut limiter, &mut slots, T0 + MS);
        assert!(!allows(&mut limiter, &mut slots, ADDRESS, T0 + 2 * MS), "{algorithm}");
        limiter.charge(first, 2, &mut slots, T0 + 3 * MS);
        let third = begun(&mut limiter, &mut slots, T0 + 4 * MS);
        assert!(!allows(&mut limiter, &mut slots, ADDRESS, T0 + 5 * MS), "{algorithm}: 2 and 4 and 4 of 10");
        limiter.charge(second, 4, &mut slots, T0 + 6 * MS);
        limiter.charge(third, 5, &mut slots, T0 + 6 * MS);
        assert!(!allows(&mut limiter, &mut slots, ADDRESS, T0 + 7 * MS), "{algorithm}");
    }
}

/// A step of a client among several, and of the clock.
#[derive(Clone, Debug)]
enum Move {
    /// A request that will cost `cost`.
    Asks { client: usize, cost: u32 },
    /// The open request at `place`, from the oldest, ends.
    Ends { place: usize },
    /// Time passes; the workers' clock may step back a little.
    Waits { ns: i64 },
}

fn moves(clients: usize) -> impl Strategy<Value = Vec<Move>> {
    let asks = (0..clients, 0u32..70).prop_map(|(client, cost)| Move::Asks { client, cost });
    let ends = (0usize..8).prop_map(|place| Move::Ends { place });
    let waits = (-1_000i64..4_000_000_000).prop_map(|ns| Move::Waits { ns });
    prop::collection::vec(prop_oneof![3 => asks, 3 => ends, 1 => waits], 1..200)
}

/// A key's bucket as it would be had each request been charged what it cost when it came, as far as that was
/// reserved, and the rest when it ended.
#[derive(Clone)]
struct Exact {
    bucket: Bucket,
    /// Admitted tokens with their times, without debt.
    admitted: Vec<(Time, u64)>,
}

/// Plays `moves` to two workers. Returns true if no bucket was ever fuller than it ought to be, and the exact
/// buckets in the end.
fn play(moves: &[Move], clients: usize) -> (bool, Vec<Exact>) {
    let ((mut a, mut slots), (mut b, _)) = (alone(), alone());
    let mut exact = vec![Exact { bucket: Bucket::FULL, admitted: vec![] }; clients];
    let mut places: Vec<Option<EntryPlace>> = vec![None; clients];
    let (mut open, mut now): (Vec<(usize, u32, EndAction)>, Time) = (Vec::new(), T0);
    let mut is_within = true;
    for (n, step) in moves.iter().enumerate() {
        let worker = if n % 2 == 0 { &mut a } else { &mut b };
        match *step {
            Move::Waits { ns } => now = Time::from_nanos(now.as_nanos().saturating_add_signed(ns)),
            Move::Asks { client, cost } => {
                let address = format!("10.0.0.{client}");
                if let Decision::Allow { afterwards, .. } = ask(worker, &mut slots, &address, now) {
                    let done = afterwards.into_iter().next().unwrap();
                    places[client] = Some(done.place);
                    let at_once = cost.min(30);
                    exact[client].bucket = exact[client].bucket.charged(&quota(), at_once, now);
                    exact[client].admitted.push((now, u64::from(at_once)));
                    open.push((client, cost, done));
                }
            }
            Move::Ends { place } if place < open.len() => {
                let (client, cost, done) = open.remove(place);
                worker.charge(done, cost, &mut slots, now);
                exact[client].bucket = exact[client].bucket.charged(&quota(), cost.saturating_sub(30), now);
            }
            Move::Ends { .. } => {}
        }
        for (place, exact) in places.iter().zip(&exact) {
            let Some(place) = place else { continue };
            let bucket = bucket_of(*place, &mut slots, now);
            is_within &= bucket.refilled().max(now) >= exact.bucket.refilled().max(now);
        }
    }
    (is_within, exact)
}

proptest! {
    /// I3: whatever the order in which requests come and end, no bucket is ever fuller than if each had been
    /// charged what it cost; so what is admitted stays within burst + rate x t, and debts are paid first.
    #[test]
    fn reserving_never_leaves_a_fuller_bucket_than_charging(moves in moves(3)) {
        let (is_within, exact) = play(&moves, 3);
        prop_assert!(is_within);
        for Exact { admitted, .. } in exact {
            for (i, (from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (to, cost) in &admitted[i..] {
                    sum += cost;
                    // The clock may have stepped back by a microsecond at each step.
                    let most = 100 + (to.nanos_since(*from) + 200_000) / quota().token_ns();
                    prop_assert!(sum <= most, "{sum} within {} ns", to.nanos_since(*from));
                }
            }
        }
    }

    /// With forty clients most keys lose their place in the slot while their requests are open.
    // I3
    #[test]
    fn evicted_keys_are_never_fuller_than_by_charging(moves in moves(40)) {
        prop_assert!(play(&moves, 40).0);
    }

    /// As long as the bucket is not full meanwhile, it is exactly as if each request had been charged what it cost.
    // I3
    #[test]
    fn nothing_is_lost_where_nothing_refills_to_the_brim(costs in prop::collection::vec(0u32..70, 1..30)) {
        let (mut limiter, mut slots) = alone();
        // Seven tenths are gone for good, so the bucket lacks some until the seventh second.
        let mut exact = Bucket::FULL.charged(&quota(), 70, T0);
        let done = begun(&mut limiter, &mut slots, T0);
        limiter.charge(done, 70, &mut slots, T0);
        let mut place = None;
        for (n, cost) in (0u64..).zip(costs) {
            let now = T0 + n * 200 * MS;
            let Decision::Allow { mut afterwards, .. } = ask(&mut limiter, &mut slots, ADDRESS, now) else {
                continue;
            };
            let done = afterwards.remove(0);
            place = Some(done.place);
            exact = exact.charged(&quota(), cost, now);
            limiter.charge(done, cost, &mut slots, now + 100 * MS);
        }
        if let Some(place) = place {
            prop_assert_eq!(bucket_of(place, &mut slots, T0), exact);
        }
    }
}
