//! The content of each message of a run: of a grant its admit ratio, by the formula of docs/budgets.md; of a report
//! the tokens that no reply has confirmed.

use std::collections::{BTreeMap, HashMap};

use weir_budget::budget::Account;
use weir_budget::divide::GrantSettings;
use weir_budget::plan::PlanEntry;
use weir_protocol::messages::{AdmitRatio, Allowance, Key, Message, Reply, Report};

use super::invariants::Label;

/// By how much a ratio may differ from the formula, as a part of it.
const RATIO: f64 = 0.005;

/// The admit ratio of a budget by the formula; none if it is 0 or 1, or if a part of the demand fades.
pub(super) fn ratio(entry: &PlanEntry, account: &Account, terms: &GrantSettings) -> Option<f64> {
    let fades = account.replicas.iter().any(|replica| replica.age_us.saturating_mul(1_000) > terms.interval_ns);
    let asked = account.replicas.iter().filter(|replica| replica.demand.milli > 0);
    let pops: u32 = asked.map(|replica| replica.demand.askers).sum();
    if fades || pops <= 1 || !entry.sharing.floors.is_empty() {
        return None;
    }
    let token_ns = entry.quota.token_ns() as f64;
    let (rate, burst) = (1e9 / token_ns, f64::from(entry.quota.burst()));
    let level = burst - account.deficit_ns as f64 / token_ns;
    let demand = account.replicas.iter().map(|replica| replica.demand.milli).sum::<u64>() as f64 / 1e3;
    let target = (0.1 * burst + 0.2 * rate).min(burst - 0.1 * rate);
    let steepness = if level > target { 4.0 } else { 1.0 };
    let part = (rate + steepness * (level - target)) / demand;
    (0.01..0.99).contains(&part).then_some(part)
}

/// Ends the run if a grant of `reply` to `report` has another admit ratio than the formula gives for its budget.
pub(super) fn grants_are_by_the_formula(
    (label, now): (&Label, u64),
    report: &Report,
    ratios: &[(PlanEntry, f64)],
    reply: &[u8],
) {
    let Ok(reply) = Reply::decode(reply) else { return };
    for (key, allowance) in report.keys.iter().zip(&reply.grants) {
        let Allowance::Hot(grant) = allowance else { continue };
        let rule = report.rules.get(usize::from(key.rule)).map(|rule| &rule.name);
        let found = ratios.iter().find(|(PlanEntry { id, .. }, _)| Some(&id.rule) == rule && id.value == key.value);
        let Some((entry, expected)) = found else { continue };
        let part = f64::from(grant.ratio.bits()) / f64::from(AdmitRatio::ONE.bits());
        if (part - expected).abs() > RATIO * expected {
            let what = format!("admit ratio {part:.4}, by the formula {expected:.4}, {:?}", entry.id);
            label.violated("formula", now, &what);
        }
    }
}

/// A key of a report: its POP, rule, value and epoch.
type Source = (usize, String, Vec<u8>, u32);

/// The counts that replies have confirmed.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    /// The counts of each report under way, in the order of its keys.
    sent: HashMap<u64, Vec<(Source, u64)>>,
    confirmed: BTreeMap<Source, u64>,
}

impl Confirmed {
    /// Call `number` brings `report` of `pop`. An error names a key with fewer unconfirmed tokens than no reply has
    /// confirmed.
    pub(super) fn sent(&mut self, number: u64, pop: usize, report: &[u8]) -> Result<(), String> {
        let Ok(report) = Report::decode(report) else { return Ok(()) };
        let mut counts = Vec::new();
        for key in &report.keys {
            let Some(rule) = report.rules.get(usize::from(key.rule)) else { continue };
            let source = (pop, rule.name.clone(), key.value.clone(), key.epoch);
            let &Key { admitted, unconfirmed, .. } = key;
            let confirmed = self.confirmed.get(&source).copied().unwrap_or(0);
            if !rule.sharing.strict && admitted.saturating_sub(unconfirmed) > confirmed {
                return Err(format!(
                    "{admitted} admitted, {unconfirmed} unconfirmed, but {confirmed} confirmed, {source:?}"
                ));
            }
            counts.push((source, admitted));
        }
        self.sent.insert(number, counts);
        Ok(())
    }

    /// The reply to call `number` arrives.
    pub(super) fn replied(&mut self, number: u64, reply: &[u8]) {
        let Some((counts, reply)) = self.sent.remove(&number).zip(Reply::decode(reply).ok()) else { return };
        let settled = counts.into_iter().enumerate().filter(|(at, _)| reply.settled.covers(*at));
        for (_, (source, admitted)) in settled {
            let known = self.confirmed.entry(source).or_default();
            *known = admitted.max(*known);
        }
    }
}
