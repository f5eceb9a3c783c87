//! Turns a report into the charges and acquires that it asks for.

use alloc::vec;
use alloc::vec::Vec;

use weir_protocol::messages::{BudgetRule, Key, Report};
use weir_protocol::time::Time;

use super::Hub;
use crate::budget::{BudgetId, Count, Demand, SourceId};
use crate::demand::{DemandReport, TokenCounts};
use crate::escrow::Claim;
use crate::id::{Hashed, RuleName};
use crate::plan::{Plan, PlanEntry};
use crate::report_limits::{Passed, RefusedClaimReason, ReporterKind, demand_milli_max};

impl Hub {
    /// Records the keys of a report of `reporter` at `now`. Returns the charges and acquires that it asks for.
    pub(super) fn plan<'a>(&mut self, reporter: ReporterKind, now: Time, report: &'a Report) -> Plan {
        let mut plan = Plan::with_capacity(report.keys.len());
        let mut visit = self.limits.visit(now, reporter, report);
        let mut acquired: Hashed<(&[u8], u16), usize> = Hashed::new();
        let mut source = SourceId { epoch: 0, pop: report.pop.clone() };
        let of_rule = |rule: &'a BudgetRule| (rule, RuleName::new(&rule.name), demand_milli_max(rule.quota));
        let rules: Vec<_> = report.rules.iter().map(of_rule).collect();
        for (place, key) in report.keys.iter().enumerate() {
            // Decoding the report has checked the index.
            let Some(&(rule, name, most_milli)) = rules.get(usize::from(key.rule)) else { continue };
            let doubt = visit.doubt(rule, key);
            let id = self.names.get(now, name.of(&key.value));
            if doubt.is_some() && (rule.sharing.strict || doubt == Some(RefusedClaimReason::Rule)) {
                plan.refuse_next(rule.sharing.strict, id);
                continue;
            }
            if rule.sharing.strict {
                let claim = visit.cost(&id, rule, key, claim(report, place, key));
                let lease_us = self.grants.terms.lease_ns(rule.sharing.refill_policy) / 1_000;
                let acquired = acquired.entry((&key.value, key.rule));
                let at = *acquired.or_insert_with(|| plan.add_acquire(id, rule, lease_us));
                plan.next_claim(at, claim);
                continue;
            }
            source.epoch = report.epoch(key);
            let span_ns = u64::from(key.span_ms) * 1_000_000;
            let (asked, recently) = (key.asked, key.asked_recently);
            let demand = DemandReport { asked, recently, admitted: 0, span_ns, most_milli };
            let next = plan.entries.len();
            let passed = if doubt.is_none() { visit.take(&id, rule, source.epoch, key, next) } else { None };
            let Some((at, passed, asked)) = passed else {
                plan.next_uncharged(uncharged(id, rule, report, key, demand.alone()));
                continue;
            };
            if at == next {
                plan.add_entry(id, rule);
            }
            let Some(entry) = plan.next_entry(at, passed.is_clipped, asked) else { continue };
            let grants = &mut self.grants;
            let demand = DemandReport { admitted: passed.admitted, ..demand };
            let update = grants.demands.observe(now, &entry.id, &source, &demand);
            (entry.demand, entry.own_milli) = (update.demand, update.own_milli);
            if entry.sharing.floor(&grants.region) > 0 {
                grants.floors.observe(now, &entry.id, &source, passed.admitted, span_ns);
            }
            let Passed { admitted, unconfirmed, .. } = passed;
            entry.counts.push(Count { admitted, unconfirmed, ..count(report, key) });
            plan.add_news(at, TokenCounts { asked: update.new.asked.min(asked), ..update.new });
        }
        plan
    }
}

/// Claim of a strict rule's key, which is at `place` in `report`.
fn claim(report: &Report, place: usize, key: &Key) -> Claim {
    let held_us = report.held_ms(place).map(|ms| u64::from(ms) * 1_000);
    Claim { held_us, ..Claim::of(report.epoch(key), key.admitted, key.ahead) }
}

/// Counts of `key` in `report`.
fn count(report: &Report, key: &Key) -> Count {
    Count {
        epoch: report.epoch(key),
        admitted: key.admitted,
        unconfirmed: key.unconfirmed,
        span_us: u64::from(key.span_ms) * 1_000,
        missing: u64::from(key.missing),
        made_ms: report.made_ms,
    }
}

/// Separate entry for a key that its POP may not claim now.
fn uncharged(id: BudgetId, rule: &BudgetRule, report: &Report, key: &Key, demand: Demand) -> PlanEntry {
    let counts = vec![count(report, key)];
    let own_milli = demand.milli;
    PlanEntry { demand, own_milli, counts, ..PlanEntry::new(id, rule.quota, rule.sharing.clone()) }
}
