//! Embedded store: budgets in this process, for one region and for trials.
//!
//! Its data ends with the process. The next reports then charge everything that no reply has confirmed.

mod maps;
mod rules;

use std::future::ready;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weir_budget::ban::{BanList, BannedKey};
use weir_budget::budget::{Account, Budget, BudgetId, PlanEntry};
use weir_budget::escrow::{AcquireRequest, AcquireResult, ENDED_KEPT_US, Escrow, EscrowId, NO_LEASE};
use weir_budget::hot::{HotKey, HotList};
use weir_budget::pops::PopRuleSet;
use weir_protocol::messages::POPS_MAX;
use weir_protocol::refill_policy::RefillPolicy;

use super::rules::{Current, OverrideChange, RulesChange, RulesResult, StoredCanary, StoredOverrides, StoredVersion};
use super::{ChargeBatch, Each, Store, StoreFuture, TOP_KEYS_MS, TOP_KEYS_REPLICAS_MAX, lock, unix_us};
use crate::fleet::{POP_RECORDS_MAX, PopRecord, Seen, seen};
use maps::{Expiring, Recent};
use rules::MemoryRules;

/// Minimum start of the store's clock, in microseconds: reports may cover the time before this process started.
const CLOCK_BEGINS_US: u64 = 1 << 50;

#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
    started: Instant,
    /// Time of the store's clock at `started`, in microseconds since 1970. From then on it is monotonic.
    begins_us: u64,
    pop_ttl_us: u64,
}

#[derive(Debug)]
struct State {
    budgets: Expiring<BudgetId, Budget>,
    /// Strict budgets. Unlike others, one that is not full is never dropped early: a new one would give the same tokens
    /// again. If there are too many, a new one gets no tokens.
    escrows: Expiring<EscrowId, Escrow>,
    pops: Recent<String, ()>,
    hot: HotList,
    bans: BanList,
    budgets_max: usize,
    rules: MemoryRules,
    pop_records: Recent<(String, String), PopRuleSet>,
    top_keys: Recent<String, String>,
}

impl MemoryStore {
    /// Creates a store of at most `budgets_max` budgets (at least one) and as many strict ones; a POP is alive for
    /// `pop_ttl`. Beyond the maximum, the budget closest to full is dropped; a strict one only once it is full.
    pub fn new(budgets_max: usize, pop_ttl: Duration) -> Self {
        let state = State {
            budgets: Expiring::new(Budget::expires_us),
            escrows: Expiring::new(Escrow::full_us),
            pops: Recent::default(),
            hot: HotList::default(),
            bans: BanList::default(),
            budgets_max: budgets_max.max(1),
            rules: MemoryRules::default(),
            pop_records: Recent::default(),
            top_keys: Recent::default(),
        };
        let begins_us = unix_us().max(CLOCK_BEGINS_US);
        Self { state: Mutex::new(state), started: Instant::now(), begins_us, pop_ttl_us: micros(pop_ttl) }
    }

    fn now_us(&self) -> u64 {
        self.begins_us + micros(self.started.elapsed())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut lock(&self.state))
    }
}

