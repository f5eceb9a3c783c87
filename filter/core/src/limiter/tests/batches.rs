//! Tokens that are withdrawn by the batch: which client gets them, and that no bucket gives more for it, nor less.

use super::*;
use crate::bucket::{Bucket, Take};
use crate::quota::Quota;

fn paid(limiter: &mut Limiter) -> u32 {
    limiter.counters().take_event(Event::BatchPaid)
}

/// A client on a path, with a key but for [`KEYLESS`].
struct At(&'static str);

const KEYLESS: &str = "/keyless";

impl Request for At {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(b"192.0.2.1:5".to_vec()),
            Attribute::Header(_) if self.0 != KEYLESS => Some(b"a key".to_vec()),
            Attribute::Path => Some(self.0.into()),
            _ => None,
        }
    }
}

/// A quick rule and a slow one for every request, by two keys, and one for some.
fn three() -> RuleSet {
    rules(&json!([
        {"name": "quick", "key": ["client_address"], "rate": "1000/s", "burst": 300},
        {"name": "slow", "key": [{"header": "x"}], "rate": "300/s", "burst": 700, "cost": 2},
        {"name": "some", "key": ["client_address"], "rate": "500/s", "burst": 300, "match": {"path": {"prefix": "/some"}}},
    ]))
}

const COSTS: [u32; 3] = [1, 2, 1];

const PATHS: [&str; 3] = [KEYLESS, "/", "/some"];

/// How many of [`three`], from the first, count a request to the n-th of [`PATHS`].
fn counting(path: usize) -> impl Iterator<Item = usize> {
    0..=path
}

#[test]
fn a_client_that_asks_often_is_paid_for_from_a_batch() {
    let (mut limiter, mut slots) = (limiter(one_rule("1000/s", 1000), None), LocalSlots::new(4));
    for i in 0..400 {
        assert!(allows(&mut limiter, &mut slots, "192.0.2.1:5", T0 + i * MS / 2));
    }
    assert_eq!(limiter.counters().take_rule(0).allowed, 400);
    assert!(paid(&mut limiter) > 300);
}

#[test]
fn rules_of_two_keys_are_paid_from_one_batch() {
    let (mut limiter, mut slots) = (limiter(three(), None), LocalSlots::new(4));
    for (path, from, counted) in [("/", T0, [80, 80, 0]), (KEYLESS, T0 + SECOND_NS, [80, 0, 0])] {
        for i in 0..80 {
            let decision = limiter.decide(&mut At(path), &mut slots, from + i * MS / 4);
            assert_eq!(decision.outcome(), Outcome::Allow);
        }
        assert!(paid(&mut limiter) > 30, "{path}");
        assert_eq!([0, 1, 2].map(|rule| limiter.counters().take_rule(rule).allowed), counted, "{path}");
    }
}

#[test]
fn a_client_that_asks_now_and_then_has_none() {
    let (mut limiter, mut slots) = (limiter(one_rule("1000/s", 1000), None), LocalSlots::new(4));
    // A batch is of 15 tokens: in 15 ms all have lapsed.
    for i in 0..100 {
        assert!(allows(&mut limiter, &mut slots, "192.0.2.1:5", T0 + i * 5 * MS));
    }
    assert_eq!(paid(&mut limiter), 0);
}

#[test]
fn a_clock_that_steps_back_gives_no_more_than_the_burst() {
    let (mut limiter, mut slots) = (limiter(one_rule("1000/s", 1000), None), LocalSlots::new(4));
    for step in [0, 500, 10 * MS, SECOND_NS] {
        let before = Time::from_nanos(T0.as_nanos() - step);
        assert!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 20, before) <= 20);
    }
    let left = admitted(&mut limiter, &mut slots, "192.0.2.1:5", 2_000, T0);
    assert!(left <= 1_000 - 40, "{left}");
}

