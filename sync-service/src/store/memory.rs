//! Embedded store: budgets in this process, for one region and for trials.
//!
//! Its data ends with the process. The next reports then charge everything that no reply has confirmed.

mod escrows;
mod members;
mod rules;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use weir_budget::ban::{BanList, BannedKey};
use weir_budget::budget::{Account, Budget, BudgetId};
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hot::{HotKey, HotList};
use weir_budget::id::ByBudget;
use weir_budget::plan::PlanEntry;
use weir_budget::pops::PopNote;
use weir_protocol::messages::POPS_MAX;
use weir_protocol::refill_policy::RefillPolicy;

use super::rules::{CanaryChange, CanaryResult, StoredCanary};
use super::rules::{Current, OverrideChange, StoredOverrides};
use super::rules::{NewVersion, Stored, StoredVersion};
use super::{ChargeBatch, Each, Store, StoreFuture, TOP_KEYS_MEMBERS_MAX, TOP_KEYS_MS};
use crate::fleet::{NOTES_MAX, Note, Seen, seen};
use escrows::Escrows;
use members::Recent;
use rules::{MemoryOverrides, MemoryRules, millis};

/// Minimum start of the store's clock, in microseconds. It is not zero, as reports may cover the time before
/// this process started.
const CLOCK_BEGINS_US: u64 = 1 << 50;

/// Budgets in memory.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
    /// Start of the store.
    started: Instant,
    /// Time of the store's clock at `started`, in microseconds since 1970, so that calendar quotas have the
    /// calendar's windows. From then on it is monotonic.
    begins_us: u64,
    pop_ttl_us: u64,
}

#[derive(Debug)]
struct State {
    budgets: ByBudget<Placed>,
    /// The budgets by the time at which they can be dropped without loss: full ones first, deep debts and
    /// remembered fan-outs last. The entry of a budget that was charged since may be too early; it is corrected
    /// when it comes first.
    expiry: BTreeSet<(u64, BudgetId)>,
    escrows: Escrows,
    /// POPs by name.
    pops: Recent<String, ()>,
    hot: HotList,
    bans: BanList,
    budgets_max: usize,
    rules: MemoryRules,
    overrides: MemoryOverrides,
    /// Rule sets of POPs, by member and POP.
    notes: Recent<(String, String), PopNote>,
    /// Top keys by member.
    top_keys: Recent<String, String>,
}

/// A budget, with its key in `expiry`.
#[derive(Debug, Default)]
struct Placed {
    budget: Budget,
    /// Its time in [`State::expiry`]; never later than the end of the budget's life.
    expiry_us: u64,
}

