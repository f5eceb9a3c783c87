//! The store: the real `Budget` and `HotList` by name, with a clock that jumps and data that can be
//! lost. Nothing else calls them.
//!
//! Beside each budget the store keeps a ledger of what it charged, which is lost and restored with it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use weir_budget::ban::BanList;
use weir_budget::budget::{Account, Budget, BudgetId, PlanEntry, SourceId};
use weir_budget::escrow::{AcquireRequest, AcquireResult, Escrow, EscrowId};
use weir_budget::hot::HotList;
use weir_budget::store_clock::StoreTime;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;

use super::faults::SEEN_US;
use super::ledger::{Charged, Reported};
use super::setup::WallClock;
use super::sync::RuleSet;
use super::turns::Turn;

/// Time for which a silent POP counts as live, in microseconds (weir-sync's default).
const POP_TTL_US: u64 = 10_000_000;
/// Time between two searches for silent POPs, in microseconds.
const SWEEP_US: u64 = 100_000;

/// The most that rounding may cost when a quota changes, in nanoseconds.
const CONVERTED_NS: u64 = 10_000;

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) clock: WallClock,
    pub(super) is_up: bool,
    /// The additional time of an answer, in nanoseconds.
    pub(super) slow_ns: u64,
    /// True if it keeps the ledger; false if there are too many keys.
    keeps_ledger: bool,
    state: State,
    /// The list of hot keys. Losing data loses it; regions name their hot keys again within a second.
    pub(super) hot: HotList,
    /// The list of bans, which is lost as well.
    pub(super) bans: BanList,
    /// The rule set that is current. Losing data does not lose it here.
    pub(super) rule_set: RuleSet,
    snapshots: BTreeMap<u64, State>,
    swept_us: u64,
    reported: ByHash<BudgetId, Reported>,
    /// The time at which it last lost data.
    lost_at: Option<u64>,
    /// The sum of the forward steps of its clock, in microseconds, but for the part of each step that weir-syncs see.
    unseen_us: u64,
    /// The turns that were given, in their order.
    pub(super) turns: Vec<Turn>,
}

type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

#[derive(Clone, Debug, Default)]
struct State {
    budgets: ByHash<BudgetId, Kept>,
    /// The budgets of strict rules.
    escrows: BTreeMap<EscrowId, Escrow>,
    pops: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    budget: Budget,
    /// The worth of a token under the quota that it was last charged by; 0 before the first charge.
    token_ns: u64,
    charged: Charged,
    /// Tokens charged according to the budget itself.
    taken: u64,
    /// The true time of the last charge, and the sum of the clock's unseen steps by then.
    charged_at: (u64, u64),
}

impl Kept {
    /// It is charged by `quota` from now on. Returns `lacks_ns`, converted so that as many tokens lack as before.
    fn goes_by(&mut self, quota: Quota, lacks_ns: u64) -> u64 {
        let before_ns = std::mem::replace(&mut self.token_ns, quota.token_ns());
        if before_ns == 0 || before_ns == quota.token_ns() {
            return lacks_ns;
        }
        let lacks_ns = u128::from(lacks_ns) * u128::from(quota.token_ns()) / u128::from(before_ns);
        u64::try_from(lacks_ns).unwrap_or(u64::MAX).saturating_sub(CONVERTED_NS)
    }
}

/// A violation by the store.
#[derive(Clone, Debug)]
pub(super) enum Wrong {
    /// A budget refilled by more than time.
    Time(String),
    /// A budget charged a sum other than its sources reported.
    Charge(String),
}

/// The effect of a loss of data on one budget.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) id: BudgetId,
    /// The debt, or the part of a burst, that was forgotten, in nanoseconds of refill.
    pub(super) forgiven_ns: u64,
}

impl Store {
    /// An empty store that answers. Its clock begins at `begins_us`.
    pub(super) fn new(keeps_ledger: bool, begins_us: u64) -> Self {
        Self { clock: WallClock::beginning(begins_us), is_up: true, keeps_ledger, ..Self::default() }
    }