/// What must be seen at the table at each request, or is told of, or is too little, has no batches.
#[test]
fn what_cannot_be_paid_beforehand_goes_to_the_table() {
    let base = json!({"name": "r", "key": ["client_address"], "rate": "1000/s", "burst": 1000});
    for (field, value) in [
        ("strict", json!(true)),
        ("mode", json!("shadow")),
        ("enforced_percent", json!(50)),
        ("response", json!({"on_allowed": true})),
        ("cost", json!({"header": "x"})),
        ("penalty", json!({"after": 5, "within": "1m", "deny_for": "10m"})),
        ("key", json!([{"cookie": "session"}])),
        ("key", json!([{"header": "x"}, {"header": "y"}])),
        ("burst", json!(200)),
        ("rate", json!("10/s")),
    ] {
        let mut rule = base.clone();
        rule[field] = value;
        let mut errors = Errors::default();
        let set = RuleSet::parse(&json!([rule]), "rules", &mut errors);
        let set = errors.into_result(set).unwrap_or_else(|errors| panic!("{field}: {errors:?}"));
        let (mut limiter, mut slots) = (limiter(set, None), LocalSlots::new(4));
        for i in 0..100 {
            let _ = limiter.decide(&mut At("/"), &mut slots, T0 + i * MS / 4);
        }
        assert_eq!(paid(&mut limiter), 0, "{field}");
    }
}

#[test]
fn other_rules_forget_what_was_withdrawn_under_those_before() {
    let (mut limiter, mut slots) = (limiter(one_rule("1000/s", 6_400), None), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 10, T0), 10);
    assert!(paid(&mut limiter) > 0);
    limiter.replace_rules(one_rule("1000/s", 256));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 400, T0), 256);
}

#[test]
fn a_client_that_leaves_a_worker_has_most_of_its_burst_at_the_others() {
    let mut slots = LocalSlots::new(4);
    // Twenty workers see the client four times each, which then stays with another.
    for _ in 0..20 {
        let mut one = limiter(one_rule("1000/s", 6_400), None);
        assert_eq!(admitted(&mut one, &mut slots, "192.0.2.1:5", 4, T0), 4);
    }
    let left = admitted(&mut limiter(one_rule("1000/s", 6_400), None), &mut slots, "192.0.2.1:5", 6_400, T0);
    assert!((6_400 * 3 / 4 - 1..6_400 - 80).contains(&left), "{left}");
}

#[test]
fn what_has_lapsed_does_not_come_back() {
    let (mut limiter, mut slots) = (limiter(one_rule("1000/s", 1000), None), LocalSlots::new(4));
    // At the second request 15 tokens are withdrawn. 10 ms later the bucket has gained 10.
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 2, T0), 2);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 2_000, T0 + 10 * MS), 1_000);
    assert!(paid(&mut limiter) > 0);
}

/// Two clients in one place displace each other, and with that what is left of a batch, until a quarter of the burst is
/// away. Neither pays from what is the other's.
#[test]
fn clients_that_share_a_place_lose_little_and_gain_nothing() {
    let place = |address: &str| {
        let mut whose = Whose::NOBODY;
        whose.by(0, 0).unwrap();
        whose.from(address.parse().unwrap());
        whose.known().place()
    };
    let first = "192.0.2.1";
    let other = (0..=u16::MAX).map(|n| std::format!("198.18.{}.{}", n >> 8, n & 0xff));
    let other = other.into_iter().find(|other| place(other) == place(first)).unwrap();
    let (mut limiter, mut slots) = (limiter(one_rule("1000/s", 1000), None), LocalSlots::new(64));
    let mut through = [0, 0];
    for i in 0..2_400 {
        // Runs of ten, so that each has a batch when the other comes.
        let who = usize::from(i / 10 % 2 == 1);
        through[who] += u32::from(allows(&mut limiter, &mut slots, [first, other.as_str()][who], T0));
    }
    assert!(through.iter().all(|through| (850..=1_000).contains(through)), "{through:?}");
    assert!(paid(&mut limiter) > 0);
}

/// What a worker has withdrawn for a client's requests of one kind is not there for those of another.
#[test]
fn requests_of_two_kinds_lose_little_to_each_others_batches() {
    let set = rules(&json!([
        {"name": "all", "key": ["client_address"], "rate": "1000/s", "burst": 1000},
        {"name": "some", "key": ["client_address"], "rate": "1000/s", "burst": 1000, "match": {"path": {"prefix": "/some"}}},
    ]));
    let (mut limiter, mut slots) = (limiter(set, None), LocalSlots::new(64));
    let paths = ["/", "/some"].into_iter().cycle();
    let through = paths
        .take(1_000)
        .filter(|path| limiter.decide(&mut At(path), &mut slots, T0).outcome() == Outcome::Allow);
    let through = through.count();
    assert!((950..=1_000).contains(&through), "{through}");
    // Until a quarter of the burst is gone.
    assert!(paid(&mut limiter) > 200);
}

