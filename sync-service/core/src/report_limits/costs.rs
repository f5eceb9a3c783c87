//! Limits on the reported costs of requests that held tokens of a strict rule's budget.

use weir_protocol::messages::{BudgetRule, Key};
use weir_protocol::quota::TOKENS_MAX;

use super::{RefusedClaimReason, ReportLimits, Speaker, Visit, refuse};
use crate::budget::BudgetId;
use crate::escrow::{AcquireRequest, Claim};

/// Time for which an epoch is held whose cost has to wait, in microseconds; its POP reports the cost again long
/// before.
const WAITS_US: u64 = 60_000_000;

impl ReportLimits {
    /// Takes back the costs in this draw of `pop`, because the store was out of reach: they will be reported
    /// and checked again.
    pub(crate) fn take_back_costs(&mut self, pop: &str, draw: &AcquireRequest) {
        let Some(meter) = self.pops.get_mut(pop).and_then(|pop| pop.meters.get_mut(&draw.id)) else { return };
        for claim in draw.claims.iter().filter(|claim| claim.is_settled() && claim.admitted > 1) {
            meter.take_back_whole(claim.epoch, claim.admitted);
        }
    }
}

impl Visit<'_> {
    /// Limits the cost of a request: returns the claim on the budget `id` to draw for `key`, whose `claim`
    /// reports the cost. A cost beyond the rule's maximum is cut to that.
    ///
    /// A cost that the meter has no token for has to wait. Until then the claim counts one token as spent and
    /// keeps what it holds. The reply shows its POP that the epoch is not over, and the POP reports the cost
    /// again.
    pub(crate) fn cost(&mut self, id: &BudgetId, rule: &BudgetRule, key: &Key, claim: Claim) -> Claim {
        if !claim.is_settled() || self.speaker == Speaker::Gateway {
            return claim;
        }
        let most = self.costs.get(usize::from(key.rule)).copied().unwrap_or(TOKENS_MAX).into();
        if claim.admitted > most {
            refuse(self.refusals, RefusedClaimReason::Cost, rule, claim.admitted, most);
        }
        let claim = Claim { admitted: claim.admitted.min(most), ..claim };
        // A request that holds an epoch holds at least one token.
        if claim.admitted <= 1 || self.is_metered(id, rule, claim) {
            return claim;
        }
        Claim { admitted: 1, ahead: 1, held_us: Some(WAITS_US), ..claim }
    }

    /// True if the meter lets the cost through.
    fn is_metered(&mut self, id: &BudgetId, rule: &BudgetRule, claim: Claim) -> bool {
        let (now, made_at, share, measure) = (self.now, self.made_at, self.share(), self.measure(rule));
        // Costs are reported as requests end, so they cover no time before the report.
        let Some(meter) = self.meter(share, id, 0, measure) else {
            refuse(self.refusals, RefusedClaimReason::Keys, rule, share as u64 + 1, share as u64);
            return false;
        };
        let holds = meter.refill(now, made_at, measure);
        let cost = claim.admitted;
        let has_passed = meter.pass_whole(claim.epoch, cost, holds);
        if !has_passed {
            refuse(self.refusals, RefusedClaimReason::Tokens, rule, cost, holds);
        }
        has_passed
    }
}
