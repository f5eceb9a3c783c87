//! The events that are faults, and what each is stated to cost.

use weir_budget::budget::BudgetId;
use weir_budget::records::UNUSED_KEPT_US;
use weir_budget::store_clock::MARGIN_US;

use super::faults::{self, Fault};
use super::store::Loss;
use super::sync::Sync;
use super::world::{WARM_UP_NS, World};

/// A jump of the store's clock that is longer is seen by each weir-sync that was in touch with it, in
/// microseconds.
pub(super) const SEEN_US: u64 = 3 * MARGIN_US;

impl World {
    pub(super) fn suffer(&mut self, now: u64, fault: &Fault) {
        let since = now.saturating_sub(WARM_UP_NS);
        match *fault {
            Fault::Near(link) => self.network.near = link,
            Fault::Far(link) => self.network.far = link,
            Fault::CutPop(pop, is_cut) => self.network.cut_pops[pop] = is_cut,
            Fault::Silence(pop, ns) => self.network.silent_until[pop] = now + ns,
            Fault::CutRegion(region, is_cut) => self.network.cut_regions[region] = is_cut,
            Fault::PopClock(pop, by_ns) => self.jump_pop(pop, by_ns.min(0), since),
            Fault::StoreClock(by_us) => self.jump_store(by_us, now),
            Fault::StoreSlow(ns) => self.store.slow_ns = ns,
            Fault::StoreUp(is_up) => self.store.is_up = is_up,
            Fault::StoreLoses(_) | Fault::StoreFlushed => {
                for loss in self.store.lose(now) {
                    self.state_loss(&loss, since);
                }
                // What was leased before may be leased again: a burst at most.
                let strict = self.reference.accounts_mut().filter(|(_, _, account)| account.sharing.strict);
                strict.for_each(|(_, _, account)| account.lend(account.quota.fill_ns()));
            }
            Fault::PopCrash(pop) => self.crash_pop(pop, since),
            Fault::PopStart(pop) if !self.pops[pop].is_up => self.pops[pop].start(&mut self.rng, now),
            Fault::PopStart(_) => {}
            Fault::Reload(pop) => self.pops[pop].reload(&mut self.rng, now),
            Fault::SyncCrash(sync) => self.syncs[sync].crash(),
            Fault::SyncStart(sync) => self.syncs[sync].start(now),
        }
        debug_assert!(now >= WARM_UP_NS, "faults happen to a fleet that is up");
    }

    /// A POP whose clock goes back takes what refilled between its last reading and the jump for spent, and may
    /// report it. A lease that it holds ends that much later.
    fn jump_pop(&mut self, pop: usize, by_ns: i64, now: u64) {
        self.pops[pop].clock.jump(by_ns);
        let lost_ns = faults::lost_by_jump_ns(by_ns, &self.setup);
        for (_, _, account) in self.reference.accounts_mut() {
            account.phantom += lost_ns.div_ceil(account.quota.token_ns());
            account.owed.charge(lost_ns, now);
            if account.sharing.strict {
                account.lend(account.quota.fill_ns());
            }
        }
    }

    /// A jump of the store's clock that weir-sync sees adds no time, but the store drops budgets by that clock, and
    /// forgives what those lack that are not in debt (docs/budgets.md).
    fn jump_store(&mut self, by_us: i64, now: u64) {
        self.store.jump(by_us);
        let since = now.saturating_sub(WARM_UP_NS);
        let ahead_us = u64::try_from(by_us).unwrap_or(0);
        let is_seen = ahead_us > SEEN_US && self.syncs.iter().all(Sync::knows_the_stores_clock);
        if is_seen {
            for (rule, key) in self.reference.accounts().map(|(rule, key, _)| (rule, key)).collect::<Vec<_>>() {
                let dropped_ns = self.store.dropped_ns(&self.reference.id(rule, key), now);
                self.reference.account_mut(rule, key).is_forgiven(dropped_ns, since);
            }
            return;
        }
        let forward_ns = ahead_us * 1_000;
        for (_, _, account) in self.reference.accounts_mut() {
            account.is_forgiven(forward_ns, since);
            // Refill that a full budget seems to have lost pays for late reports.
            account.lend(forward_ns.min(UNUSED_KEPT_US * 1_000));
        }
    }

    /// The budget of a key is forgotten by an operator's reset: what it owed is forgiven.
    pub(super) fn forget(&mut self, id: &BudgetId, now: u64) {
        self.store.forget(id);
        if let Some((rule, key)) = self.reference.named(id) {
            let account = self.reference.account_mut(rule, key);
            let owed_ns = account.debt.deficit_ns(now).max(account.known.deficit_ns(now));
            account.is_forgiven(owed_ns, now);
        }
    }

    fn state_loss(&mut self, loss: &Loss, now: u64) {
        let Some((rule, key)) = self.reference.named(&loss.id) else { return };
        let account = self.reference.account_mut(rule, key);
        account.is_forgiven(loss.forgiven_ns, now);
    }

    /// A new table brings a new burst, unless it is paid in advance; what the old one had not reported is lost.
    fn crash_pop(&mut self, pop: usize, now: u64) {
        if !self.pops[pop].is_up {
            return;
        }
        self.pops[pop].crash();
        let named: Vec<_> = self.reference.accounts().map(|(rule, key, _)| (rule, key)).collect();
        for (rule, key) in named {
            let id = self.reference.id(rule, key);
            let reported = self.store.reported(&id).map_or(0, |reported| reported.of_pop(&self.pops[pop].name));
            let account = self.reference.account_mut(rule, key);
            let at_pop = &mut account.pops[pop];
            at_pop.meter = super::account::Meter::default();
            // What an earlier crash lost is not lost again: the count of lost tokens is an upper limit.
            let lost = at_pop.tally.admitted - reported.min(at_pop.tally.admitted);
            account.lost += lost;
            if !account.sharing.strict {
                account.is_forgiven(account.quota.token_ns() * lost.min(account.quota.burst().into()), now);
                account.lend(account.quota.fill_ns());
            }
        }
    }
}
