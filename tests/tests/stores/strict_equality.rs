//! The script for strict budgets and the reference in weir-budget agree to the bit, on anything, under every refill
//! policy.

use std::collections::BTreeMap;

use redis::AsyncCommands;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind, Escrow, EscrowId};
use weir_protocol::calendar::{Calendar, Window};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::Store;
use weir_tests::redis::{Redis, escrow_key};

use crate::equality::Random;
use crate::quota::unix_us;
use crate::{all, connected, id, memory, quota, strict};

/// Acquires per seed.
const ACQUIRES: usize = 400;
/// Epochs of a POP: few, so that they end and are claimed again.
const EPOCHS: [u64; 6] = [0, 1, 2, 3, 4, u64::MAX];

/// Chooses the refill policy of the next acquire, and the window by the clock of the one that acquires. Each policy has
/// budgets of its own.
type Policies = fn(&mut Random) -> (RefillPolicy, Option<Window>);

fn steady(_: &mut Random) -> (RefillPolicy, Option<Window>) {
    (RefillPolicy::Continuous, None)
}

/// A window whose boundaries come while the test runs, or are past, or far.
fn windows(random: &mut Random) -> (RefillPolicy, Option<Window>) {
    if random.below(4) == 0 {
        return (RefillPolicy::Window(short(random)), None);
    }
    let calendar = random.pick(&[Calendar::MONTH, Calendar::Month(-90)]);
    if random.below(8) == 0 {
        return (RefillPolicy::Window(calendar), random.pick(&[None, Some(calendar.window(unix_us()))]));
    }
    let start_us = unix_us() - 2_000 + random.below(40_000);
    let end_us = start_us + 1 + random.below(60_000);
    let next_end_us = end_us + 1 + random.below(100_000);
    (RefillPolicy::Window(calendar), Some(Window { calendar, start_us, end_us, next_end_us }))
}

/// Windows that slide, and end while the test runs, or are longer.
fn sliding(random: &mut Random) -> (RefillPolicy, Option<Window>) {
    (RefillPolicy::Sliding(short(random)), None)
}

fn short(random: &mut Random) -> Calendar {
    let days = Calendar::every(400 * 86_400, 19_000);
    random.pick(&[Calendar::every(1, 0), Calendar::every(2, 1), Calendar::every(60, 7), Calendar::DAY, days])
}

/// Logs as short as a log can be, whose tokens come back while the test runs, and longer ones.
fn logs(random: &mut Random) -> (RefillPolicy, Option<Window>) {
    (RefillPolicy::Log(random.pick(&[1, 1, 2, 60, 400 * 86_400])), None)
}

/// Requests in flight, whose leases do not end while the test runs.
fn in_flight(random: &mut Random) -> (RefillPolicy, Option<Window>) {
    (RefillPolicy::InFlight(random.pick(&[1, 300])), None)
}

/// Turns in a queue, of which nothing is leased.
fn turns(_: &mut Random) -> (RefillPolicy, Option<Window>) {
    (RefillPolicy::Queue, None)
}

fn any(random: &mut Random) -> (RefillPolicy, Option<Window>) {
    random.pick(&[steady as Policies, windows, sliding, logs, in_flight, turns])(random)
}

