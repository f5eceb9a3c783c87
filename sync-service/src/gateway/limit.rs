//! Limits that callers name themselves, each check debited by the store at once.
//!
//! A limit is a token bucket for the whole fleet: its burst is the limit, and it refills by the limit in each window. It
//! is drawn on like a strict rule's budget ([`weir_budget::escrow`]), except that nothing is leased ahead: one draw takes
//! what the check weighs, says that it is spent, and gives it back if it was not all there. So no check waits for what
//! another gateway holds, and the store alone says who is let through.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{Claim, Draw, Drawn, LEASE_US_MAX};
use weir_limiter::key::Secret as Hasher;
use weir_wire::law::Law;
use weir_wire::quota::Quota;

use crate::config::Secret;

/// The rule that these budgets belong to. No rule of an operator can have a name with a slash, and no report from outside
/// may name it.
pub const RULE: &str = "ratelimit/check";

/// A check against a limit that its caller names.
#[derive(Clone, Debug)]
pub struct LimitCheck {
    /// Whom it is counted for.
    pub key: String,
    /// How large the limit is, and in which time all of it comes back.
    pub quota: Quota,
    /// What the check takes: from 1 to the limit.
    pub weight: u32,
    /// Whether nothing is to be taken.
    pub is_peek: bool,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitAnswer {
    /// Whether it was taken.
    pub is_allowed: bool,
    /// What is left.
    pub remaining: u32,
    /// How long until the limit is whole again.
    pub reset_after: Duration,
    /// For a refused check, how long until its weight is there, if no other check takes of it.
    pub retry_after: Duration,
}

/// Hides the keys that are sent to the store.
pub(super) struct Keys(Hasher);

impl Keys {
    /// As the secret says, the same at every gateway; without one, anybody can compute the hashes.
    pub(super) fn hidden_by(secret: Option<&Secret>) -> Self {
        let known = Hasher::new(*b"weir limit keys.");
        let secret = secret.map(|secret| known.hash(secret.expose().as_bytes()));
        Self(secret.map_or(known, |hash| Hasher::new(bytes(hash.place, hash.tag))))
    }

    /// A limit of another size is another budget: so one key may have several.
    fn id(&self, check: &LimitCheck) -> BudgetId {
        let size = [check.quota.token_ns(), check.quota.burst().into()].map(u64::to_le_bytes);
        let hash = self.0.hash(&[size.as_flattened(), check.key.as_bytes()].concat());
        BudgetId { rule: RULE.into(), value: bytes(hash.place, hash.tag).to_vec() }
    }
}

fn bytes(left: u64, right: u64) -> [u8; 16] {
    (u128::from(left) << 64 | u128::from(right)).to_be_bytes()
}

/// Takes all that the check weighs, or nothing, for an epoch that is over at once.
pub(super) fn draw(keys: &Keys, check: &LimitCheck) -> Draw {
    let id = keys.id(check);
    // Names only have to differ within a lease.
    let epoch = RandomState::new().hash_one(&id.value);
    let claim = |admitted: u32, ahead| Claim { epoch, admitted: admitted.into(), ahead };
    let take = claim(0, check.weight);
    // Refused if the budget did not have all; ...
    let spend = (!check.is_peek).then(|| claim(check.weight, 0));
    // ... and then this gives back what it had. A spent epoch is over, and has nothing to give back.
    let give_back = claim(0, 0);
    let claims = [Some(take), spend, Some(give_back)].into_iter().flatten().collect();
    Draw { id, quota: check.quota, lease_us: LEASE_US_MAX, law: Law::Steady, window: None, claims }
}

pub(super) fn answer(check: &LimitCheck, drawn: &Drawn) -> LimitAnswer {
    let (token_ns, limit) = (check.quota.token_ns(), check.quota.burst());
    let taken = drawn.leases.first().map_or(0, |lease| lease.charged);
    let is_allowed = taken >= check.weight.into();
    let full_ns = u64::from(limit) * token_ns;
    let left = full_ns.saturating_sub(drawn.deficit_ns) / token_ns;
    let short_ns = (drawn.deficit_ns + u64::from(check.weight) * token_ns).saturating_sub(full_ns);
    LimitAnswer {
        is_allowed,
        remaining: u32::try_from(left).unwrap_or(limit),
        reset_after: Duration::from_nanos(drawn.deficit_ns),
        retry_after: Duration::from_nanos(if is_allowed { 0 } else { short_ns.max(1) }),
    }
}

#[cfg(test)]
mod tests {
    use weir_budget::escrow::Escrow;

    use super::*;

    fn check(limit: u32, window_ms: u64, weight: u32) -> LimitCheck {
        let quota = Quota::from_token_ns((window_ms * 1_000_000).div_ceil(limit.into()), limit).unwrap();
        LimitCheck { key: "alice".into(), quota, weight, is_peek: false }
    }

    fn asked(escrow: &mut Escrow, at_ms: u64, check: &LimitCheck) -> LimitAnswer {
        let draw = draw(&Keys::hidden_by(None), check);
        answer(check, &escrow.draw(1_000_000_000 + at_ms * 1_000, "gateway/fra/a", &draw))
    }

    #[test]
    fn a_check_takes_all_that_it_weighs_or_nothing() {
        let (mut escrow, of) = (Escrow::default(), |weight| check(10, 1_000, weight));
        let first = asked(&mut escrow, 0, &of(7));
        assert_eq!((first.is_allowed, first.remaining, first.reset_after.as_millis()), (true, 3, 700));
        let second = asked(&mut escrow, 0, &of(4));
        assert_eq!((second.is_allowed, second.remaining, second.retry_after.as_millis()), (false, 3, 100));
        let third = asked(&mut escrow, 0, &of(3));
        assert_eq!((third.is_allowed, third.remaining, third.retry_after.as_millis()), (true, 0, 0));
        assert!(!asked(&mut escrow, 99, &of(1)).is_allowed && asked(&mut escrow, 100, &of(1)).is_allowed);
    }

    #[test]
    fn a_peek_takes_nothing() {
        let (mut escrow, peek) = (Escrow::default(), LimitCheck { is_peek: true, ..check(10, 1_000, 10) });
        for _ in 0..3 {
            assert_eq!(
                asked(&mut escrow, 0, &peek),
                LimitAnswer {
                    is_allowed: true,
                    remaining: 10,
                    reset_after: Duration::ZERO,
                    retry_after: Duration::ZERO,
                }
            );
        }
        assert!(asked(&mut escrow, 0, &check(10, 1_000, 1)).is_allowed);
        assert_eq!(asked(&mut escrow, 0, &peek).retry_after.as_millis(), 100);
    }

    #[test]
    fn a_key_is_hidden_and_has_a_budget_for_each_limit() {
        let (one, other) = (Secret::new("a secret of the tests"), Secret::new("another one of the tests"));
        let id = |secret: Option<&Secret>, check: &LimitCheck| Keys::hidden_by(secret).id(check);
        let same = check(10, 1_000, 1);
        assert_eq!(id(Some(&one), &same), id(Some(&one), &check(10, 1_000, 3)));
        assert_ne!(id(Some(&one), &same), id(Some(&other), &same));
        assert_ne!(id(None, &same), id(None, &check(10, 2_000, 1)));
        assert_ne!(id(None, &same), id(None, &check(20, 2_000, 1)));
        assert!(!id(None, &same).value.windows(5).any(|part| part == b"alice"));
    }
}
