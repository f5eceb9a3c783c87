//! The invariants, checked at every admission and every charge, and the content of each message: of a grant its admit
//! ratio, by the formula of docs/budgets.md; of a report the tokens that no reply has confirmed. If one does not hold,
//! the run ends with a panic that has the command to reproduce it.

use std::collections::{BTreeMap, HashMap};

use weir_budget::bound;
use weir_budget::budget::{Account as StoreAccount, BudgetId, PlanEntry};
use weir_budget::divide::GrantSettings;
use weir_limiter::sync::connectivity::FALLBACK_NS;
use weir_protocol::messages::{AdmitRatio, Allowance, Key, Message, Reply, Report};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::{OnSyncLoss, Sharing};
use weir_protocol::time::SECOND_NS;

use super::account::Account;
use super::pop::Pop;
use super::setup::Setup;

#[derive(Clone, Debug)]
pub(super) struct Label {
    pub(super) seed: u64,
    pub(super) scenario: String,
}

impl Label {
    pub(super) fn of(setup: &Setup) -> Self {
        Self { seed: setup.seed, scenario: setup.scenario.clone() }
    }

    pub(super) fn command(&self) -> String {
        format!("make sim SEED={} SCENARIO='{}'", self.seed, self.scenario)
    }

    pub(super) fn violated(&self, invariant: &str, now: u64, what: &str) -> ! {
        let seconds = now as f64 / 1e9;
        panic!(
            "{invariant} is violated at {seconds:.6} s: {what}\n  seed {}, scenario {:?}: {}",
            self.seed,
            self.scenario,
            self.command()
        );
    }
}

/// I3: a POP's table has admitted at most burst + rate x t in any span, by the POP's clock as if it never jumped. The
/// leases of a strict rule refill by the store's clock instead, and the fleet's bound of zero holds for each POP too.
pub(super) fn one_pop_keeps_the_quota(
    label: &Label,
    account: &mut Account,
    pop: usize,
    cost: u32,
    local: u64,
    now: u64,
) {
    if account.sharing.strict {
        return;
    }
    let (quota, meter) = (account.quota, &mut account.pops[pop].meter);
    let deficit_ns = meter.take(quota, cost, local);
    if deficit_ns > quota.fill_ns() {
        let over = (deficit_ns - quota.fill_ns()).div_ceil(quota.token_ns());
        label.violated("I3", now, &format!("POP {pop} admitted {over} more than burst + rate x t"));
    }
}

/// I4: the fleet has admitted at most burst + rate x t + bound in any span, beside what faults are stated to
/// give away and is not paid back yet.
pub(super) fn the_fleet_keeps_the_bound(
    label: &Label,
    account: &mut Account,
    bound_max: Option<f64>,
    fleet: Fleet,
    now: u64,
) {
    // A window begins full: see [`super::features`] and [`super::windows`].
    if account.sharing.refill_policy != RefillPolicy::Continuous {
        return;
    }
    let lent = account.lent();
    let most = bound_max.unwrap_or_else(|| bound(account.quota, &account.sharing, fleet)) + lent;
    account.bound_part_max = account.bound_part_max.max(account.overshoot / most.max(1.0));
    if account.overshoot > most {
        let overshoot = account.overshoot;
        let Fleet { pops, reach_ns } = fleet;
        label.violated(
            "I4",
            now,
            &format!(
                "{overshoot:.1} tokens above burst + rate x t, the bound is {most:.1} \
                 ({pops} POPs, news of {} ms, {lent:.1} lent to faults)",
                reach_ns / 1_000_000
            ),
        );
    }
}

/// I7, at every charge: no more is charged than was admitted, except what clocks that went back are stated to cost.
pub(super) fn nothing_is_charged_twice(label: &Label, account: &Account, id: &BudgetId, charged: u64, now: u64) {
    let admitted = account.tally.admitted;
    if charged > admitted + account.phantom {
        let what = format!("{charged} charged of {admitted} admitted, {id:?}");
        label.violated("I7", now, &what);
    }
}

/// I7, at quiescence: a POP has reported all that it admitted, except what it admitted cold and what
/// crashes lost, and the store has charged all that was reported, except what losing data excuses.
pub(super) fn nothing_is_forgotten(
    label: &Label,
    account: &Account,
    id: &BudgetId,
    reported: u64,
    uncharged: Option<String>,
    now: u64,
) {
    let cold: u64 = account.pops.iter().map(|pop| pop.cold).sum();
    let (admitted, lost) = (account.tally.admitted, account.lost);
    if reported + cold + lost < admitted {
        let what = format!("{reported} reported of {admitted} admitted ({cold} cold, {lost} lost in crashes), {id:?}");
        label.violated("I7", now, &what);
    }
    if let Some(what) = uncharged {
        label.violated("I7", now, &format!("{what}, {id:?}"));
    }
}

/// By how much a ratio may differ from the formula, as a part of it.
const RATIO: f64 = 0.005;

