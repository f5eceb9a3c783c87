//! Limits on a POP's claims: no more than its own buckets can have admitted.
//!
//! A POP's bucket admits at most burst + rate x t (I3). So a *meter* lets through no more of what it reports as
//! admitted for a key: a token bucket with the key's rate that holds [`BURSTS`] bursts, because a POP that restarts has
//! a full bucket. Time counts from the POP's last report of the key, by the POP's own clock, which may not run ahead of
//! ours. Claims beyond that wait until the meter has refilled.
//!
//! Meters are bounded: keys beyond a POP's share wait until there is room. Keys of a rule that is in no kept rule set
//! are refused, and so are bans that no rule imposes.
//!
//! Strict rules need no meters for leased tokens: their budgets give no more than they have. But a request may cost
//! more than it held ([`crate::escrow`]). The rule sets the maximum cost, and a meter lets each such cost through whole
//! while it has a token. An honest POP never waits if its requests cost at most [`BURSTS`] times what they held.
//!
//! # Two revisions at once
//!
//! While a new revision of the rules spreads, POPs and weir-syncs have different ones.
//!
//! - A POP that has not switched yet reports the old rules. They are in a kept version, so their claims count.
//! - A weir-sync that reads of a newer version in a report looks it up in the store, at most once a second, and for at
//!   most 100 ms (`sync-service/src/rules.rs`). If it is still unknown, claims by its new rules wait
//!   ([`RefusedClaimReason::Newer`]): nothing is charged, and the grant is from the region's own share. Strict rules
//!   get no tokens.
//! - A budget is known by its rule's name and its key, so both quotas charge the same one. It refills at the quota of
//!   the report that charged it last ([`crate::budget`]).
//! - A POP ignores a pushed grant for another quota than its own rule's. It takes no older version within a second of
//!   its switch (`sync/connectivity.rs` in weir-limiter).

mod meter;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use weir_protocol::messages::{BudgetRule, Key, POPS_MAX, Report};
use weir_protocol::quota::{Quota, TOKENS_MAX};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::{SECOND_NS, Time};

pub(crate) use self::meter::Passed;
pub use self::meter::{BURSTS, FLOOD_PER_S, LATE_NS, OF_ONE_POP_MAX, SPAN_NS};
use self::meter::{ClaimMeter, KEPT_NS, Measure, Pop};
use crate::budget::{BudgetId, PlanEntry};
use crate::divide::{HORIZON_NS, SURPLUS};
use crate::escrow::{AcquireRequest, Claim};
use crate::id::EntryRef;

/// Maximum demand accepted from a POP, as a multiple of the highest rate that a budget ever gives out.
pub const DEMAND_TIMES: u64 = 100;
/// Maximum number of keys that all POPs may claim. Beyond it each still gets its [`EVEN_SHARE`]: twice this at most.
pub const METERS_MAX: usize = 1 << 19;
/// Number of keys that each POP may claim at once, however many POPs there are.
pub const EVEN_SHARE: usize = METERS_MAX / POPS_MAX as usize;