impl Store for MemoryStore {
    fn charge<'a>(&'a self, batch: &'a ChargeBatch<'a>) -> Each<'a, Account> {
        let accounts = self.with(|state| {
            // The clock is read under the lock, so that charges see time in order.
            let now_us = self.now_us();
            while state.budgets.pop_first(now_us) {}
            batch.entries.iter().map(|entry| Ok(state.charge(now_us, batch, entry))).collect()
        });
        Box::pin(ready(accounts))
    }

    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        let answers = self.with(|state| {
            let now_us = self.now_us();
            while state.escrows.pop_first(now_us.saturating_sub(ENDED_KEPT_US)) {}
            acquires.iter().map(|acquire| Ok(state.acquire(now_us, pop, acquire))).collect()
        });
        Box::pin(ready(answers))
    }

    fn forget<'a>(&'a self, id: &'a BudgetId, refill_policies: &'a [RefillPolicy]) -> StoreFuture<'a, ()> {
        self.with(|state| {
            state.budgets.remove(id);
            for refill_policy in refill_policies {
                state.escrows.remove(&(*refill_policy, id.clone()));
            }
        });
        done(())
    }

    fn register<'a>(&'a self, pop: &'a str) -> StoreFuture<'a, u32> {
        let live = self.with(|state| {
            let (now_us, ttl_us) = (self.now_us(), self.pop_ttl_us);
            state.pops.put(now_us, ttl_us, POPS_MAX as usize, pop.to_owned(), ());
            state.pops.live(now_us, ttl_us).len()
        });
        done(u32::try_from(live).unwrap_or(u32::MAX))
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> StoreFuture<'a, Vec<HotKey>> {
        done(self.with(|state| state.hot.exchange(mine, self.now_us())))
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> StoreFuture<'a, Vec<BannedKey>> {
        done(self.with(|state| state.bans.exchange(mine, self.now_us())))
    }

    fn change_rules<'a>(&'a self, change: &'a RulesChange<'a>) -> StoreFuture<'a, RulesResult> {
        done(self.with(|state| state.rules.change(unix_us() / 1_000, change)))
    }

    fn canary(&self) -> StoreFuture<'_, Option<StoredCanary>> {
        done(self.with(|state| state.rules.canary.clone()))
    }

    fn get_rules(&self, version: u64) -> StoreFuture<'_, Option<String>> {
        done(self.with(|state| state.rules.document(version).map(str::to_owned)))
    }

    fn kept_rules(&self) -> StoreFuture<'_, Vec<StoredVersion>> {
        done(self.with(|state| state.rules.kept()))
    }

    fn current(&self) -> StoreFuture<'_, Current> {
        done(self.with(|state| state.rules.current()))
    }

    fn overrides<'a>(&'a self, change: Option<&'a OverrideChange<'a>>) -> StoreFuture<'a, StoredOverrides> {
        done(self.with(|state| state.rules.change_override(unix_us() / 1_000, change)))
    }

    fn store_pop_records<'a>(&'a self, replica: &'a str, pops: &'a [PopRuleSet]) -> StoreFuture<'a, ()> {
        self.with(|state| {
            for pop in pops {
                let name = (replica.to_owned(), pop.pop.clone());
                state.pop_records.put(self.now_us(), self.pop_ttl_us, POP_RECORDS_MAX, name, pop.clone());
            }
        });
        done(())
    }

    fn fleet(&self) -> StoreFuture<'_, Vec<Seen>> {
        done(self.with(|state| {
            let now_us = self.now_us();
            let live = state.pop_records.live(now_us, self.pop_ttl_us);
            let records = live.iter().map(|((replica, pop), (at_us, rule_set))| {
                let PopRuleSet { version, refused, .. } = *rule_set;
                PopRecord { replica, pop, version, refused, at_us: *at_us }
            });
            seen(records, now_us)
        }))
    }

    fn store_top_keys<'a>(&'a self, replica: &'a str, text: &'a str) -> StoreFuture<'a, ()> {
        self.with(|state| {
            if text.is_empty() {
                return state.top_keys.remove(&replica.to_owned());
            }
            let ttl_us = TOP_KEYS_MS * 1_000;
            state.top_keys.put(self.now_us(), ttl_us, TOP_KEYS_REPLICAS_MAX, replica.into(), text.into());
        });
        done(())
    }

    fn top_keys(&self) -> StoreFuture<'_, Vec<(String, String)>> {
        done(self.with(|state| {
            let live = state.top_keys.live(self.now_us(), TOP_KEYS_MS * 1_000).iter();
            live.map(|(replica, (_, text))| (replica.clone(), text.clone())).collect()
        }))
    }

    fn is_lasting(&self) -> bool {
        false
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        done(())
    }
}