/// The admit ratio of a budget by the formula; none if it is 0 or 1, or if a part of the demand fades.
pub(super) fn ratio(entry: &PlanEntry, account: &StoreAccount, terms: &GrantSettings) -> Option<f64> {
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

    pub(super) fn replied(&mut self, number: u64, reply: &[u8]) {
        let Some((counts, reply)) = self.sent.remove(&number).zip(Reply::decode(reply).ok()) else { return };
        let settled = counts.into_iter().enumerate().filter(|(at, _)| reply.settled.covers(*at));
        for (_, (source, admitted)) in settled {
            let known = self.confirmed.entry(source).or_default();
            *known = admitted.max(*known);
        }
    }
}

/// Parameters of the bound beside the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet {
    pub(super) pops: usize,
    /// Time for which a POP acts on the same news while nothing is wrong, in nanoseconds.
    pub(super) reach_ns: u64,
}

/// The bound that is documented and exported, for news as old as it gets while nothing is wrong.
pub(super) fn bound(quota: Quota, sharing: &Sharing, fleet: Fleet) -> f64 {
    let pops = u32::try_from(fleet.pops).expect("few POPs");
    let reach = bound::FleetParameters { pops, interval_ns: fleet.reach_ns, trip_ns: 0, timeout_ns: 0, failures: 0 };
    bound::bound(quota, sharing, &reach) as f64
}

/// Time for which a POP may still use its last grants after its news is late, in nanoseconds.
const UNDER_WAY_NS: u64 = 2 * SECOND_NS;
/// The amount that it may admit meanwhile, as a multiple of the refill; the bound counts news under way the same way.
const UNDER_WAY_TIMES: f64 = 2.0;

/// The age of a POP's news beyond the bound's assumption, in nanoseconds, divided by the POP's mode meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Age {
    /// In all.
    pub(super) late_ns: u64,
    /// For how much of that its weir-sync answered without reaching the store: with the region's share.
    storeless_ns: u64,
    /// For how much of that the POP has gone by its rules' `on_sync_loss`.
    alone_ns: u64,
}

impl Age {
    /// The amount that a POP in a fleet of `pops` may have admitted meanwhile, unknown to all others, in nanoseconds of
    /// refill.
    pub(super) fn lent_ns(&self, when: OnSyncLoss, pops: usize) -> f64 {
        let share = 1.0 / pops as f64;
        let alone = match when {
            OnSyncLoss::Local => 1.0,
            OnSyncLoss::Share => share,
            OnSyncLoss::Deny => 0.0,
        };
        let under_way_ns = self.late_ns.min(UNDER_WAY_NS);
        let silent_ns = self.late_ns.saturating_sub(under_way_ns + self.storeless_ns + self.alone_ns);
        let times =
            [(under_way_ns, UNDER_WAY_TIMES), (silent_ns, 1.0), (self.storeless_ns, share), (self.alone_ns, alone)];
        times.iter().map(|(ns, times)| *ns as f64 * times).sum()
    }
}

/// A loop has settled after this time, ...
const SETTLES_NS: u64 = 4 * SECOND_NS;
/// ... and this many times the age of its news.
const SETTLES_TIMES: u64 = 2;

impl Setup {
    /// The age that a POP's news may reach while nothing is wrong, in nanoseconds: a report is lost now and then.
    pub(super) fn reach_ns(&self) -> u64 {
        2 * self.interval_ns + self.round_trip_ns()
    }

    /// The longest way from a POP to the store and back, in nanoseconds.
    pub(super) fn round_trip_ns(&self) -> u64 {
        2 * [self.near, self.far].iter().map(|link| link.delay_ns + link.jitter_ns).sum::<u64>()
    }

    /// Time after its last fault has healed until a fleet is as if there had been none, in nanoseconds: late messages
    /// have arrived or timed out, demand is measured anew, and grants are current.
    pub(super) fn recovery_ns(&self) -> u64 {
        4 * SECOND_NS + 2 * self.reach_ns()
    }

    /// Time for which a client that was not known may overdraw its budget, in nanoseconds: until the loop has settled.
    pub(super) fn settling_ns(&self) -> u64 {
        SETTLES_NS + SETTLES_TIMES * self.reach_ns()
    }

    pub(super) fn age(&self, pop: &Pop, now: u64) -> Age {
        let (news_ns, reply_ns) = (now.saturating_sub(pop.news_at), now.saturating_sub(pop.replied_at));
        let late_ns = news_ns.saturating_sub(self.reach_ns());
        let long_ns = late_ns.saturating_sub(UNDER_WAY_NS);
        let alone_ns = reply_ns.saturating_sub(FALLBACK_NS + self.reach_ns()).min(long_ns);
        // After its weir-sync's last reply, it used the grants that it held.
        let storeless_ns = news_ns.saturating_sub(reply_ns + UNDER_WAY_NS).min(long_ns - alone_ns);
        Age { late_ns, storeless_ns, alone_ns }
    }
}