    /// Charges every entry, in the name of `replica`, for `pop`: at `now`, which is `time` by its clock. The error is
    /// the violation.
    pub(super) fn charge(
        &mut self,
        replica: &str,
        pop: &str,
        entries: &[PlanEntry],
        now: u64,
        time: StoreTime,
    ) -> Result<Vec<Account>, Wrong> {
        entries.iter().map(|entry| self.charge_one(replica, pop, entry, now, time)).collect()
    }

    fn charge_one(
        &mut self,
        replica: &str,
        pop: &str,
        entry: &PlanEntry,
        now: u64,
        time: StoreTime,
    ) -> Result<Account, Wrong> {
        let kept = self.state.budgets.entry(entry.id.clone()).or_default();
        let is_forgotten = kept.budget.expires_us() <= time.now_us;
        if is_forgotten {
            kept.budget = Budget::default();
        }
        if self.keeps_ledger {
            let reported = self.reported.entry(entry.id.clone()).or_default();
            if is_forgotten {
                kept.charged.forget_records(reported);
            }
            for count in &entry.counts {
                reported.observe(pop, count, now);
                kept.charged.take(pop, count);
            }
        }
        let before_ns = kept.budget.missing_ns();
        let account = kept.budget.charge(time, &entry.charge(replica, pop));
        let (last, unseen_us) = kept.charged_at;
        // Rounded to the microsecond at both ends.
        let most_ns = (now - last) + (self.unseen_us - unseen_us) * 1_000 + 1_000;
        kept.charged_at = (now, self.unseen_us);
        kept.taken += account.charged;
        if self.keeps_ledger && kept.taken != kept.charged.total() {
            let (taken, reported) = (kept.taken, kept.charged.total());
            return Err(Wrong::Charge(format!("{taken} tokens charged, {reported} were reported")));
        }
        let least_ns = kept.goes_by(entry.quota, before_ns.saturating_sub(most_ns));
        if kept.budget.missing_ns() < least_ns {
            let after_ns = kept.budget.missing_ns();
            let what = format!("a deficit of {before_ns} ns became {after_ns} ns within {most_ns} ns");
            return Err(Wrong::Time(what));
        }
        Ok(account)
    }

    /// Acquires tokens of strict budgets, for `pop`.
    pub(super) fn acquire(&mut self, pop: &str, acquires: &[AcquireRequest], time: StoreTime) -> Vec<AcquireResult> {
        let escrows = &mut self.state.escrows;
        let mut acquire_on =
            |acquire: &AcquireRequest| escrows.entry(acquire.escrow()).or_default().acquire(time, pop, acquire);
        let answers: Vec<_> = acquires.iter().map(&mut acquire_on).collect();
        self.turns.extend(acquires.iter().zip(&answers).flat_map(|(acquire, acquired)| Turn::given(acquire, acquired)));
        answers
    }

    /// A lease of a token bucket that ends for the budget before it ends at a POP whose clock is slower by a 64th.
    pub(super) fn ends_early(&self, acquires: &[AcquireRequest], answers: &[AcquireResult]) -> Option<String> {
        let mut of_buckets =
            acquires.iter().zip(answers).filter(|(acquire, _)| acquire.refill_policy == RefillPolicy::Continuous);
        of_buckets.find_map(|(acquire, acquired)| {
            // What got nothing has no lease that could end.
            let leases = acquired.leases.iter().filter(|leased| leased.charged > 0);
            let lease_ms = leases.map(|leased| u64::from(leased.lease_ms)).max()?;
            // It is full when the last lease has ended and what lacks then has refilled.
            let full_us = self.state.escrows.get(&acquire.escrow())?.full_us();
            let ends_us = full_us.saturating_sub(acquired.deficit_ns.div_ceil(1_000));
            let least_us = acquired.now_us + lease_ms * (1_000 + 1_000 / 64);
            (lease_ms > 0 && ends_us < least_us).then(|| {
                format!(
                    "a lease of {lease_ms} ms ends after {} us for its budget",
                    ends_us.saturating_sub(acquired.now_us)
                )
            })
        })
    }