impl State {
    fn charge(&mut self, now_us: u64, batch: &ChargeBatch<'_>, entry: &PlanEntry) -> Account {
        let charge = entry.charge(batch.replica, batch.pop);
        if let Some(account) = self.budgets.change(&entry.id, |budget| budget.charge(now_us, &charge)) {
            return account;
        }
        while self.budgets.len() >= self.budgets_max && self.budgets.pop_first(u64::MAX) {}
        let mut budget = Budget::default();
        let account = budget.charge(now_us, &charge);
        self.budgets.insert(entry.id.clone(), budget);
        account
    }

    fn acquire(&mut self, now_us: u64, pop: &str, acquire: &AcquireRequest) -> AcquireResult {
        let id = acquire.escrow();
        if let Some(acquired) = self.escrows.change(&id, |escrow| escrow.acquire(now_us, pop, acquire)) {
            return acquired;
        }
        if self.escrows.len() >= self.budgets_max && !self.escrows.pop_first(now_us) {
            let leases = vec![NO_LEASE; acquire.claims.len()];
            let deficit_ns = acquire.quota.fill_ns();
            return AcquireResult { deficit_ns, outstanding: 0, given: 0, now_us, leases };
        }
        let mut escrow = Escrow::default();
        let acquired = escrow.acquire(now_us, pop, acquire);
        self.escrows.insert(id, escrow);
        acquired
    }
}

fn done<T: Send + 'static>(result: T) -> StoreFuture<'static, T> {
    Box::pin(ready(Ok(result)))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_budget::budget::{Count, Demand};
    use weir_budget::escrow::Claim;
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_protocol::sharing::Sharing;

    async fn charge(store: &MemoryStore, value: u8, admitted: u64) -> u64 {
        let quota = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
        let id = BudgetId::new("r".into(), vec![value]);
        let (sharing, demand) = (Sharing::of(quota), Demand::default());
        let count = Count { epoch: 1, admitted, unconfirmed: admitted, span_us: 0, missing: 0, made_ms: 0 };
        let entry = PlanEntry { id, quota, sharing, demand, own_milli: 0, counts: vec![count] };
        let batch = ChargeBatch { replica: "fra", pop: "fra1", entries: &[entry] };
        store.charge(&batch).await.remove(0).unwrap().deficit_ns / quota.token_ns()
    }

    // I2
    #[tokio::test]
    async fn a_full_store_forgets_the_budget_closest_to_full() {
        let store = MemoryStore::new(3, Duration::from_secs(1));
        let len = || store.with(|state| state.budgets.len());
        for (value, admitted) in [(1, 90), (2, 0), (3, 50), (4, 70)] {
            charge(&store, value, admitted).await;
            assert!(len() <= 3);
        }
        charge(&store, 5, 80).await;
        // Each of these is 1 above what it was, less a moment's refill; 2 and 3 were forgotten.
        assert_eq!(charge(&store, 1, 91).await, 90);
        assert_eq!(charge(&store, 4, 71).await, 70);
        assert_eq!(charge(&store, 5, 81).await, 80);
        assert_eq!(len(), 3);
    }

    // I2
    #[test]
    fn a_new_strict_budget_waits_until_another_is_full() {
        let store = MemoryStore::new(2, Duration::from_secs(1));
        // Acquires 3 tokens of 5, which refill in a second each.
        let acquire = |now_us: u64, value: u8| {
            let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 5).unwrap();
            let (id, claims) = (BudgetId::new("r".into(), vec![value]), vec![Claim::of(now_us, 0, 3)]);
            let (refill_policy, window) = (RefillPolicy::Continuous, None);
            let acquire = AcquireRequest { id, quota, lease_us: 640_000, refill_policy, window, claims };
            store.with(|state| state.acquire(now_us, "fra1", &acquire).given)
        };
        assert_eq!([acquire(1, 1), acquire(2, 2)], [3, 3]);
        let full_us = 1 + 650_000 + 3_000_000;
        assert_eq!(acquire(full_us - 1, 3), 0, "the others are still missing tokens");
        assert_eq!(acquire(full_us, 3), 3, "by now the first is full");
        assert_eq!(acquire(full_us, 1), 0);
        assert_eq!(store.with(|state| state.escrows.len()), 2);
    }
}
