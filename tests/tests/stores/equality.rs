//! The script in Redis and the reference in weir-budget agree to the bit, on anything.

use std::collections::BTreeMap;

use weir_budget::budget::{Budget, BudgetId, COUNT_MAX, Count, DEFICIT_NS_MAX, Demand, PlanEntry};
use weir_budget::records::MADE_MS_MAX;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::sharing::Sharing;
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::Redis;

use crate::{all, connected, id, memory, quota};

/// Reports per seed.
const REPORTS: usize = 300;

/// A small generator (xorshift64*): the same sequence for the same seed, everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Mostly small, sometimes at a limit.
    pub(crate) fn tokens(&mut self) -> u64 {
        let edges = [0, 1, 1 << 31, (1 << 40) - 1, 1 << 40, (1 << 40) + 1, COUNT_MAX - 1, COUNT_MAX, u64::MAX];
        if self.below(12) == 0 { self.pick(&edges) } else { self.below(500) }
    }

    pub(crate) fn quota(&mut self) -> Quota {
        match self.below(6) {
            5 => quota(3, Period::Second, 7),
            0 => quota(1, Period::Day, 400),
            1 => quota(1_000_000, Period::Second, 1),
            2 => quota(7, Period::Minute, 20),
            3 => quota(999_983, Period::Second, 1_000_000),
            _ => quota(100, Period::Second, 100),
        }
    }

    /// Report `report` of a budget: of one of three anything, and of one of three others little more
    /// than before, at a rate at which they are full again and again.
    fn entry(&mut self, report: u64) -> PlanEntry {
        let name = self.pick(b"abcdef");
        let is_light = name > b'c';
        let counts = (0..self.below(4)).map(|_| Count {
            epoch: self.pick(&[0, 1, 2, u64::MAX]),
            admitted: if is_light { 40 * report + self.below(80) } else { self.tokens() },
            unconfirmed: if is_light { self.below(80) } else { self.tokens() },
            span_us: self.pick(&[0, 200, 700, 700_000, 1_400_000]),
            missing: self.below(3) * self.below(60),
            made_ms: match self.below(100) {
                0 => self.pick(&[0, MADE_MS_MAX, u64::MAX]),
                _ => report + self.below(10),
            },
        });
        let counts = counts.collect();
        let quota = if is_light { quota(999_983, Period::Second, 1_000_000) } else { self.quota() };
        PlanEntry {
            id: id(&[name]),
            quota,
            sharing: Sharing::of(quota),
            demand: Demand { milli: self.tokens(), askers: u32::try_from(self.below(400)).unwrap() },
            own_milli: 0,
            counts,
        }
    }
}

/// Charges `store` at random and, with the times in its answers, the reference; they must agree.
async fn random_calls_agree_with_the_reference(store: &dyn Store, seed: u64) {
    let mut random = Random(seed);
    let mut reference: BTreeMap<BudgetId, Budget> = BTreeMap::new();
    let (mut fan_out_most, mut deepest, mut paid) = (0, 0, 0);
    for report in 0..REPORTS as u64 {
        let entries: Vec<PlanEntry> = (0..=random.below(3)).map(|_| random.entry(report)).collect();
        let (replica, pop) = (random.pick(&["fra", "iad/0", "iad/1"]), random.pick(&["one", "two"]));
        let accounts = all(store.charge(&ChargeBatch { replica, pop, entries: &entries }).await);
        for (entry, account) in entries.iter().zip(accounts) {
            let budget = reference.entry(entry.id.clone()).or_default();
            let expected = budget.charge(account.now_us, &entry.charge(replica, pop));
            assert_eq!(account, expected, "seed {seed}, report {report}, {entry:?}");
            fan_out_most = fan_out_most.max(account.fan_out);
            deepest = deepest.max(account.deficit_ns);
            paid += usize::from(account.deficit_ns < account.charged.saturating_mul(entry.quota.token_ns()));
        }
    }
    assert!(fan_out_most > 1_000, "seed {seed} never spread far: it tests too little");
    assert!(paid > 10, "seed {seed} paid {paid} late reports: it tests too little");
    assert!(deepest > DEFICIT_NS_MAX / 2, "seed {seed} never came near the limit: it tests too little");
}

// I7
#[tokio::test]
async fn both_stores_agree_with_the_reference_to_the_bit() {
    for seed in [1, 2, 3, 0x5eed, u64::MAX] {
        let redis = Redis::start().await;
        random_calls_agree_with_the_reference(&connected(&redis).await, seed).await;
        random_calls_agree_with_the_reference(&memory(), seed).await;
    }
}
