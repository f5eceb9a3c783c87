//! The scripts and the reference in weir-budget agree to the bit where Redis's clock steps, for any caller's bounds on
//! that clock, and on when to refuse a call.
//!
//! Tests of I8.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, FromRedisValue, RedisError, Script, ScriptInvocation};
use weir_budget::budget::{Budget, COUNT_MAX, Charge, Count, Demand};
use weir_budget::escrow::{AcquireRequest, Claim, Escrow};
use weir_budget::store_clock::{Bounds, Jump};
use weir_protocol::calendar::{Calendar, Window};
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::redis::{
    AcquireArguments, AcquireRow, Arguments, Charging, acquire_script, acquired, charge_accounts, charge_script,
};
use weir_tests::redis::{Redis, Setup};

use crate::equality::Random;
use crate::{id, quota};

/// Calls per seed.
const CALLS: u64 = 1_200;
/// Spans around the previous call, in microseconds. Calls are less than a millisecond apart.
const SPANS_US: [i64; 8] =
    [0, -300, -50_000, 300, 2_000, 3_600_000_000, COUNT_MAX.cast_signed() / 2, COUNT_MAX.cast_signed() / 2];

/// A Redis whose clock steps, and a caller's bounds on its clock.
struct World {
    redis: Redis,
    connection: MultiplexedConnection,
    script: Script,
    random: Random,
    /// Time that the clock showed at the previous call.
    last_us: u64,
    refused: u64,
}

impl World {
    async fn start(script: &str) -> Self {
        let redis = Redis::start_with(Setup { has_own_clock: true, ..Setup::default() }).await;
        let (connection, script) = (redis.connection().await, Script::new(script));
        Self { redis, connection, script, random: Random(1), last_us: 0, refused: 0 }
    }

    /// Sets Redis's clock now and then, and returns bounds for the next call. No budget expires by that: the reference
    /// does not forget.
    async fn step(&mut self) -> Bounds {
        if self.random.below(12) == 0 {
            for key in self.connection.keys::<_, Vec<String>>("*").await.unwrap() {
                let () = self.connection.persist(key).await.unwrap();
            }
            self.redis.set_ahead(self.random.pick(&[0, 1, 2, 11, 12, 70, 3_600, 7_210]));
        }
        let mut near = || self.last_us.saturating_add_signed(self.random.pick(&SPANS_US));
        let (latest_us, seen_us) = (near(), near());
        let length_us = self.random.pick(&[0, 200, 3_000, 1_000_000, 3_600_000_000]);
        Bounds { latest_us, jump: Jump { seen_us, length_us } }
    }

    /// The script's answer; none if it refused the call, as it must by these bounds.
    async fn invoke<T: FromRedisValue>(&mut self, call: &ScriptInvocation<'_>, bounds: Bounds) -> Option<T> {
        let answer: Result<T, RedisError> = call.invoke_async(&mut self.connection).await;
        let error = match answer {
            Ok(answer) => return Some(answer),
            Err(error) => error,
        };
        assert_eq!(error.code(), Some("LATE"), "{error}");
        self.last_us = error.detail().and_then(|shown_us| shown_us.parse().ok()).expect("the clock's time");
        assert_eq!(bounds.at(self.last_us), None);
        self.refused += 1;
        None
    }
}

fn slow() -> Quota {
    quota(7, Period::Minute, 20)
}

fn quick() -> Quota {
    quota(999, Period::Second, 10)
}

/// A POP's counts of up to three of its buckets at call `n`.
fn counts(random: &mut Random, n: u64) -> Vec<Count> {
    let count = |random: &mut Random| {
        let admitted = n + random.below(300);
        let (epoch, made_ms) = (random.below(3), n + random.below(10));
        Count { epoch, admitted, unconfirmed: admitted, span_us: random.below(9_000), missing: 0, made_ms }
    };
    (0..random.below(4)).map(|_| count(random)).collect()
}

