//! Acquires the tokens of a report, queue turns last.
//!
//! A turn that was given is spent. So a request that needs a turn and tokens of other strict rules gets the turn only
//! if each of those rules gives it a token. A client over its own limit thus takes no turns from other clients.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, NO_LEASE};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::{Store, StoreError};

/// Acquires the tokens of a report from `pop`; results are in order. Only requests ask for turns.
pub(crate) async fn acquire(
    store: &dyn Store,
    pop: &str,
    acquires: &[AcquireRequest],
) -> Vec<Result<AcquireResult, StoreError>> {
    let asks_turns = |acquire: &AcquireRequest| acquire.refill_policy == RefillPolicy::Queue;
    if acquires.iter().all(asks_turns) || !acquires.iter().any(asks_turns) {
        return store.acquire(pop, acquires).await;
    }
    let (turns, others): (Vec<_>, Vec<_>) = acquires.iter().cloned().partition(asks_turns);
    let tokens = store.acquire(pop, &others).await;
    let is_refused = |(other, given): (&AcquireRequest, &Result<AcquireResult, _>)| {
        given.as_ref().is_ok_and(|given| gives_nothing(other, given))
    };
    let queued = if others.iter().zip(&tokens).any(is_refused) {
        turns.iter().map(|turn| Ok(nothing(turn))).collect()
    } else {
        store.acquire(pop, &turns).await
    };
    let (mut tokens, mut queued) = (tokens.into_iter(), queued.into_iter());
    acquires.iter().filter_map(|each| if asks_turns(each) { queued.next() } else { tokens.next() }).collect()
}

/// Result of a skipped acquire, without a time to retry, because the queue may have room.
fn nothing(acquire: &AcquireRequest) -> AcquireResult {
    let leases = vec![NO_LEASE; acquire.claims.len()];
    AcquireResult { deficit_ns: 0, outstanding: 0, given: 0, now_us: 0, leases }
}

/// True if a request asked for tokens and got none.
fn gives_nothing(acquire: &AcquireRequest, given: &AcquireResult) -> bool {
    let asks = |claim: &Claim| claim.ahead > 0 && claim.held_us.is_none();
    acquire.claims.iter().zip(&given.leases).any(|(claim, lease)| asks(claim) && lease.charged <= claim.spent())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_budget::budget::BudgetId;
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_store::memory::MemoryStore;

    /// Acquires of a request on a rule of one an hour that holds `burst`.
    fn acquire_on(rule: &str, refill_policy: RefillPolicy, burst: u32, claim: Claim) -> AcquireRequest {
        let quota = Quota::new(Rate::new(1, Period::Hour).unwrap(), burst).unwrap();
        let id = BudgetId::new(rule.into(), vec![1]);
        AcquireRequest { id, quota, lease_us: 2_000_000, refill_policy, window: None, claims: vec![claim] }
    }

    /// Number of turns that a request gets, and of tokens of the other rule.
    async fn asks(store: &MemoryStore, epoch: u64, other: Claim) -> [u64; 2] {
        let acquires = [
            acquire_on("queue", RefillPolicy::Queue, 3, Claim::of(epoch, 0, 1)),
            acquire_on("client", RefillPolicy::Continuous, 1, other),
        ];
        let given = acquire(store, "fra1", &acquires).await;
        let charged: Vec<_> = given.into_iter().map(|given| given.unwrap().leases[0].charged).collect();
        charged.try_into().unwrap()
    }

    #[tokio::test]
    async fn a_request_that_another_rule_refuses_takes_no_turn() {
        let store = MemoryStore::new(10, Duration::from_secs(10));
        assert_eq!(asks(&store, 1, Claim::of(1, 0, 1)).await, [1, 1]);
        for epoch in 2..9 {
            assert_eq!(asks(&store, epoch, Claim::of(epoch, 0, 1)).await, [0, 0]);
        }
        // A claim that holds or returns its token refuses no other.
        let goes_on = Claim { held_us: Some(60_000_000), ..Claim::of(1, 0, 1) };
        assert_eq!(asks(&store, 9, goes_on).await, [1, 1]);
        assert_eq!(asks(&store, 10, Claim::of(1, 0, 0)).await, [1, 0], "the last of three");
        assert_eq!(asks(&store, 11, Claim::of(11, 0, 1)).await, [0, 1], "there is no more");
    }
}
