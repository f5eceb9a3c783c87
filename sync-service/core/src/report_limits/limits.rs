//! The claims of all POPs, and the rules that they are checked against.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use weir_protocol::messages::{BudgetRule, POPS_MAX, Report};
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::{SECOND_NS, Time};

use super::meter::{KEPT_NS, Pop};
use super::visit::Visit;
use super::{KnownRule, Refusal, RefusedClaimReason, Speaker, refuse};
use crate::budget::BudgetId;
use crate::escrow::AcquireRequest;
use crate::plan::PlanEntry;

/// Rules of several versions, by name.
type KnownRules = BTreeMap<String, Vec<KnownRule>>;

/// Recent claims of the POPs.
#[derive(Debug, Default)]
pub struct ReportLimits {
    /// Rules of the kept versions, by name. None without a pushed rule set; POPs then have their rules from
    /// elsewhere.
    rules: Option<KnownRules>,
    /// Newest of these versions.
    newest: u64,
    /// Number of reports checked.
    visits: u64,
    pops: BTreeMap<String, Pop>,
    /// Number of meters of all POPs.
    meters: usize,
    swept_at: Time,
    refusals: Vec<Refusal>,
}

impl ReportLimits {
    /// Sets the rules of all versions that are kept, up to `newest`.
    pub fn know_rules(&mut self, newest: u64, rules: Vec<KnownRule>) {
        self.newest = newest;
        let known = self.rules.insert(BTreeMap::new());
        for rule in rules {
            known.entry(rule.rule.name.clone()).or_default().push(rule);
        }
    }

    /// Newest kept version of a rule.
    pub(crate) fn known(&self, rule: &str) -> Option<&BudgetRule> {
        self.rules.as_ref()?.get(rule)?.last().map(|known| &known.rule)
    }

    /// True if the fleet may run `rule`: it is in a kept rule set, or there is none.
    pub(crate) fn has(&self, rule: &BudgetRule) -> bool {
        ban_ms(self.rules.as_ref(), rule).is_some()
    }

