//! A report whose claims are checked: its counts, and the costs of requests that held tokens of a strict rule.

use alloc::vec::Vec;

use weir_protocol::messages::{BudgetRule, Key};
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::time::{SECOND_NS, Time};

use super::meter::{ClaimMeter, LATE_NS, Measure, OF_ONE_POP_MAX, Passed, Pop};
use super::{EVEN_SHARE, METERS_MAX, Refusal, RefusedClaimReason, ReporterKind, demand_milli_max, refuse};
use crate::budget::BudgetId;
use crate::escrow::Claim;
use crate::id::EntryRef;

/// Time for which an epoch is held whose cost has to wait, in microseconds; its POP reports the cost again long before.
const WAITS_US: u64 = 60_000_000;

pub(crate) struct Visit<'a> {
    pub(super) number: u64,
    pub(super) now: Time,
    /// Time of the report by our clock; no later than `now`.
    pub(super) made_at: Time,
    pub(super) version: Option<u64>,
    /// None if there are too many POPs.
    pub(super) pop: Option<&'a mut Pop>,
    pub(super) meters: &'a mut usize,
    /// For each rule of the report, the reason to refuse its claims if the fleet is not known to have it.
    pub(super) doubts: Vec<Option<RefusedClaimReason>>,
    pub(super) costs: Vec<u32>,
    pub(super) reporter: ReporterKind,
    pub(super) refusals: &'a mut Vec<Refusal>,
}

impl Visit<'_> {
    /// Reason to refuse a claim of this key, if the fleet is not known to have its `rule`.
    pub(crate) fn doubt(&mut self, rule: &BudgetRule, key: &Key) -> Option<RefusedClaimReason> {
        let reason = self.doubts.get(usize::from(key.rule)).copied().flatten()?;
        refuse(self.refusals, reason, rule, key.unconfirmed, 0);
        Some(reason)
    }

    /// Limits the claim of `key` on the budget `id`. None if there are too many keys.
    ///
    /// Returns the number of the key's entry in the report's plan, the counts that are let through, and the
    /// POP's demand since its last report of the key, in tokens, as far as it is accepted. The entry is `next`,
    /// unless the report has an entry for the same key already.
    pub(crate) fn take(
        &mut self,
        id: &BudgetId,
        rule: &BudgetRule,
        epoch: u64,
        key: &Key,
        next: usize,
    ) -> Option<(usize, Passed, u64)> {
        let (number, now, made_at) = (self.number, self.now, self.made_at);
        let (share, measure) = (self.share(), self.measure(rule));
        let is_gateway = self.reporter == ReporterKind::Gateway;
        let (unreported_ns, span_ns) =
            self.pop.as_ref().map_or((0, 0), |pop| (pop.unreported_ns(key), pop.span_ns() + LATE_NS));
        let Some(meter) = self.meter(share, id, unreported_ns, measure) else {
            refuse(self.refusals, RefusedClaimReason::Keys, rule, share as u64 + 1, share as u64);
            return None;
        };
        let (asked, beyond) = meter.asked(now, epoch, key, demand_milli_max(rule.quota), span_ns);
        let holds = meter.refill(now, made_at, measure);
        let claimed = meter.claimed(epoch, key);
        let most = if is_gateway { claimed } else { holds };
        let passed = meter.pass(epoch, key, claimed, claimed.min(most));
        let entry = meter.entry(number, key.rule, next);
        if passed.is_clipped {
            refuse(self.refusals, RefusedClaimReason::Tokens, rule, claimed, most);
        }
        let flood = self.pop.as_mut().map_or(0, |pop| pop.accept_flood(beyond));
        Some((entry, passed, asked + flood))
    }

    fn measure(&self, rule: &BudgetRule) -> Measure {
        Measure { quota: rule.quota, version: self.version }
    }

    /// Maximum number of keys that the POP may claim at once.
    fn share(&self) -> usize {
        if *self.meters < METERS_MAX { OF_ONE_POP_MAX } else { EVEN_SHARE }
    }

    /// The meter of `id`. None if it would be new, and the POP has its `share` of meters. A new meter covers
    /// `unreported_ns` before the report.
    fn meter(&mut self, share: usize, id: &BudgetId, unreported_ns: u64, measure: Measure) -> Option<&mut ClaimMeter> {
        let pop = self.pop.as_deref_mut()?;
        // The sweep is here, because the look-up below cannot make room.
        if pop.meters.len() >= share && self.now.nanos_since(pop.swept_at) >= SECOND_NS && !pop.meters.contains_key(id)
        {
            *self.meters -= pop.sweep(self.now);
        }
        let has_room = pop.meters.len() < share;
        match pop.meters.entry_ref(id) {
            EntryRef::Occupied(known) => Some(known.into_mut()),
            EntryRef::Vacant(room) if has_room => {
                *self.meters += 1;
                Some(room.insert(ClaimMeter::new(self.made_at, unreported_ns, measure)))
            }
            EntryRef::Vacant(_) => None,
        }
    }

    /// Limits the cost of a request: returns the claim on the budget `id` to acquire for `key`, whose `claim`
    /// reports the cost. A cost beyond the rule's maximum is cut to that.
    ///
    /// A cost that the meter has no token for has to wait. Until then the claim counts one token as spent and keeps
    /// what it holds. The reply shows its POP that the epoch is not over, and the POP reports the cost again.
    pub(crate) fn cost(&mut self, id: &BudgetId, rule: &BudgetRule, key: &Key, claim: Claim) -> Claim {
        if !claim.is_settled() || self.reporter == ReporterKind::Gateway {
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