/// A budget's key and quota, and for each of two POPs its name, counts and demand.
type Reported = (u64, Quota, [(&'static str, Vec<Count>, u64); 2]);

/// The charges of both POPs, or of the first alone: only counts are joined.
fn charges_of((_, quota, pops): &Reported) -> Vec<Charge<'_>> {
    let charge = |pop: &'static str, counts, milli| {
        let demand = Demand { milli, askers: 1 };
        Charge { quota: *quota, replica: "m", demand, pop, counts }
    };
    let joined = if pops.iter().all(|(_, counts, _)| !counts.is_empty()) { 2 } else { 1 };
    pops.iter().take(joined).map(|(pop, counts, milli)| charge(pop, counts, *milli)).collect()
}

/// Up to twenty budgets go in one call, each charged by one POP or two.
#[tokio::test]
async fn both_agree_on_charges() {
    let mut world = World::start(&charge_script()).await;
    for seed in [1, 2, 3, 0x5eed] {
        (world.random, world.refused) = (Random(seed), 0);
        let (mut references, mut deepest) = (BTreeMap::<u64, Budget>::new(), 0);
        for n in 0..CALLS / 4 {
            let (bounds, random) = (world.step().await, &mut world.random);
            let reported: Vec<Reported> = (0..=n % 20)
                .map(|_| {
                    let pops = [random.pick(&["a", "b"]), "b"].map(|pop| (pop, counts(random, n), random.below(99)));
                    (random.below(12), random.pick(&[quota(100, Period::Second, 2), slow(), quick()]), pops)
                })
                .collect();
            let charging = |reported: &Reported| {
                let key = format!("weir:budget:{{{seed}:{}}}", reported.0);
                let of = |charge| Charging::new(key.clone(), Arc::from("m"), &charge);
                let joined = charges_of(reported).into_iter().map(of).reduce(|mut joined, other| {
                    assert!(joined.takes(&other, usize::MAX));
                    joined.join(other);
                    joined
                });
                joined.expect("a charge")
            };
            let Arguments { keys, texts, tail, implied } = Charging::arguments(reported.iter().map(charging).collect());
            let script = world.script.clone();
            let mut call = script.prepare_invoke();
            for key in &keys {
                call.key(key);
            }
            let clock_bounds = [bounds.latest_us, bounds.jump.seen_us, bounds.jump.length_us];
            #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
            let clock_bounds = clock_bounds.iter().flat_map(|us| ((*us).min(COUNT_MAX) as f64).to_le_bytes());
            call.arg(&texts).arg(clock_bounds.chain(tail).collect::<Vec<u8>>());
            let Some(answer) = world.invoke::<Vec<u8>>(&call, bounds).await else { continue };
            let accounts = charge_accounts(&answer, implied).unwrap();
            for (reported, accounts) in reported.iter().zip(accounts) {
                let (key, charges) = (reported.0, charges_of(reported));
                assert_eq!(accounts.len(), charges.len());
                for (charge, account) in charges.iter().zip(accounts) {
                    let time = bounds.at(account.now_us).expect("it was not refused");
                    let expected = references.entry(key).or_default().charge(time, charge);
                    assert_eq!(account, expected, "seed {seed}, call {n}, budget {key}");
                    (world.last_us, deepest) = (account.now_us, deepest.max(account.deficit_ns / 1_000));
                }
            }
        }
        let refused = world.refused;
        assert!(deepest > 10_000_000 && refused > CALLS / 16, "seed {seed} tests too little: {deepest}, {refused}");
    }
}

#[tokio::test]
async fn both_agree_on_acquires() {
    let mut world = World::start(&acquire_script()).await;
    let (second, minute) = (Calendar::every(1, 0), Calendar::every(60, 7));
    let refill_policies = [
        RefillPolicy::Continuous,
        RefillPolicy::Window(second),
        RefillPolicy::Window(minute),
        RefillPolicy::Window(Calendar::DAY),
        RefillPolicy::Window(Calendar::MONTH),
        RefillPolicy::Sliding(second),
        RefillPolicy::Sliding(minute),
        RefillPolicy::Sliding(Calendar::DAY),
        RefillPolicy::Log(1),
        RefillPolicy::InFlight(1),
        RefillPolicy::Queue,
    ];
    for seed in [1, 2, 3, 0x5eed] {
        (world.random, world.refused) = (Random(seed), 0);
        let (mut references, mut given) = (BTreeMap::<usize, Escrow>::new(), 0);
        for n in 0..CALLS {
            let (bounds, last_us, random) = (world.step().await, world.last_us, &mut world.random);
            let (key, quota, pop) = (random.below(11), random.pick(&[slow(), quick()]), random.pick(&["a", "b"]));
            let key = usize::try_from(key).unwrap();
            let refill_policy = refill_policies[key];
            let claim = |_| Claim::of(random.below(4), random.below(3), random.pick(&[0, 1, 3, 30]));
            let claims = (0..n % 3).map(claim).collect();
            let lease_us = random.pick(&[1_000, 4_000, 30_000, 600_000_000]);
            // By a clock that is up to an hour off, and by days where months are: those end while the test runs.
            let by_us = last_us.saturating_add(random.below(3_600_000_000));
            let window = Some(Window { calendar: Calendar::MONTH, ..Calendar::DAY.window(by_us) });
            let acquire = AcquireRequest { id: id(b"a"), quota, lease_us, refill_policy, window, claims };
            let script = world.script.clone();
            let mut call = script.key(format!("weir:strict:{{{seed}:{key}}}"));
            call.arg(AcquireArguments { pop, acquire: &acquire });
            call.arg(bounds.latest_us).arg(bounds.jump.seen_us).arg(bounds.jump.length_us);
            let Some(row) = world.invoke::<AcquireRow>(&call, bounds).await else { continue };
            let result = acquired(&acquire, &row).unwrap();
            let time = bounds.at(result.now_us).expect("it was not refused");
            let expected = references.entry(key).or_default().acquire(time, pop, &acquire);
            assert_eq!(result, expected, "seed {seed}, call {n}: {acquire:?}");
            (world.last_us, given) = (result.now_us, given + result.given);
        }
        let refused = world.refused;
        assert!(given > 30 && refused > CALLS / 4, "seed {seed} tests too little: {given}, {refused}");
    }
}