    /// True if the fleet may have a rule of this name.
    pub(crate) fn may_have(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.contains_key(rule))
    }

    /// Returns the refusals since the last call.
    pub fn refusals(&mut self) -> Vec<Refusal> {
        mem::take(&mut self.refusals)
    }

    /// Starts checking the claims of `report`, which arrived at `now`.
    pub(crate) fn visit(&mut self, now: Time, speaker: Speaker, report: &Report) -> Visit<'_> {
        self.observe(now, report);
        self.visits += 1;
        let reason = if report.running.version > self.newest {
            RefusedClaimReason::Newer
        } else {
            RefusedClaimReason::Rule
        };
        let doubt = |rule| ban_ms(self.rules.as_ref(), rule).is_none().then_some(reason);
        let doubts = report.rules.iter().map(doubt).collect();
        let costs = report.rules.iter().map(|rule| cost_max(self.rules.as_ref(), rule)).collect();
        let version = self.rules.as_ref().map(|_| report.running.version.min(self.newest));
        let pop = self.pops.get_mut(&report.pop);
        let made_at = pop.as_ref().map_or(now, |pop| pop.made_at(report));
        Visit {
            number: self.visits,
            now,
            made_at,
            version,
            pop,
            meters: &mut self.meters,
            doubts,
            costs,
            speaker,
            refusals: &mut self.refusals,
        }
    }

    /// Drops the bans of `report` that its POP may not announce, and shortens those that exceed their rule's. A
    /// POP's clock that steps back prolongs them.
    pub(crate) fn check_bans(&mut self, now: Time, report: &mut Report) {
        if report.bans.is_empty() {
            return;
        }
        self.observe(now, report);
        let Self { rules, pops, refusals, .. } = self;
        let Some(pop) = pops.get_mut(&report.pop) else { return report.bans.clear() };
        let of = &report.rules;
        report.bans.retain_mut(|ban| {
            // Decoding the report has checked the index.
            let Some(rule) = of.get(usize::from(ban.rule)) else { return false };
            let expected = ban_ms(rules.as_ref(), rule).unwrap_or(0);
            let is_believed = expected > 0 && pop.announce_ban();
            if !is_believed {
                refuse(refusals, RefusedClaimReason::Ban, rule, u64::from(ban.for_ms), u64::from(expected));
            }
            ban.for_ms = ban.for_ms.min(expected);
            is_believed
        });
    }

    /// Records that the store has charged these `entries` of `pop`.
    pub(crate) fn settle<'a>(&mut self, pop: &str, entries: impl Iterator<Item = &'a PlanEntry>) {
        let Some(pop) = self.pops.get_mut(pop) else { return };
        for entry in entries {
            if let Some(meter) = pop.meters.get_mut(&entry.id) {
                meter.settle(&entry.counts);
            }
        }
    }

    /// Takes back the costs in this acquire of `pop`, because the store was out of reach: they will be reported
    /// and checked again.
    pub(crate) fn take_back_costs(&mut self, pop: &str, acquire: &AcquireRequest) {
        let Some(meter) = self.pops.get_mut(pop).and_then(|pop| pop.meters.get_mut(&acquire.id)) else {
            return;
        };
        for claim in acquire.claims.iter().filter(|claim| claim.is_settled() && claim.admitted > 1) {
            meter.take_back_whole(claim.epoch, claim.admitted);
        }
    }

    /// Forgets the key `id` at all POPs; later claims start from zero.
    pub(crate) fn forget(&mut self, id: &BudgetId) {
        for pop in self.pops.values_mut() {
            self.meters -= usize::from(pop.meters.remove(id).is_some());
        }
    }

    /// Refill policies of the strict rules with this name in the kept versions.
    pub(crate) fn refill_policies(&self, rule: &str) -> impl Iterator<Item = RefillPolicy> {
        let known = self.rules.as_ref().and_then(|rules| rules.get(rule)).into_iter().flatten();
        known
            .map(|known| &known.rule.sharing)
            .filter(|sharing| sharing.strict)
            .map(|sharing| sharing.refill_policy)
    }

    /// Records that the POP of `report` exists.
    fn observe(&mut self, now: Time, report: &Report) {
        self.sweep(now);
        if let Some(pop) = self.pops.get_mut(&report.pop) {
            pop.observe(now, report);
        } else if self.pops.len() < POPS_MAX as usize || self.forget_silent() {
            self.pops.insert(report.pop.clone(), Pop::new(now, report));
        }
    }

    /// Drops full meters from time to time.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        for pop in self.pops.values_mut().filter(|pop| now.nanos_since(pop.swept_at) >= KEPT_NS) {
            self.meters -= pop.sweep(now);
        }
    }

    /// Forgets the POP that has been silent for longest, among those without meters. Returns false if there is
    /// none.
    fn forget_silent(&mut self) -> bool {
        let idle = self.pops.iter().filter(|(_, pop)| pop.meters.is_empty());
        let silent = idle.min_by_key(|(_, pop)| pop.heard_at).map(|(name, _)| name.clone());
        silent.is_some_and(|name| self.pops.remove(&name).is_some())
    }
}

/// Maximum length of a ban by `rule`, in milliseconds, over the kept versions; unlimited if no rules are known.
/// None if it is in none of them.
fn ban_ms(rules: Option<&KnownRules>, rule: &BudgetRule) -> Option<u32> {
    let Some(rules) = rules else { return Some(u32::MAX) };
    versions(rules, rule).map(|known| known.ban_ms).max()
}

/// Maximum cost of a request of `rule`, over the kept versions.
fn cost_max(rules: Option<&KnownRules>, rule: &BudgetRule) -> u32 {
    rules.map_or(TOKENS_MAX, |rules| versions(rules, rule).map(|known| known.cost_max).max().unwrap_or(0))
}

/// Kept versions of `rule`.
fn versions<'a>(rules: &'a KnownRules, rule: &'a BudgetRule) -> impl Iterator<Item = &'a KnownRule> {
    rules.get(&rule.name).into_iter().flatten().filter(|known| known.rule == *rule)
}
