//! Strict budgets in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use weir_budget::escrow::{AcquireRequest, AcquireResult, Escrow, EscrowId, NO_LEASE};

/// Strict budgets of a store.
///
/// Unlike other budgets, one that is not full is never dropped early: a new one would give the same tokens
/// again. If there are too many, a new one gets no tokens.
#[derive(Debug)]
pub(super) struct Escrows {
    by_id: HashMap<Arc<EscrowId>, Escrow>,
    /// The same budgets by the time at which they are full with nothing leased.
    full: BTreeSet<(u64, Arc<EscrowId>)>,
    max: usize,
}

impl Escrows {
    pub(super) fn new(max: usize) -> Self {
        Self { by_id: HashMap::new(), full: BTreeSet::new(), max }
    }

    pub(super) fn acquire(&mut self, now_us: u64, pop: &str, acquire: &AcquireRequest) -> AcquireResult {
        self.forget_expired(now_us);
        let Some((id, mut escrow)) = self.take(now_us, acquire) else {
            let leases = vec![NO_LEASE; acquire.claims.len()];
            return AcquireResult {
                deficit_ns: acquire.quota.fill_ns(),
                outstanding: 0,
                given: 0,
                now_us,
                leases,
            };
        };
        let acquired = escrow.acquire(now_us, pop, acquire);
        self.full.insert((escrow.full_us(), Arc::clone(&id)));
        self.by_id.insert(id, escrow);
        acquired
    }

    /// Takes the strict budget of `acquire` out of the store, or creates it. None if there is no room for a new
    /// one.
    fn take(&mut self, now_us: u64, acquire: &AcquireRequest) -> Option<(Arc<EscrowId>, Escrow)> {
        let id = acquire.escrow();
        if let Some((id, escrow)) = self.by_id.remove_entry(&id) {
            self.full.remove(&(escrow.full_us(), Arc::clone(&id)));
            return Some((id, escrow));
        }
        let is_full = self.by_id.len() >= self.max;
        if is_full && !self.forget_first(|first| first.full_us() <= now_us) {
            return None;
        }
        Some((Arc::new(id), Escrow::default()))
    }

    /// Drops a strict budget, whatever was debited from it.
    pub(super) fn forget(&mut self, id: &EscrowId) {
        if let Some((id, escrow)) = self.by_id.remove_entry(id) {
            self.full.remove(&(escrow.full_us(), id));
        }
    }

    fn forget_expired(&mut self, now_us: u64) {
        while self.forget_first(|first| first.expires_us() <= now_us) {}
    }

    /// Drops the budget that is full first, if `may` allows it; returns true if it was dropped.
    fn forget_first(&mut self, may: impl FnOnce(&Escrow) -> bool) -> bool {
        let Some((full_us, id)) = self.full.first().cloned() else { return false };
        if !self.by_id.get(&id).is_none_or(may) {
            return false;
        }
        self.by_id.remove(&id);
        self.full.remove(&(full_us, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_budget::budget::BudgetId;
    use weir_budget::escrow::{Claim, ENDED_KEPT_US};
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_protocol::refill_policy::RefillPolicy;

    const LEASE_US: u64 = 640_000;
    const HELD_US: u64 = 650_000;

    /// Acquires 3 tokens of 5, which refill in a second each; returns what it got.
    fn acquire(escrows: &mut Escrows, now_us: u64, value: u8) -> u64 {
        let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 5).unwrap();
        let id = BudgetId::new("r".into(), vec![value]);
        let claims = vec![Claim::of(now_us, 0, 3)];
        escrows
            .acquire(
                now_us,
                "fra1",
                &AcquireRequest {
                    id,
                    quota,
                    lease_us: LEASE_US,
                    refill_policy: RefillPolicy::Continuous,
                    window: None,
                    claims,
                },
            )
            .given
    }

    // I2
    #[test]
    fn a_newcomer_waits_until_another_is_full() {
        let mut escrows = Escrows::new(2);
        assert_eq!([acquire(&mut escrows, 1, 1), acquire(&mut escrows, 2, 2)], [3, 3]);
        let full_us = 1 + HELD_US + 3_000_000;
        assert_eq!(acquire(&mut escrows, full_us - 1, 3), 0, "the others are still missing tokens");
        assert_eq!(escrows.by_id.len(), 2);
        assert_eq!(acquire(&mut escrows, full_us, 3), 3, "by now the first is full");
        assert_eq!(acquire(&mut escrows, full_us, 1), 0);
        assert_eq!((escrows.by_id.len(), escrows.full.len()), (2, 2));
    }

    #[test]
    fn what_has_expired_is_forgotten() {
        let mut escrows = Escrows::new(9);
        acquire(&mut escrows, 1, 1);
        let expires_us = 1 + HELD_US + 3_000_000 + ENDED_KEPT_US;
        acquire(&mut escrows, expires_us - 1, 2);
        assert_eq!(escrows.by_id.len(), 2);
        acquire(&mut escrows, expires_us, 2);
        assert_eq!((escrows.by_id.len(), escrows.full.len()), (1, 1));
    }
}
