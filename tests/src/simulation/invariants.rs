//! The invariants, checked at every admission and every charge. If one does not hold, the run ends
//! with a panic that has the command to reproduce it.

use weir_budget::budget::BudgetId;
use weir_protocol::refill_policy::RefillPolicy;

use super::account::Account;
use super::bound::Fleet;
use super::setup::Setup;

/// The run.
#[derive(Clone, Debug)]
pub struct Label {
    /// The seed.
    pub seed: u64,
    /// The scenario's name.
    pub scenario: String,
}

impl Label {
    /// The label of a world.
    pub fn of(setup: &Setup) -> Self {
        Self { seed: setup.seed, scenario: setup.scenario.clone() }
    }

    /// The command that runs it again.
    pub fn command(&self) -> String {
        format!("make sim SEED={} SCENARIO='{}'", self.seed, self.scenario)
    }

    /// Ends the run.
    pub fn violated(&self, invariant: &str, now: u64, what: &str) -> ! {
        let seconds = now as f64 / 1e9;
        panic!(
            "{invariant} is violated at {seconds:.6} s: {what}\n  seed {}, scenario {:?}: {}",
            self.seed,
            self.scenario,
            self.command()
        );
    }
}

/// I3: a POP's table has admitted at most burst + rate x t in any span, by the POP's clock as if it never jumped.
/// The leases of a strict rule refill by the store's clock instead, and the fleet's bound of zero holds for each POP
/// too.
pub fn one_pop_keeps_the_quota(label: &Label, account: &mut Account, pop: usize, cost: u32, local: u64, now: u64) {
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
pub fn the_fleet_keeps_the_bound(
    label: &Label,
    account: &mut Account,
    bound: super::bound::Bound,
    fleet: Fleet,
    now: u64,
) {
    // A window begins full: see [`super::calendars`] and [`super::windows`].
    if account.sharing.refill_policy != RefillPolicy::Continuous {
        return;
    }
    let lent = account.lent();
    let most = bound(account.quota, &account.sharing, fleet) + lent;
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

/// I7, at every charge: no more is charged than was admitted, except what clocks that went
/// back are stated to cost.
pub fn nothing_is_charged_twice(label: &Label, account: &Account, id: &BudgetId, charged: u64, now: u64) {
    let admitted = account.tally.admitted;
    if charged > admitted + account.phantom {
        let what = format!("{charged} charged of {admitted} admitted, {id:?}");
        label.violated("I7", now, &what);
    }
}

/// I7, at quiescence: a POP has reported all that it admitted, except what it admitted cold and what
/// crashes lost, and the store has charged all that was reported, except what losing data excuses.
pub fn nothing_is_forgotten(
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