    /// Notes that a POP is alive; live POPs.
    pub(super) fn register(&mut self, pop: &str, now: u64) -> u32 {
        let now_us = self.clock.at_us(now);
        let pops = &mut self.state.pops;
        match pops.get_mut(pop) {
            Some(seen_us) => *seen_us = now_us,
            None => drop(pops.insert(pop.to_owned(), now_us)),
        }
        if now_us.abs_diff(self.swept_us) >= SWEEP_US {
            self.swept_us = now_us;
            pops.retain(|_, seen_us| now_us.saturating_sub(*seen_us) <= POP_TTL_US);
        }
        u32::try_from(pops.len()).expect("few POPs")
    }

    /// Tokens that a budget knows were charged to it.
    pub(super) fn charged(&self, id: &BudgetId) -> u64 {
        self.state.budgets.get(id).map_or(0, |kept| kept.charged.total())
    }

    /// The tokens that a source counts as admitted and that its budget has not charged: those beyond its record or,
    /// without a record, those that no reply has confirmed.
    pub(super) fn uncharged_of(&self, id: &BudgetId, source: &SourceId, admitted: u64, confirmed: u64) -> u64 {
        let kept = self.state.budgets.get(id);
        let on_record = kept.and_then(|kept| kept.charged.on_record(source)).unwrap_or(confirmed);
        admitted.saturating_sub(on_record)
    }

    /// Those of these tokens that were charged twice, because a step of the clock had made the store forget the budget.
    pub(super) fn charged_twice(&self, id: &BudgetId) -> u64 {
        self.state.budgets.get(id).map_or(0, |kept| kept.charged.twice())
    }

    /// The deficit of a budget at `now`, in nanoseconds of refill.
    pub(super) fn deficit_ns(&self, id: &BudgetId, now: u64) -> u64 {
        let kept = self.state.budgets.get(id);
        kept.map_or(0, |kept| kept.budget.deficit_ns().saturating_sub(now.saturating_sub(kept.charged_at.0)))
    }

    /// The deficit of a budget that the store drops at `now`, in nanoseconds of refill; 0 if it keeps it.
    pub(super) fn dropped_ns(&self, id: &BudgetId, now: u64) -> u64 {
        let now_us = self.clock.at_us(now);
        let is_dropped = self.state.budgets.get(id).is_some_and(|kept| kept.budget.expires_us() <= now_us);
        if is_dropped { self.deficit_ns(id, now) } else { 0 }
    }

    pub(super) fn reported(&self, id: &BudgetId) -> Option<&Reported> {
        self.reported.get(id)
    }

    /// A source whose reported count is not charged, without an excuse.
    pub(super) fn uncharged(&self, id: &BudgetId) -> Option<String> {
        let charged = self.state.budgets.get(id).map(|kept| kept.charged.clone()).unwrap_or_default();
        self.reported.get(id)?.uncharged(&charged, self.lost_at)
    }

    pub(super) fn jump(&mut self, by_us: i64) {
        self.clock.jump(by_us);
        self.unseen_us += u64::try_from(by_us).unwrap_or(0).min(SEEN_US);
    }

    /// Keeps what it holds now, to be restored at `restored_at`.
    pub(super) fn keep(&mut self, restored_at: u64) {
        self.snapshots.insert(restored_at, self.state.clone());
    }

    pub(super) fn forget(&mut self, id: &BudgetId) {
        if let Some(kept) = self.state.budgets.remove(id) {
            self.reported.entry(id.clone()).or_default().lose(&kept.charged, &Charged::default());
        }
        self.state.escrows.retain(|(_, known), _| known != id);
    }

    /// Goes back to what was kept for now, or to nothing; returns what that did to each budget.
    pub(super) fn lose(&mut self, now: u64) -> Vec<Loss> {
        let then = self.snapshots.remove(&now).unwrap_or_default();
        let none = Kept::default();
        let mut losses = Vec::new();
        for (id, kept) in &self.state.budgets {
            let old = then.budgets.get(id).unwrap_or(&none);
            self.reported.entry(id.clone()).or_default().lose(&kept.charged, &old.charged);
            let forgiven_ns = kept.budget.deficit_ns().saturating_sub(old.budget.deficit_ns());
            losses.push(Loss { id: id.clone(), forgiven_ns });
        }
        losses.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        (self.state, self.lost_at) = (then, Some(now));
        (self.hot, self.bans) = (HotList::default(), BanList::default());
        losses
    }
}