/// An acquire that is mostly valid after the replies so far.
fn acquire(
    random: &mut Random,
    refill_policies: Policies,
    quotas: [Quota; 3],
    charged: &BTreeMap<(EscrowId, u64), u64>,
) -> AcquireRequest {
    let (value, quota) = random.pick(&[(b'a', quotas[0]), (b'b', quotas[1]), (b'c', quotas[2])]);
    let lease_us = random.pick(&[0, 64, 500, 2_000, 10_000, 30_000, 2_000_000, u64::MAX]);
    let (refill_policy, window) = refill_policies(random);
    let mut acquire = AcquireRequest { id: id(&[value]), quota, lease_us, refill_policy, window, claims: vec![] };
    let (claims, is_lone_take) = (random.below(4), random.below(4) == 0);
    if is_lone_take {
        acquire.claims.push(Claim::take(random.pick(&[1, 1, 2, 7, 60, 150])));
        return acquire;
    }
    for _ in 0..claims {
        if random.below(4) == 0 {
            let claim = match random.below(6) {
                0 => Claim::at_once(ClaimKind::Charge, random.pick(&[0, 1, 7, 60])),
                1 => Claim::at_once(ClaimKind::Refund, random.pick(&[0, 1, 7, 60, u32::MAX])),
                _ => Claim::take(random.pick(&[0, 1, 1, 7, u32::MAX])),
            };
            acquire.claims.push(claim);
            continue;
        }
        let epoch = random.pick(&EPOCHS);
        let known = charged.get(&(acquire.escrow(), epoch)).copied().unwrap_or_default();
        // A request that held its epoch may have cost more than was debited.
        let held_us = (random.below(3) == 0).then(|| random.pick(&[0, 5_000, 60_000_000]));
        let admitted = match random.below(8) {
            0 if held_us.is_none() => random.tokens(),
            1 => 0,
            2..5 if held_us.is_some() => known + random.below(20),
            _ => random.below(known + 1),
        };
        let ahead = match random.below(8) {
            _ if held_us == Some(0) => 0,
            0 => 0,
            1 => u32::MAX,
            _ => u32::try_from(random.below(200)).unwrap(),
        };
        acquire.claims.push(Claim { held_us, ..Claim::of(epoch, admitted, ahead) });
    }
    acquire
}

/// Cases that the runs must have met, or they test too little.
#[derive(Debug, Default)]
struct Met {
    given: u64,
    outstanding: u64,
    refused: usize,
    empty: usize,
    waits: usize,
    /// Leases that were cut to the end of a window.
    cut: usize,
    /// Acquires that debited only what requests cost beyond what they had acquired.
    debts: usize,
    /// Takes that got all, or are to wait.
    taken: usize,
    short: usize,
    refunds: usize,
}

impl Met {
    fn observe(&mut self, acquire: &AcquireRequest, acquired: &AcquireResult) {
        self.given += acquired.given;
        self.outstanding = self.outstanding.max(acquired.outstanding);
        for (claim, lease) in acquire.claims.iter().zip(&acquired.leases) {
            let is_take = claim.kind == ClaimKind::Take;
            self.refused += usize::from(claim.kind == ClaimKind::Lease && lease.lease_ms == 0);
            self.taken += usize::from(is_take && lease.charged > 0);
            self.short += usize::from(is_take && lease.charged == 0 && lease.wait_ms > 0);
            self.refunds += usize::from(claim.kind == ClaimKind::Refund && lease.charged > 0);
        }
        self.waits += acquired.leases.iter().filter(|lease| lease.wait_ms > 0).count();
        self.debts += usize::from(acquired.given > 0 && acquire.claims.iter().all(|claim| claim.ahead == 0));
        self.empty += usize::from(acquired.given == 0 && acquired.deficit_ns > 0);
        let whole_ms = acquire.leased_us() / 1_000;
        let is_cut = |lease: &&Leased| (1..whole_ms).contains(&u64::from(lease.lease_ms));
        self.cut += acquired.leases.iter().filter(is_cut).count();
    }

    fn is_much(&self, has_windows: bool, has_leases: bool, has_takes: bool) -> bool {
        let least = if has_windows { 4 } else { 0 };
        let least_taken = usize::from(has_takes);
        self.given > 1_000
            && (self.outstanding > 100 || !has_leases)
            && self.refused > 20
            && self.empty > 20
            && self.waits > 20
            && self.cut >= least
            && self.taken >= least_taken
            && self.short >= least_taken
            && self.refunds >= least_taken
    }
}

