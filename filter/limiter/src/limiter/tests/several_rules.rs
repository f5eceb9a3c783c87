//! Requests that several rules count, by two keys: what one worker decides, and what several let through together.

use super::*;
use crate::algorithms::Admission;
use weir_protocol::quota::Quota;

/// A client on a path, with a key but for [`KEYLESS`].
fn at(path: &'static str) -> Asks<'static> {
    let key = Some(("x", "a key")).filter(|_| path != KEYLESS);
    Asks([("source", "192.0.2.1:5"), ("path", path)].into_iter().chain(key).collect())
}

const KEYLESS: &str = "/keyless";

/// A quick rule and a slow one for every request, by two keys, and one for some.
fn three() -> RuleSet {
    rules(&json!([
        {"name": "quick", "key": ["client_address"], "rate": "1000/s", "burst": 300},
        {"name": "slow", "key": [{"header": "x"}], "rate": "300/s", "burst": 700, "cost": 2},
        {"name": "some", "key": ["client_address"], "rate": "500/s", "burst": 300,
         "match": {"path": {"prefix": "/some"}}},
    ]))
}

const COSTS: [u32; 3] = [1, 2, 1];

const PATHS: [&str; 3] = [KEYLESS, "/", "/some"];

/// The rules of [`three`], from the first, that count a request to the n-th of [`PATHS`].
fn counting(path: usize) -> impl Iterator<Item = usize> {
    0..=path
}

/// A request.
#[derive(Clone, Debug)]
struct Step {
    /// Milliseconds since the request before.
    pause: u64,
    worker: usize,
    /// Index in [`PATHS`].
    path: usize,
    /// Another worker, and its number of requests after each of a few reads of this one.
    between: Option<(usize, usize)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pace = prop_oneof![3 => Just(0), 1 => 0..300_000u64, 1 => 0..2 * MS];
    let few_or_many = prop_oneof![1..12u32, 1..400u32];
    let pause = prop_oneof![2 => Just(0), 3 => 0..30 * MS, 1 => 0..2 * SECOND_NS];
    let between = prop::option::of((0..3usize, 1..30usize, 1..40u32));
    let run = (pause, pace, few_or_many, 0..3usize, 0..3usize, between);
    prop::collection::vec(run, 1..20).prop_map(|runs| {
        let of = |(pause, pace, n, worker, path, between): (_, _, u32, _, _, Option<(_, _, u32)>)| {
            (0..n).map(move |i| Step {
                pause: if i == 0 { pause } else { pace },
                worker,
                path,
                between: between.filter(|(.., every)| i % every == 0).map(|(other, asks, _)| (other, asks)),
            })
        };
        runs.into_iter().flat_map(of).collect()
    })
}

fn one_or_three() -> impl Strategy<Value = RuleSet> {
    any::<bool>().prop_map(|is_one| if is_one { one_rule("1000/s", 1000) } else { three() })
}

proptest! {
    /// A worker that is alone lets a request through if every bucket has its tokens, and takes nothing otherwise.
    #[test]
    fn one_worker_decides_as_plain_buckets_do(set in one_or_three(), steps in steps()) {
        let quotas: Vec<Quota> = set.rules().iter().map(|rule| rule.quota).collect();
        let (mut limiter, mut slots, mut now) = (limiter(set, None), LocalSlots::new(4), T0);
        let mut buckets = [Bucket::FULL; 3];
        for Step { pause, .. } in steps {
            now += pause;
            let mut after = buckets;
            let fits = counting(1).take(quotas.len()).all(|i| {
                let taken = buckets[i].take(&quotas[i], COSTS[i], now);
                if let Admission::Taken(taken) = taken {
                    after[i] = taken;
                }
                matches!(taken, Admission::Taken(_))
            });
            let outcome = limiter.decide(&mut at("/"), &mut slots, now).outcome();
            prop_assert_eq!(outcome == DecisionKind::Allow, fits, "at {:?}", now);
            if fits {
                buckets = after;
            }
        }
    }

    /// I3, in every span that ends at an admission: what several workers admit under rules that only some requests
    /// meet, while workers write between one another's reads and writes.
    #[test]
    fn workers_admit_no_more_than_burst_and_rate_of_any_rule(set in one_or_three(), steps in steps()) {
        let quotas: Vec<Quota> = set.rules().iter().map(|rule| rule.quota).collect();
        let (mut slots, mut now) = (LocalSlots::new(4), T0);
        let mut workers = [0, 1, 2].map(|_| limiter(set.clone(), None));
        let mut lacks = [Bucket::FULL; 3];
        for Step { pause, worker, path, between } in steps {
            now += pause;
            let through = RefCell::new(Vec::new());
            let decide = |limiter: &mut Limiter, slots: &mut dyn Slots, path: usize| {
                if limiter.decide(&mut at(PATHS[path]), slots, now).outcome() == DecisionKind::Allow {
                    through.borrow_mut().extend(counting(path).take(quotas.len()));
                }
            };
            let (other, asks) = between.unwrap_or((worker, 0));
            if let Ok([mine, others]) = workers.get_disjoint_mut([worker, other]) {
                let mut reads = 0;
                let mut interloper = |slots: &mut LocalSlots| {
                    reads += 1;
                    let asked = if (2..6).contains(&reads) { asks } else { 0 };
                    (reads..reads + asked).for_each(|i| decide(others, slots, i % PATHS.len()));
                };
                let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
                decide(mine, &mut contended, path);
            } else {
                decide(&mut workers[worker], &mut slots, path);
            }
            for i in through.into_inner() {
                let (quota, lacks) = (&quotas[i], &mut lacks[i]);
                *lacks = Bucket::full_at(lacks.refilled().max(now) + quota.token_ns() * u64::from(COSTS[i]));
                prop_assert!(lacks.fill_ns(now) <= quota.fill_ns(), "rule {} at {:?}", i, now);
            }
        }
    }
}
