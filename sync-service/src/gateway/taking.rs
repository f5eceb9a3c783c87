//! Tokens that requests of strict rules consume from the store, without a report.

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{Claim, Draw, Drawn, Kind};
use weir_limiter::edge::{Take, Taken};
use weir_rules::RuleSet;

use super::site::unix_ns;

/// Exchange with the store that consumes, charges or refunds `take` under these rules.
pub(super) fn draw(kind: Kind, take: &Take, rules: &RuleSet) -> Option<Draw> {
    let rule = rules.rules().get(usize::from(take.rule))?;
    let law = rule.sharing.law;
    Some(Draw {
        id: BudgetId::new(rule.name.clone(), take.value.as_bytes().to_vec()),
        quota: rule.quota,
        // No tokens are leased.
        lease_us: 0,
        law,
        window: law.windows().map(|calendar| calendar.window(unix_ns() / 1_000)),
        claims: vec![Claim::at_once(kind, take.tokens)],
    })
}

/// Result of `draw`.
pub(super) fn taken(draw: &Draw, drawn: &Drawn) -> Option<Taken> {
    let (lease, claim) = (drawn.leases.first()?, draw.claims.first()?);
    let is_taken = lease.charged >= claim.ahead.into();
    Some(Taken { is_taken, left: lease.left, wait_ms: lease.wait_ms })
}
