//! The scripts and the reference in weir-budget agree to the bit on what a caller says of the store's clock, and on
//! when to refuse a call.
//!
//! Tests of I8.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, FromRedisValue, RedisError, Script, ScriptInvocation};
use weir_budget::budget::{Account, Budget, COUNT_MAX, Charge, Count, Demand};
use weir_budget::escrow::{AcquireRequest, Claim, Escrow};
use weir_budget::store_clock::{Bounds, Jump};
use weir_protocol::calendar::Calendar;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_sync::store::redis::{Arguments, Charging, acquire_script, charge_accounts, charge_script};
use weir_tests::redis::Redis;

use crate::equality::Random;
use crate::quota::unix_us;
use crate::{id, quota};

/// Calls per seed.
const CALLS: u64 = 600;
/// Acquires per seed, on six budgets.
const ACQUIRES: u64 = 1_200;
/// Spans around the call before that callers speak of, in microseconds. Calls are less than a millisecond apart.
const SPANS_US: [i64; 8] = [0, -300, -2_000, -50_000, 300, 2_000, 3_600_000_000, COUNT_MAX.cast_signed() / 2];

/// What a caller says of a clock that showed `last_us` at the call before.
fn bounds(random: &mut Random, last_us: u64) -> Bounds {
    let mut near = || last_us.saturating_add_signed(random.pick(&SPANS_US));
    let (latest_us, seen_us) = (near(), near());
    Bounds { latest_us, jump: Jump { seen_us, length_us: random.pick(&[0, 200, 3_000, 3_600_000_000]) } }
}

/// What the script answers, or what the clock showed when it refused the call.
async fn invoke<T: FromRedisValue>(
    call: &mut ScriptInvocation<'_>,
    bounds: Bounds,
    connection: &mut MultiplexedConnection,
) -> Result<T, u64> {
    call.arg(bounds.latest_us).arg(bounds.jump.seen_us).arg(bounds.jump.length_us);
    call.invoke_async(connection).await.map_err(late_us)
}

/// What the clock showed when a call was refused.
#[allow(clippy::needless_pass_by_value, reason = "as errors are mapped")]
fn late_us(error: RedisError) -> u64 {
    assert_eq!(error.code(), Some("LATE"), "{error}");
    error.detail().and_then(|shown_us| shown_us.parse().ok()).expect("what the clock shows")
}

#[tokio::test]
async fn a_charge_is_the_same_to_both() {
    let redis = Redis::start().await;
    let (mut connection, script) = (redis.connection().await, Script::new(&charge_script()));
    for seed in [1, 2, 3, 0x5eed] {
        let (mut random, mut references) = (Random(seed), BTreeMap::<u64, Budget>::new());
        let (mut last_us, mut deepest, mut refused) = (0, 0, 0);
        for n in 0..CALLS {
            let (key, quota) =
                (random.below(3), random.pick(&[quota(100, Period::Second, 2), slow(), quick()]));
            let (bounds, pop) = (bounds(&mut random, last_us), random.pick(&["a", "b"]));
            let counts: Vec<Count> = (0..n % 3).map(|_| count(&mut random, n)).collect();
            let others: Vec<Count> = (0..n % 4).map(|_| count(&mut random, n)).collect();
            let of = |milli, pop, counts| {
                let demand = Demand { milli, askers: 1 };
                Charge { quota, member: "m", demand, pop, counts }
            };
            let mut said = vec![of(n, pop, counts.as_slice())];
            if !counts.is_empty() && !others.is_empty() {
                said.push(of(7, "b", others.as_slice()));
            }
            let row = charge(&mut connection, &script, &format!("{seed}:{key}"), &said, bounds).await;
            let accounts = match row {
                Ok(accounts) => accounts,
                Err(now_us) => {
                    assert_eq!(bounds.at(now_us), None, "seed {seed}, call {n}");
                    (last_us, refused) = (now_us, refused + 1);
                    continue;
                }
            };
            assert_eq!(accounts.len(), said.len());
            for (said, account) in said.iter().zip(accounts) {
                let time = bounds.at(account.now_us).expect("it was not refused");
                let expected = references.entry(key).or_default().charge(time, said);
                assert_eq!(account, expected, "seed {seed}, call {n}");
                (last_us, deepest) = (account.now_us, deepest.max(account.deficit_ns / 1_000));
            }
        }
        assert!(deepest > 10_000_000 && refused > CALLS / 4, "seed {seed} tests too little");
    }
}