impl MemoryStore {
    /// Creates a store of at most `budgets_max` budgets (at least one) and as many strict ones. A POP counts as
    /// alive for `pop_ttl` after its last report. Beyond the maximum, the budget that is closest to full is
    /// dropped; a strict one only once it is full.
    pub fn new(budgets_max: usize, pop_ttl: Duration) -> Self {
        let state = State {
            budgets: ByBudget::default(),
            expiry: BTreeSet::new(),
            escrows: Escrows::new(budgets_max.max(1)),
            pops: Recent::default(),
            hot: HotList::default(),
            bans: BanList::default(),
            budgets_max: budgets_max.max(1),
            rules: MemoryRules::default(),
            overrides: MemoryOverrides::default(),
            notes: Recent::default(),
            top_keys: Recent::default(),
        };
        let unix_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, micros);
        let begins_us = unix_us.max(CLOCK_BEGINS_US);
        Self { state: Mutex::new(state), started: Instant::now(), begins_us, pop_ttl_us: micros(pop_ttl) }
    }

    /// Number of budgets.
    pub fn budgets_len(&self) -> usize {
        self.with(|state| state.budgets.len())
    }

    fn now_us(&self) -> u64 {
        self.begins_us + micros(self.started.elapsed())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // Nothing here panics; if it did, the budgets would still be valid.
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for MemoryStore {
    fn charge<'a>(&'a self, batch: &'a ChargeBatch<'a>) -> Each<'a, Account> {
        let accounts = self.with(|state| {
            // The clock is read under the lock, so that charges see time in order.
            let now_us = self.now_us();
            state.forget_expired(now_us);
            batch.entries.iter().map(|entry| Ok(state.charge(now_us, batch, entry))).collect()
        });
        Box::pin(async move { accounts })
    }

    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        let answers = self.with(|state| {
            let now_us = self.now_us();
            acquires.iter().map(|acquire| Ok(state.escrows.acquire(now_us, pop, acquire))).collect()
        });
        Box::pin(async move { answers })
    }

    fn forget<'a>(&'a self, id: &'a BudgetId, refill_policies: &'a [RefillPolicy]) -> StoreFuture<'a, ()> {
        self.with(|state| state.forget(id, refill_policies));
        Box::pin(async { Ok(()) })
    }

    fn register<'a>(&'a self, pop: &'a str) -> StoreFuture<'a, u32> {
        let live = self.with(|state| {
            let (now_us, ttl_us) = (self.now_us(), self.pop_ttl_us);
            state.pops.put(now_us, ttl_us, POPS_MAX as usize, pop.to_owned(), ());
            state.pops.live(now_us, ttl_us).len()
        });
        Box::pin(async move { Ok(u32::try_from(live).unwrap_or(u32::MAX)) })
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> StoreFuture<'a, Vec<HotKey>> {
        let list = self.with(|state| state.hot.exchange(mine, self.now_us()));
        Box::pin(async move { Ok(list) })
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> StoreFuture<'a, Vec<BannedKey>> {
        let list = self.with(|state| state.bans.exchange(mine, self.now_us()));
        Box::pin(async move { Ok(list) })
    }

    fn put_rules<'a>(&'a self, put: &'a NewVersion<'a>) -> StoreFuture<'a, Stored> {
        let stored = self.with(|state| state.rules.put(since_1970(), put));
        Box::pin(async move { Ok(stored) })
    }

    fn change_canary<'a>(&'a self, change: &'a CanaryChange<'a>) -> StoreFuture<'a, CanaryResult> {
        let outcome = self.with(|state| state.change_canary(since_1970(), change));
        Box::pin(async move { Ok(outcome) })
    }

    fn canary(&self) -> StoreFuture<'_, Option<StoredCanary>> {
        let canary = self.with(|state| state.rules.canary().cloned());
        Box::pin(async move { Ok(canary) })
    }

    fn get_rules(&self, version: u64) -> StoreFuture<'_, Option<String>> {
        let document = self.with(|state| state.rules.document(version).map(str::to_owned));
        Box::pin(async move { Ok(document) })
    }

    fn kept_rules(&self) -> StoreFuture<'_, Vec<StoredVersion>> {
        let kept = self.with(|state| state.rules.kept());
        Box::pin(async move { Ok(kept) })
    }

    fn current(&self) -> StoreFuture<'_, Current> {
        let current = self.with(|state| state.current());
        Box::pin(async move { Ok(current) })
    }

    fn overrides<'a>(&'a self, change: Option<&'a OverrideChange<'a>>) -> StoreFuture<'a, StoredOverrides> {
        let overrides = self.with(|state| {
            let now = since_1970();
            let outcome = state.overrides.change(now, change, state.rules.canary().is_some());
            let (current, kept) = (state.current(), state.overrides.kept());
            StoredOverrides { current, now_ms: millis(now), outcome, kept }
        });
        Box::pin(async move { Ok(overrides) })
    }

    fn note_pops<'a>(&'a self, member: &'a str, pops: &'a [PopNote]) -> StoreFuture<'a, ()> {
        self.with(|state| {
            for note in pops {
                let name = (member.to_owned(), note.pop.clone());
                state.notes.put(self.now_us(), self.pop_ttl_us, NOTES_MAX, name, note.clone());
            }
        });
        Box::pin(async { Ok(()) })
    }

    fn fleet(&self) -> StoreFuture<'_, Vec<Seen>> {
        let seen = self.with(|state| {
            let now_us = self.now_us();
            let notes =
                state.notes.live(now_us, self.pop_ttl_us).iter().map(|((member, pop), (at_us, note))| {
                    let PopNote { version, refused, .. } = *note;
                    Note { member, pop, version, refused, at_us: *at_us }
                });
            seen(notes, now_us)
        });
        Box::pin(async move { Ok(seen) })
    }

    fn store_top_keys<'a>(&'a self, member: &'a str, text: &'a str) -> StoreFuture<'a, ()> {
        self.with(|state| {
            if text.is_empty() {
                return state.top_keys.remove(&member.to_owned());
            }
            state.top_keys.put(
                self.now_us(),
                TOP_KEYS_MS * 1_000,
                TOP_KEYS_MEMBERS_MAX,
                member.into(),
                text.into(),
            );
        });
        Box::pin(async { Ok(()) })
    }

    fn top_keys(&self) -> StoreFuture<'_, Vec<(String, String)>> {
        let said = self.with(|state| {
            let live = state.top_keys.live(self.now_us(), TOP_KEYS_MS * 1_000).iter();
            live.map(|(member, (_, text))| (member.clone(), text.clone())).collect()
        });
        Box::pin(async move { Ok(said) })
    }

    fn is_lasting(&self) -> bool {
        false
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

impl State {
    fn charge(&mut self, now_us: u64, batch: &ChargeBatch<'_>, entry: &PlanEntry) -> Account {
        let charge = entry.charge(batch.member, batch.pop);
        if let Some(kept) = self.budgets.get_mut(&entry.id) {
            let account = kept.budget.charge(now_us, &charge);
            let expires_us = kept.budget.expires_us();
            if expires_us < kept.expiry_us {
                // This is rare: another quota, or a clock that stepped back.
                if let Some((_, id)) = self.expiry.take(&(kept.expiry_us, entry.id.clone())) {
                    kept.expiry_us = expires_us;
                    self.expiry.insert((expires_us, id));
                }
            }
            return account;
        }
        while self.budgets.len() >= self.budgets_max && self.forget_first(u64::MAX) {}
        let (id, mut budget) = (entry.id.clone(), Budget::default());
        let account = budget.charge(now_us, &charge);
        let expiry_us = budget.expires_us();
        self.expiry.insert((expiry_us, id.clone()));
        self.budgets.insert(id, Placed { budget, expiry_us });
        account
    }

    fn current(&self) -> Current {
        let canary = self.rules.canary().map_or(0, |canary| canary.id);
        Current { version: self.rules.version(), overrides: self.overrides.number(), canary }
    }

    fn change_canary(&mut self, since_1970: Duration, change: &CanaryChange<'_>) -> CanaryResult {
        let had_canary = self.rules.canary().is_some();
        let outcome = self.rules.change_canary(since_1970, change);
        // Later revisions must not reuse the numbers of the canary's.
        let passed = match (change, outcome) {
            (CanaryChange::Withdraw { .. }, CanaryResult::Withdrawn(_)) => 2,
            (CanaryChange::PutOver { .. }, CanaryResult::Put(_)) if had_canary => 1,
            _ => 0,
        };
        if passed > 0 {
            self.overrides.pass(millis(since_1970), passed);
        }
        outcome
    }

    fn forget(&mut self, id: &BudgetId, refill_policies: &[RefillPolicy]) {
        if let Some((id, placed)) = self.budgets.remove_entry(id) {
            self.expiry.remove(&(placed.expiry_us, id));
        }
        for refill_policy in refill_policies {
            self.escrows.forget(&(*refill_policy, id.clone()));
        }
    }

    fn forget_expired(&mut self, now_us: u64) {
        while self.forget_first(now_us) {}
    }

    /// Drops the budget that expires first, if it expires by `until_us`. Returns true if one was dropped.
    fn forget_first(&mut self, until_us: u64) -> bool {
        while self.expiry.first().is_some_and(|(expiry_us, _)| *expiry_us <= until_us) {
            let Some((expiry_us, id)) = self.expiry.pop_first() else { return false };
            let Some(kept) = self.budgets.get_mut(&id) else { continue };
            let expires_us = kept.budget.expires_us();
            if expires_us <= expiry_us {
                self.budgets.remove(&id);
                return true;
            }
            kept.expiry_us = expires_us;
            self.expiry.insert((expires_us, id));
        }
        false
    }
}

/// Wall clock.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_budget::budget::{Count, Demand};
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_protocol::sharing::Sharing;

    async fn charge(store: &MemoryStore, value: u8, admitted: u64) -> u64 {
        let quota = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
        let entry = PlanEntry {
            id: BudgetId::new("r".into(), vec![value]),
            quota,
            sharing: Sharing::of(quota),
            demand: Demand::default(),
            own_milli: 0,
            counts: vec![Count {
                epoch: 1,
                admitted,
                unconfirmed: admitted,
                span_us: 0,
                missing: 0,
                made_ms: 0,
            }],
        };
        let batch = ChargeBatch { member: "fra", pop: "fra1", entries: &[entry] };
        store.charge(&batch).await.remove(0).unwrap().deficit_ns / quota.token_ns()
    }

    // I2
    #[tokio::test]
    async fn a_full_store_forgets_the_budget_closest_to_full() {
        let store = MemoryStore::new(3, Duration::from_secs(1));
        for (value, admitted) in [(1, 90), (2, 0), (3, 50), (4, 70)] {
            charge(&store, value, admitted).await;
            assert!(store.budgets_len() <= 3);
        }
        charge(&store, 5, 80).await;
        // Each of these is 1 above what it was, less a moment's refill; 2 and 3 were forgotten.
        assert_eq!(charge(&store, 1, 91).await, 90);
        assert_eq!(charge(&store, 4, 71).await, 70);
        assert_eq!(charge(&store, 5, 81).await, 80);
        assert_eq!(store.budgets_len(), 3);
    }

    #[test]
    fn what_has_expired_is_forgotten() {
        let store = MemoryStore::new(10, Duration::from_secs(1));
        let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 1).unwrap();
        let entry = |value| PlanEntry {
            id: BudgetId::new("r".into(), vec![value]),
            quota,
            sharing: Sharing::of(quota),
            demand: Demand::default(),
            own_milli: 0,
            counts: vec![Count { epoch: 1, admitted: 1, unconfirmed: 1, span_us: 0, missing: 0, made_ms: 0 }],
        };
        let batch = ChargeBatch { member: "fra", pop: "fra1", entries: &[] };
        store.with(|state| {
            state.charge(0, &batch, &entry(1));
            state.charge(1_000_000, &batch, &entry(2));
            // A second to refill, and the grace.
            state.forget_expired(1_000_000 + weir_budget::budget::GRACE_US);
            assert_eq!((state.budgets.len(), state.expiry.len()), (1, 1));
            state.forget_expired(2_000_000 + weir_budget::budget::GRACE_US);
            assert_eq!((state.budgets.len(), state.expiry.len()), (0, 0));
        });
    }

    #[test]
    fn what_was_charged_again_is_kept_from_then_on() {
        let store = MemoryStore::new(10, Duration::from_secs(1));
        let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 1).unwrap();
        let id = BudgetId::new("r".into(), vec![1]);
        let (sharing, demand) = (Sharing::of(quota), Demand::default());
        let entry = PlanEntry { id, quota, sharing, demand, own_milli: 0, counts: vec![] };
        let batch = ChargeBatch { member: "fra", pop: "fra1", entries: &[] };
        store.with(|state| {
            state.charge(0, &batch, &entry);
            state.charge(30_000_000, &batch, &entry);
            state.forget_expired(30_000_000 + weir_budget::budget::GRACE_US - 1);
            assert_eq!((state.budgets.len(), state.expiry.len()), (1, 1));
            // With a clock that stepped back it expires sooner than was noted.
            state.charge(10_000_000, &batch, &entry);
            assert_eq!((state.budgets.len(), state.expiry.len()), (1, 1));
            state.forget_expired(10_000_000 + weir_budget::budget::GRACE_US);
            assert_eq!((state.budgets.len(), state.expiry.len()), (0, 0));
        });
    }
}