/// Acquires from `store` at random, and on the reference at the same times; they must agree. Returns how many
/// of the acquires debited only what requests cost beyond what they had acquired.
async fn random_calls_agree_with_the_reference(store: &dyn Store, refill_policies: Policies, seed: u64) -> usize {
    let mut random = Random(seed);
    let mut reference: BTreeMap<EscrowId, Escrow> = BTreeMap::new();
    let mut charged = BTreeMap::new();
    let (mut met, mut has_windows, mut has_leases, mut has_takes) = (Met::default(), false, false, false);
    let mut quotas = [quota(100, Period::Second, 100), quota(999_983, Period::Second, 1_000_000), random.quota()];
    for turn in 0..ACQUIRES {
        // Somebody changes the rule now and then, in every other run.
        if seed.is_multiple_of(2) && random.below(20) == 0 {
            quotas = [random.quota(), random.quota(), random.quota()];
        }
        let pop = random.pick(&["one", "two"]);
        let acquires: Vec<AcquireRequest> =
            (0..=random.below(3)).map(|_| acquire(&mut random, refill_policies, quotas, &charged)).collect();
        let answers = all(store.acquire(pop, &acquires).await);
        for (acquire, acquired) in acquires.iter().zip(answers) {
            let escrow = reference.entry(acquire.escrow()).or_default();
            let expected = escrow.acquire(acquired.now_us, pop, acquire);
            assert_eq!(acquired, expected, "seed {seed}, turn {turn}, {acquire:?}");
            for (claim, lease) in acquire.claims.iter().zip(&acquired.leases) {
                if !claim.is_at_once() && (lease.lease_ms > 0 || claim.held_us.is_none()) {
                    charged.insert((acquire.escrow(), claim.epoch), lease.charged);
                }
            }
            met.observe(acquire, &acquired);
            has_windows |= acquire.refill_policy.windows().is_some();
            has_leases |= acquire.refill_policy != RefillPolicy::Queue;
            has_takes |= !matches!(acquire.refill_policy, RefillPolicy::Queue | RefillPolicy::InFlight(_));
        }
    }
    assert!(met.is_much(has_windows, has_leases, has_takes), "seed {seed}: {met:?}");
    met.debts
}

// I6
#[tokio::test]
async fn both_stores_agree_with_the_reference_to_the_bit() {
    let redis = Redis::start().await;
    let store = connected(&redis).await;
    let mut debts = [0; 2];
    for (seed, refill_policies) in [1, 2, 3, 4, 0x5eed, u64::MAX].into_iter().flat_map(each_policy) {
        debts[0] += random_calls_agree_with_the_reference(&store, refill_policies, seed).await;
        debts[1] += random_calls_agree_with_the_reference(&memory(), refill_policies, seed).await;
        let mut connection = redis.connection().await;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    }
    assert!(debts.iter().all(|debts| *debts > 10), "{debts:?}");
}

fn each_policy(seed: u64) -> [(u64, Policies); 7] {
    [steady, windows, sliding, logs, in_flight, turns, any].map(|refill_policies: Policies| (seed, refill_policies))
}

/// Beyond 2^53 ns a double loses the last bits, and a quotient may be off by one, either way.
#[tokio::test]
async fn redis_gives_whole_tokens_exactly() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let key = escrow_key(RefillPolicy::Continuous, &id(b"a"));
    for (token_ns, burst, levels) in
        [(12_342_857_142_859, 2_799, 2_700..2_790), (4_399_120_515_142, 4_096, 4_090..4_096_u64)]
    {
        let odd = Quota::from_token_ns(token_ns, burst).unwrap();
        for level_ns in levels.flat_map(|tokens| [tokens * token_ns - 1, tokens * token_ns]) {
            let deficit_ns = odd.fill_ns() - level_ns;
            // Written in what is the future to Redis, so that nothing refills.
            let mut state = vec![("end_us", 0), ("outstanding", 0), ("next_us", 0), ("last_us", 0), ("at_us", 1 << 52)];
            state.extend([("deficit_us", deficit_ns / 1_000), ("deficit_ns", deficit_ns % 1_000)]);
            let () = connection.del(&key).await.unwrap();
            let () = connection.hset_multiple(&key, &state).await.unwrap();
            let acquire = strict::acquire(b"a", odd, 1, vec![Claim::of(1, 0, u32::MAX)]);
            let acquired = strict::ask(&store, "fra1", acquire).await.unwrap();
            assert_eq!(acquired.given, level_ns / token_ns, "{level_ns} ns");
            assert_eq!(acquired.deficit_ns, deficit_ns + acquired.given * token_ns);
        }
    }
}