/// What a POP says of one of three buckets at call `n`.
fn count(random: &mut Random, n: u64) -> Count {
    let admitted = n + random.below(300);
    let (epoch, made_ms) = (random.below(3), n + random.below(10));
    Count { epoch, admitted, unconfirmed: admitted, span_us: random.below(9_000), missing: 0, made_ms }
}

#[tokio::test]
async fn budgets_that_go_in_one_call_are_each_the_same_to_both() {
    let redis = Redis::start().await;
    let (mut connection, script) = (redis.connection().await, Script::new(&charge_script()));
    let (mut random, mut references) = (Random(7), BTreeMap::<u64, Budget>::new());
    let bounds = Bounds { latest_us: COUNT_MAX, jump: Jump { seen_us: 0, length_us: 0 } };
    let (mut together, mut deepest) = (0, 0);
    for n in 0..CALLS / 4 {
        let mut said = |_| {
            let counts: Vec<Count> = (0..random.below(4)).map(|_| count(&mut random, n)).collect();
            (random.below(12), random.pick(&[slow(), quick()]), random.below(99), counts)
        };
        let said: Vec<_> = (0..=n % 20).map(&mut said).collect();
        let said = said.iter().map(|(key, quota, milli, counts)| {
            let demand = Demand { milli: *milli, askers: 1 };
            (key, Charge { quota: *quota, member: "m", demand, pop: "a", counts })
        });
        let charges =
            said.clone().map(|(key, charge)| Charging::new(budget(&key.to_string()), "m".into(), &charge));
        let accounts = charge_all(&mut connection, &script, charges.collect(), bounds).await.unwrap();
        together = together.max(accounts.len());
        for ((key, charge), accounts) in said.zip(accounts) {
            let time = bounds.at(accounts[0].now_us).unwrap();
            let expected = references.entry(*key).or_default().charge(time, &charge);
            deepest = deepest.max(expected.deficit_ns / 1_000);
            assert_eq!(accounts, [expected], "call {n}, budget {key}");
        }
    }
    assert!(together == 20 && deepest > 10_000_000, "it tests too little: {together}, {deepest}");
}