/// Time for which an epoch is held while its cost waits, in microseconds; the POP reports the cost again long before.
const WAITS_US: u64 = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedClaimReason {
    /// The rule is in no kept rule set, or has another quota there.
    Rule,
    /// The rule set is newer than those known here.
    Newer,
    /// More tokens than the POP's bucket can have admitted.
    Tokens,
    /// More keys than the POP's share.
    Keys,
    /// A ban that no rule imposes, or too many bans.
    Ban,
    /// A request that cost more than its rule allows.
    Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReporterKind {
    /// A POP, identified by its token.
    Pop,
    /// The gateway of this process. Its callers state costs, so neither costs nor tokens are limited.
    Gateway,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: RefusedClaimReason,
    pub count: u64,
    pub rule: String,
    /// Size of the first refused claim: tokens, keys, or a ban in milliseconds.
    pub claimed: u64,
    pub expected: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRule {
    pub rule: BudgetRule,
    /// Length of its penalty's ban in milliseconds; 0 if it has no penalty.
    pub ban_ms: u32,
    pub cost_max: u32,
}

/// Maximum demand accepted from a POP for one key, in thousandths of a token per second (see [`DEMAND_TIMES`]).
pub(crate) fn demand_milli_max(quota: Quota) -> u64 {
    const { assert!(HORIZON_NS == SECOND_NS, "a surplus is given out within a part of a second") };
    let rate_milli = SECOND_NS * 1_000 / quota.token_ns();
    let surplus_milli = SURPLUS * 1_000 * u64::from(quota.burst());
    (rate_milli + surplus_milli).max(1_000) * DEMAND_TIMES
}

fn refuse(refusals: &mut Vec<Refusal>, reason: RefusedClaimReason, rule: &BudgetRule, claimed: u64, expected: u64) {
    match refusals.iter_mut().find(|known| known.reason == reason) {
        Some(known) => known.count += 1,
        None => refusals.push(Refusal { reason, count: 1, rule: rule.name.clone(), claimed, expected }),
    }
}

type KnownRules = BTreeMap<String, Vec<KnownRule>>;

#[derive(Debug, Default)]
pub struct ReportLimits {
    /// Rules of the kept versions, by name. `None` without a pushed rule set: POPs then have rules from elsewhere.
    rules: Option<KnownRules>,
    newest: u64,
    visits: u64,
    pops: BTreeMap<String, Pop>,
    meters: usize,
    swept_at: Time,
    refusals: Vec<Refusal>,
}

impl ReportLimits {
    pub fn set_rules(&mut self, newest: u64, rules: Vec<KnownRule>) {
        self.newest = newest;
        let known = self.rules.insert(BTreeMap::new());
        for rule in rules {
            known.entry(rule.rule.name.clone()).or_default().push(rule);
        }
    }

    pub(crate) fn known(&self, rule: &str) -> Option<&BudgetRule> {
        self.rules.as_ref()?.get(rule)?.last().map(|known| &known.rule)
    }

    /// True if the fleet may run `rule`: it is in a kept rule set, or there is none.
    pub(crate) fn has(&self, rule: &BudgetRule) -> bool {
        ban_ms(self.rules.as_ref(), rule).is_some()
    }

    pub(crate) fn may_have(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.contains_key(rule))
    }

    pub fn refusals(&mut self) -> Vec<Refusal> {
        mem::take(&mut self.refusals)
    }

    /// Starts checking the claims of `report`, which arrived at `now`.
    pub(crate) fn visit(&mut self, now: Time, reporter: ReporterKind, report: &Report) -> Visit<'_> {
        self.observe(now, report);
        self.visits += 1;
        let reason =
            if report.running.version > self.newest { RefusedClaimReason::Newer } else { RefusedClaimReason::Rule };
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
            reporter,
            refusals: &mut self.refusals,
        }
    }

    /// Drops the bans of `report` that its POP may not announce, and shortens those that exceed their rule's: a POP's
    /// clock that steps back prolongs them.
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
            let is_accepted = expected > 0 && pop.announce_ban();
            if !is_accepted {
                refuse(refusals, RefusedClaimReason::Ban, rule, u64::from(ban.for_ms), u64::from(expected));
            }
            ban.for_ms = ban.for_ms.min(expected);
            is_accepted
        });
    }

    pub(crate) fn settle<'a>(&mut self, pop: &str, entries: impl Iterator<Item = &'a PlanEntry>) {
        let Some(pop) = self.pops.get_mut(pop) else { return };
        for entry in entries {
            if let Some(meter) = pop.meters.get_mut(&entry.id) {
                meter.settle(&entry.counts);
            }
        }
    }

    /// Takes back the costs in this acquire of `pop`: the store was out of reach, so they will be reported again.
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
        known.map(|known| &known.rule.sharing).filter(|sharing| sharing.strict).map(|sharing| sharing.refill_policy)
    }

    fn observe(&mut self, now: Time, report: &Report) {
        self.sweep(now);
        if let Some(pop) = self.pops.get_mut(&report.pop) {
            pop.observe(now, report);
        } else if self.pops.len() < POPS_MAX as usize || self.forget_silent() {
            self.pops.insert(report.pop.clone(), Pop::new(now, report));
        }
    }

    /// Drops full meters, each POP's once in [`KEPT_NS`].
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        for pop in self.pops.values_mut().filter(|pop| now.nanos_since(pop.swept_at) >= KEPT_NS) {
            self.meters -= pop.sweep(now);
        }
    }

    /// Forgets the POP that has been silent for longest, among those without meters. Returns false if there is none.
    fn forget_silent(&mut self) -> bool {
        let idle = self.pops.iter().filter(|(_, pop)| pop.meters.is_empty());
        let silent = idle.min_by_key(|(_, pop)| pop.seen_at).map(|(name, _)| name.clone());
        silent.is_some_and(|name| self.pops.remove(&name).is_some())
    }
}

