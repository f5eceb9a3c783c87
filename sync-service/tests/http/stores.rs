//! A store that a test can take out of reach.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, BudgetId};
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hot::HotKey;
use weir_budget::pops::PopRuleSet;
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::fleet::Seen;
use weir_store::memory::MemoryStore;
use weir_store::rules::{
    Current, OverrideChange, RulesChange, RulesResult, StoredCanary, StoredOverrides, StoredVersion,
};
use weir_store::{ChargeBatch, Each, Store, StoreError, StoreFuture};

/// A memory store that several servers share. It records its accounts, and can be put out of reach.
pub(crate) struct Shared {
    memory: Arc<MemoryStore>,
    is_gone: AtomicBool,
    is_silent: AtomicBool,
    loses_answers: AtomicBool,
    loses_overrides: AtomicBool,
    keeps_budgets: AtomicBool,
    /// Held while rule sets are put, but no weir-sync is notified.
    holds_answers: tokio::sync::RwLock<()>,
    accounts: Mutex<Vec<Account>>,
}

impl Shared {
    pub(crate) fn new(pop_ttl: Duration) -> Arc<Self> {
        Self::over(Arc::new(MemoryStore::new(1_000, pop_ttl)))
    }

    /// The same store on another way, which can be cut by itself.
    pub(crate) fn beside(&self) -> Arc<Self> {
        Self::over(Arc::clone(&self.memory))
    }

    fn over(memory: Arc<MemoryStore>) -> Arc<Self> {
        let no = || AtomicBool::new(false);
        Arc::new(Self {
            memory,
            is_gone: no(),
            is_silent: no(),
            loses_answers: no(),
            loses_overrides: no(),
            keeps_budgets: no(),
            holds_answers: tokio::sync::RwLock::default(),
            accounts: Mutex::default(),
        })
    }

    pub(crate) fn set_gone(&self, is_gone: bool) {
        self.is_gone.store(is_gone, Ordering::SeqCst);
    }

    /// As long as this is held, rule sets are put, but no weir-sync is notified.
    pub(crate) async fn hold_answers(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.holds_answers.write().await
    }

    /// If set, changes of rule sets, overrides and budgets are made, but their answers are lost.
    pub(crate) fn lose_answers(&self, loses: bool) {
        self.loses_answers.store(loses, Ordering::SeqCst);
    }

    /// If set, overrides are changed, but the answers are lost.
    pub(crate) fn lose_overrides(&self, loses: bool) {
        self.loses_overrides.store(loses, Ordering::SeqCst);
    }

    fn or_lost<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        answer.and_then(
            |answer| {
                if self.loses_answers.load(Ordering::SeqCst) { Err(StoreError::Slow(500)) } else { Ok(answer) }
            },
        )
    }

    /// From now on it answers no acquire.
    pub(crate) fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }

    /// If set, it refuses to forget budgets.
    pub(crate) fn set_keeps_budgets(&self, keeps: bool) {
        self.keeps_budgets.store(keeps, Ordering::SeqCst);
    }

    /// Every account so far, in the order of the charges, including those that only looked at a budget.
    pub(crate) fn accounts(&self) -> Vec<Account> {
        self.accounts.lock().unwrap().clone()
    }

    fn or_gone<'a, T: Send + 'a>(&self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.is_gone.load(Ordering::SeqCst) {
            return Box::pin(async { Err(gone()) });
        }
        answer
    }
}

fn gone() -> StoreError {
    StoreError::Unreachable("taken away".into())
}

impl Store for Shared {
    fn charge<'a>(&'a self, batch: &'a ChargeBatch<'a>) -> Each<'a, Account> {
        Box::pin(async move {
            // Checked first, because the memory store charges as soon as it is asked.
            if self.is_gone.load(Ordering::SeqCst) && !batch.entries.is_empty() {
                return batch.entries.iter().map(|_| Err(gone())).collect();
            }
            let accounts = self.memory.charge(batch).await;
            self.accounts.lock().unwrap().extend(accounts.iter().flatten().cloned());
            accounts
        })
    }

    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        Box::pin(async move {
            if self.is_silent.load(Ordering::SeqCst) && !acquires.is_empty() {
                return pending().await;
            }
            if self.is_gone.load(Ordering::SeqCst) {
                return acquires.iter().map(|_| Err(gone())).collect();
            }
            self.memory.acquire(pop, acquires).await
        })
    }

    fn forget<'a>(&'a self, id: &'a BudgetId, refill_policies: &'a [RefillPolicy]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if self.keeps_budgets.load(Ordering::SeqCst) || self.is_gone.load(Ordering::SeqCst) {
                return Err(gone());
            }
            self.or_lost(self.memory.forget(id, refill_policies).await)
        })
    }

    fn register<'a>(&'a self, pop: &'a str) -> StoreFuture<'a, u32> {
        self.or_gone(self.memory.register(pop))
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> StoreFuture<'a, Vec<HotKey>> {
        self.or_gone(self.memory.hot(mine))
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> StoreFuture<'a, Vec<BannedKey>> {
        Box::pin(async move {
            // Not even asked while it is gone.
            if self.is_gone.load(Ordering::SeqCst) {
                return Err(gone());
            }
            self.memory.bans(mine).await
        })
    }

    fn change_rules<'a>(&'a self, change: &'a RulesChange<'a>) -> StoreFuture<'a, RulesResult> {
        if self.is_gone.load(Ordering::SeqCst) {
            return Box::pin(async { Err(gone()) });
        }
        let changing = self.memory.change_rules(change);
        Box::pin(async move {
            let changed = changing.await;
            drop(self.holds_answers.read().await);
            self.or_lost(changed)
        })
    }

    fn canary(&self) -> StoreFuture<'_, Option<StoredCanary>> {
        self.or_gone(self.memory.canary())
    }

    fn store_top_keys<'a>(&'a self, replica: &'a str, text: &'a str) -> StoreFuture<'a, ()> {
        self.or_gone(self.memory.store_top_keys(replica, text))
    }

    fn top_keys(&self) -> StoreFuture<'_, Vec<(String, String)>> {
        self.or_gone(self.memory.top_keys())
    }

    fn get_rules(&self, version: u64) -> StoreFuture<'_, Option<String>> {
        self.or_gone(self.memory.get_rules(version))
    }

    fn kept_rules(&self) -> StoreFuture<'_, Vec<StoredVersion>> {
        self.or_gone(self.memory.kept_rules())
    }

    fn current(&self) -> StoreFuture<'_, Current> {
        self.or_gone(self.memory.current())
    }

    fn overrides<'a>(&'a self, change: Option<&'a OverrideChange<'a>>) -> StoreFuture<'a, StoredOverrides> {
        if self.is_gone.load(Ordering::SeqCst) {
            return Box::pin(async { Err(gone()) });
        }
        let overrides = self.memory.overrides(change);
        Box::pin(async move {
            let overrides = overrides.await;
            match change {
                Some(_) if self.loses_overrides.load(Ordering::SeqCst) => Err(StoreError::Slow(500)),
                Some(_) => self.or_lost(overrides),
                None => overrides,
            }
        })
    }

    fn store_pop_records<'a>(&'a self, replica: &'a str, pops: &'a [PopRuleSet]) -> StoreFuture<'a, ()> {
        self.or_gone(self.memory.store_pop_records(replica, pops))
    }

    fn fleet(&self) -> StoreFuture<'_, Vec<Seen>> {
        self.or_gone(self.memory.fleet())
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        self.or_gone(self.memory.ping())
    }
}