async fn charge(
    connection: &mut MultiplexedConnection,
    script: &Script,
    key: &str,
    charges: &[Charge<'_>],
    bounds: Bounds,
) -> Result<Vec<Account>, u64> {
    let charges = charges.iter().map(|charge| Charging::new(budget(key), Arc::from(charge.member), charge));
    let joined = charges.reduce(|mut joined, charging| {
        assert!(joined.takes(&charging, usize::MAX));
        joined.join(charging);
        joined
    });
    let mut accounts = charge_all(connection, script, joined.into_iter().collect(), bounds).await?;
    Ok(accounts.remove(0))
}

/// Charges several budgets in one call.
async fn charge_all(
    connection: &mut MultiplexedConnection,
    script: &Script,
    charges: Vec<Charging>,
    bounds: Bounds,
) -> Result<Vec<Vec<Account>>, u64> {
    let Arguments { keys, texts, tail, says } = Charging::arguments(charges);
    let mut call = script.prepare_invoke();
    for key in &keys {
        call.key(key);
    }
    let told = [bounds.latest_us, bounds.jump.seen_us, bounds.jump.length_us];
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    let told = told.iter().flat_map(|us| ((*us).min(COUNT_MAX) as f64).to_le_bytes());
    call.arg(&texts).arg(told.chain(tail).collect::<Vec<u8>>());
    let said: Vec<u8> = call.invoke_async(connection).await.map_err(late_us)?;
    Ok(charge_accounts(&said, says).unwrap())
}

/// The name of a budget.
fn budget(key: &str) -> String {
    format!("weir:budget:{{{key}}}")
}

#[tokio::test]
async fn a_acquire_is_the_same_to_both() {
    let redis = Redis::start().await;
    let (mut connection, script) = (redis.connection().await, Script::new(&acquire_script()));
    for seed in [1, 2, 3, 0x5eed] {
        let (mut random, mut references) = (Random(seed), BTreeMap::<u64, Escrow>::new());
        let (mut last_us, mut given, mut refused) = (0, 0, 0);
        let second = Calendar::every(1, 0);
        let refill_policies = [
            RefillPolicy::Continuous,
            RefillPolicy::Window(second),
            RefillPolicy::Sliding(second),
            RefillPolicy::Sliding(Calendar::Day),
            RefillPolicy::Log(1),
            RefillPolicy::InFlight(1),
            RefillPolicy::Queue,
        ];
        for n in 0..ACQUIRES {
            let (key, quota) = (random.below(7), random.pick(&[slow(), quick()]));
            let (bounds, pop) = (bounds(&mut random, last_us), random.pick(&["a", "b"]));
            let lease_us = random.pick(&[1_000, 4_000, 30_000]);
            let claim = |_| Claim::of(random.below(4), random.below(3), random.pick(&[0, 1, 3, 30]));
            let claims = (0..n % 3).map(claim).collect();
            let refill_policy = refill_policies[usize::try_from(key).unwrap()];
            let acquire =
                AcquireRequest { id: id(b"a"), quota, lease_us, refill_policy, window: None, claims };
            let mut call = script.key(format!("weir:strict:{{{seed}:{key}}}"));
            tell(&mut call, pop, &acquire);
            let row: Result<AcquireRow, u64> = invoke(&mut call, bounds, &mut connection).await;
            let (deficit_us, rest_ns, outstanding, acquired, now_us, _, charged, waits, _) = match row {
                Ok(row) => row,
                Err(now_us) => {
                    assert_eq!(bounds.at(now_us), None, "seed {seed}, call {n}");
                    (last_us, refused) = (now_us, refused + 1);
                    continue;
                }
            };
            let time = bounds.at(now_us).expect("it was not refused");
            let expected = references.entry(key).or_default().acquire(time, pop, &acquire);
            let is = (acquire.told_ns(deficit_us * 1_000 + rest_ns), outstanding, acquired);
            assert_eq!(
                is,
                (expected.deficit_ns, expected.outstanding, expected.given),
                "seed {seed}, call {n}: {acquire:?}"
            );
            let (leased, wait): (Vec<_>, Vec<_>) = expected
                .leases
                .iter()
                .map(|lease| {
                    (if lease.lease_ms > 0 { lease.charged.cast_signed() } else { -1 }, lease.wait_ms)
                })
                .unzip();
            assert_eq!((charged, waits), (leased, wait), "seed {seed}, call {n}: {acquire:?}");
            (last_us, given) = (now_us, given + acquired);
        }
        assert!(given > 30 && refused > ACQUIRES / 4, "seed {seed} gave {given}: it tests too little");
    }
}

/// An hour and ten seconds, as to Redis: what it wrote then is written to it, as its clock cannot be set here.
// I8
#[tokio::test]
async fn a_window_steps_with_the_clock_for_both() {
    let redis = Redis::start().await;
    let (mut connection, script) = (redis.connection().await, Script::new(&acquire_script()));
    let (minute, step_us) = (Calendar::every(60, 7), 3_610_000_000);
    let refill_policies =
        [RefillPolicy::Window(minute), RefillPolicy::Sliding(minute), RefillPolicy::Window(Calendar::Day)];
    for (n, (refill_policy, is_back)) in refill_policies
        .into_iter()
        .flat_map(|refill_policy| [(refill_policy, false), (refill_policy, true)])
        .enumerate()
    {
        let of = |epoch, ahead| {
            let claims = vec![Claim::of(epoch, 0, ahead)];
            AcquireRequest {
                id: id(b"a"),
                quota: slow(),
                lease_us: 10_000,
                refill_policy,
                window: None,
                claims,
            }
        };
        let (first, now_us) = (of(1, 6), unix_us());
        let at_us = if is_back { now_us + step_us } else { now_us - step_us };
        let length_us = if is_back { 0 } else { step_us };
        let mut reference = Escrow::default();
        assert_eq!(reference.acquire(at_us, "a", &first).given, 6);
        let end_us = reference.window_ends_us().unwrap();
        let until_us = end_us.min(at_us + first.held_us());
        let key = format!("weir:strict:{{{n}}}");
        let head =
            [("deficit_us", 6), ("deficit_ns", 0), ("end_us", end_us), ("at_us", at_us), ("outstanding", 6)];
        let () = connection.hset_multiple(&key, &head).await.unwrap();
        let () =
            connection.hset_multiple(&key, &[("next_us", until_us), ("last_us", until_us)]).await.unwrap();
        if let RefillPolicy::Sliding(_) = refill_policy {
            let () = connection.hset(&key, "before", 0).await.unwrap();
        }
        let () =
            connection.hset(&key, format!("holder:{:016x}:a", 1), format!("6 0 {until_us}")).await.unwrap();
        for (epoch, ahead) in [(1, 9), (2, 30), (1, 0), (3, 1)] {
            let (acquire, mut call) = (of(epoch, ahead), script.key(&key));
            tell(&mut call, "a", &acquire);
            let bounds = Bounds { latest_us: COUNT_MAX, jump: Jump { seen_us: now_us, length_us } };
            let row: AcquireRow = invoke(&mut call, bounds, &mut connection).await.unwrap();
            let expected = reference.acquire(bounds.at(row.4).unwrap(), "a", &acquire);
            let wait_ms = expected.leases[0].wait_ms;
            assert_eq!(
                (row.2, row.3, row.7),
                (expected.outstanding, expected.given, vec![wait_ms]),
                "{acquire:?}"
            );
            let written_us: u64 = connection.hget(&key, "end_us").await.unwrap();
            assert_eq!(Some(written_us), reference.window_ends_us(), "{acquire:?}");
            assert!(
                refill_policy == RefillPolicy::Window(Calendar::Day) || written_us < row.4 + 120_000_000,
                "it did not step: {acquire:?}"
            );
        }
    }
}

/// What the script is told of an acquire.
fn tell(call: &mut ScriptInvocation<'_>, pop: &str, acquire: &AcquireRequest) {
    call.arg(pop).arg(acquire.token_ns() / 1_000).arg(acquire.token_ns() % 1_000).arg(acquire.quota.burst());
    call.arg(acquire.leased_us()).arg(acquire.held_us());
    call.arg(match acquire.refill_policy {
        RefillPolicy::Continuous => "steady",
        RefillPolicy::Window(_) => "window",
        RefillPolicy::Sliding(_) => "sliding",
        RefillPolicy::Log(_) | RefillPolicy::InFlight(_) => "log",
        RefillPolicy::Queue => "turns",
    });
    let even = acquire.refill_policy.windows().and_then(Calendar::even);
    let (length_s, phase_us) =
        even.map_or((0, -1), |(length_s, phase_s)| (length_s, i64::from(phase_s) * 1_000_000));
    let window_us = u64::from(length_s) * 1_000_000;
    call.arg(acquire.refill_policy.counts_us().unwrap_or(window_us)).arg(phase_us).arg(&[0; 3]);
    call.arg(acquire.ask_again_us()).arg(acquire.kept_us());
    for claim in &acquire.claims {
        call.arg(format!("{:016x}", claim.epoch)).arg(claim.admitted).arg(claim.ahead).arg(&[0; 2]);
    }
}

type AcquireRow = (u64, u64, u64, u64, u64, u32, Vec<i64>, Vec<u64>, Vec<u32>);

fn slow() -> Quota {
    quota(7, Period::Minute, 20)
}

fn quick() -> Quota {
    quota(999, Period::Second, 10)
}