/// A report whose claims are checked: its counts, and the costs of requests that held tokens of a strict rule.
pub(crate) struct Visit<'a> {
    number: u64,
    now: Time,
    /// Time of the report by our clock; no later than `now`.
    made_at: Time,
    version: Option<u64>,
    /// `None` if there are too many POPs.
    pop: Option<&'a mut Pop>,
    meters: &'a mut usize,
    /// For each rule of the report, the reason to refuse its claims if the fleet is not known to have it.
    doubts: Vec<Option<RefusedClaimReason>>,
    costs: Vec<u32>,
    reporter: ReporterKind,
    refusals: &'a mut Vec<Refusal>,
}

impl Visit<'_> {
    /// Reason to refuse a claim of this key, if the fleet is not known to have its `rule`.
    pub(crate) fn doubt(&mut self, rule: &BudgetRule, key: &Key) -> Option<RefusedClaimReason> {
        let reason = self.doubts.get(usize::from(key.rule)).copied().flatten()?;
        refuse(self.refusals, reason, rule, key.unconfirmed, 0);
        Some(reason)
    }

    /// Limits the claim of `key` on the budget `id`. Returns `None` if there are too many keys.
    ///
    /// Otherwise returns the number of the key's entry in the report's plan, the counts that are let through, and the
    /// accepted part of the POP's demand since its last report of the key, in tokens. The entry is `next`, unless the
    /// report has an entry for the same key already.
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

    fn share(&self) -> usize {
        if *self.meters < METERS_MAX { OF_ONE_POP_MAX } else { EVEN_SHARE }
    }

    /// Meter of `id`; `None` if a new one would exceed `share`. A new meter covers `unreported_ns` before the report.
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
    /// A cost that finds no token in the meter has to wait. Until then the claim counts one token as spent and keeps
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

/// Maximum length of a ban by `rule`, in milliseconds, over the kept versions; `None` if none has the rule, unlimited
/// if no rules are known.
fn ban_ms(rules: Option<&KnownRules>, rule: &BudgetRule) -> Option<u32> {
    let Some(rules) = rules else { return Some(u32::MAX) };
    versions(rules, rule).map(|known| known.ban_ms).max()
}

/// Maximum cost of a request of `rule`, over the kept versions.
fn cost_max(rules: Option<&KnownRules>, rule: &BudgetRule) -> u32 {
    rules.map_or(TOKENS_MAX, |rules| versions(rules, rule).map(|known| known.cost_max).max().unwrap_or(0))
}

fn versions<'a>(rules: &'a KnownRules, rule: &'a BudgetRule) -> impl Iterator<Item = &'a KnownRule> {
    rules.get(&rule.name).into_iter().flatten().filter(|known| known.rule == *rule)
}