/// What is withdrawn lies behind what somebody else took. Were that given back, the bucket would be full while the
/// batch still had a token.
#[test]
fn what_a_batch_lies_behind_is_not_given_back() {
    let set = rules(&json!([
        {"name": "all", "key": ["client_address"], "rate": "1000/s", "burst": 1000},
        {"name": "some", "key": [{"header": "x"}], "rate": "1/h", "burst": 1, "match": {"path": {"prefix": "/some"}}},
    ]));
    let [mut mine, mut with_batch, mut third] = [(); 3].map(|()| limiter(set.clone(), None));
    // Its rules are those, but for a field that leaves it without batches.
    mine.terms[0].batch = None;
    let mut slots = LocalSlots::new(64);
    let ask = |limiter: &mut Limiter, slots: &mut dyn Slots, path, now| {
        limiter.decide(&mut At(path), slots, now).outcome() == Outcome::Allow
    };
    let mut reads = 0;
    let mut interloper = |slots: &mut LocalSlots| {
        reads += 1;
        match reads {
            // Both slots are read; the token of "some" goes, and one of "all".
            2 => assert!(ask(&mut third, slots, "/some", T0)),
            // That of "all" is read again and written, that of "some" read again.
            4 => assert_eq!((0..2).filter(|_| ask(&mut with_batch, slots, "/", T0)).count(), 2),
            _ => {}
        }
    };
    let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
    assert!(!ask(&mut mine, &mut contended, "/some", T0));
    assert_eq!(reads, 5, "the last to give back");
    // Four tokens and a batch of 15 lie one behind the other.
    let now = T0 + 18 * MS;
    assert!(ask(&mut with_batch, &mut slots, "/", now));
    assert_eq!(paid(&mut with_batch), 1);
    assert_eq!((0..1_100).filter(|_| ask(&mut third, &mut slots, "/", now)).count(), 999);
}

/// A request.
#[derive(Clone, Debug)]
struct Step {
    /// How long it comes after the one before.
    pause: u64,
    worker: usize,
    /// Which of [`PATHS`].
    path: usize,
    /// Another worker, which is asked that often after each of a few reads of this one.
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

/// One rule of large batches, or three of small ones.
fn one_or_three() -> impl Strategy<Value = RuleSet> {
    any::<bool>().prop_map(|is_one| if is_one { one_rule("1000/s", 1000) } else { three() })
}

proptest! {
    /// Alone with its buckets, a worker decides as if there were no batches.
    #[test]
    fn one_worker_decides_as_without_batches(set in one_or_three(), steps in steps()) {
        let quotas: Vec<Quota> = set.rules().iter().map(|rule| rule.quota).collect();
        let (mut limiter, mut slots, mut now) = (limiter(set, None), LocalSlots::new(4), T0);
        let mut buckets = [Bucket::FULL; 3];
        for Step { pause, .. } in steps {
            now += pause;
            let mut after = buckets;
            let fits = counting(1).take(quotas.len()).all(|i| {
                let taken = buckets[i].take(&quotas[i], COSTS[i], now);
                if let Take::Taken(taken) = taken {
                    after[i] = taken;
                }
                matches!(taken, Take::Taken(_))
            });
            let outcome = limiter.decide(&mut At("/"), &mut slots, now).outcome();
            prop_assert_eq!(outcome == Outcome::Allow, fits, "at {:?}", now);
            if fits {
                buckets = after;
            }
        }
    }

    /// I3, in every span that ends at an admission: what several workers admit, each with batches of its own but one that
    /// has none, over rules that some requests meet and others do not, while some come between another's reads and
    /// writes.
    #[test]
    fn workers_with_batches_admit_no_more_than_burst_and_rate(set in one_or_three(), steps in steps()) {
        let quotas: Vec<Quota> = set.rules().iter().map(|rule| rule.quota).collect();
        let (mut slots, mut now) = (LocalSlots::new(4), T0);
        let mut workers = [0, 1, 2].map(|_| limiter(set.clone(), None));
        workers[2].terms.iter_mut().for_each(|terms| terms.batch = None);
        let mut lacks = [Bucket::FULL; 3];
        for Step { pause, worker, path, between } in steps {
            now += pause;
            let through = RefCell::new(Vec::new());
            let decide = |limiter: &mut Limiter, slots: &mut dyn Slots, path: usize| {
                if limiter.decide(&mut At(PATHS[path]), slots, now).outcome() == Outcome::Allow {
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
