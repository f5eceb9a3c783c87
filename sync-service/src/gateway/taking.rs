//! Tokens that requests of strict rules consume from the store, without a report.

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind};
use weir_limiter::engine::{Consume, ConsumeReply};
use weir_rules::RuleSet;

use super::site::unix_ns;

/// Exchange with the store that consumes, charges or refunds `take` under these rules.
pub(super) fn acquire(kind: ClaimKind, take: &Consume, rules: &RuleSet) -> Option<AcquireRequest> {
    let rule = rules.rules().get(usize::from(take.rule))?;
    let refill_policy = rule.sharing.refill_policy;
    Some(AcquireRequest {
        id: BudgetId::new(rule.name.clone(), take.value.as_bytes().to_vec()),
        quota: rule.quota,
        // No tokens are leased.
        lease_us: 0,
        refill_policy,
        window: refill_policy.windows().map(|calendar| calendar.window(unix_ns() / 1_000)),
        claims: vec![Claim::at_once(kind, take.tokens)],
    })
}

/// Result of `acquire`.
pub(super) fn taken(draw: &AcquireRequest, drawn: &AcquireResult) -> Option<ConsumeReply> {
    let (lease, claim) = (drawn.leases.first()?, draw.claims.first()?);
    let is_taken = lease.charged >= claim.ahead.into();
    Some(ConsumeReply { is_taken, left: lease.left, wait_ms: lease.wait_ms })
}
