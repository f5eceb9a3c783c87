//! The limiter of one worker: the decision and the worker's side of the budget loop, over any table.
//!
//! Its parts own the state: the compiled rules, the local cache, the watch list, the client of weir-sync, the counters
//! and the current request. Decisions are in [`crate::check`], reports and grants in [`crate::sync`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::RuleIndex;
use crate::check::{CompiledRules, CurrentRequest, LocalCache, Scratch};
use crate::counters::Counters;
use crate::sync::{ConsumeState, Reporter, SyncClient, WatchList};
use crate::table::slot::{Entry, LocalLimits, Slot};
use crate::table::{LoadedSlot, Slots, TableIdentity};
use weir_rules::RuleSet;

pub struct Limiter {
    pub(crate) rules: CompiledRules,
    pub(crate) local_cache: LocalCache,
    pub(crate) watch: WatchList,
    /// The exchange with weir-sync; `None` if nothing is ever reported.
    pub sync: Option<SyncClient>,
    pub(crate) counters: Counters,
    pub(crate) current: CurrentRequest,
    /// Keys that consumed recently; `None` if the host is not next to the store.
    pub(crate) takes: Option<Box<ConsumeState>>,
    /// Scratch of the last decision; `None` before the first one, during one, and after the rules were replaced.
    pub(crate) scratch: Option<Box<Scratch>>,
    /// Slots to read into.
    pub(crate) rooms: Vec<Slot>,
}

impl Limiter {
    /// Creates a limiter for `rules`. Without a `reporter` nothing is ever reported.
    pub fn new(rules: impl Into<Arc<RuleSet>>, identity: TableIdentity, reporter: Option<Reporter>) -> Self {
        let rules = CompiledRules::new(rules.into(), identity.secret, reporter.is_some());
        Self {
            counters: Counters::new(rules.terms.len()),
            rules,
            local_cache: LocalCache::new(),
            watch: WatchList::default(),
            sync: reporter.map(|reporter| SyncClient::new(reporter, identity.table_id)),
            current: CurrentRequest::NONE,
            takes: None,
            scratch: None,
            rooms: Vec::new(),
        }
    }

    pub fn rules(&self) -> &RuleSet {
        &self.rules.set
    }

    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Puts `rules` into force.
    ///
    /// A rule is unchanged if its name, key, algorithm and quota are. Its buckets then keep their level, its unreported
    /// counts are still reported, its grants and leases remain valid, and pending replies still apply. Watched keys of
    /// other rules are dropped, and replies about them change nothing. The exchange itself continues.
    ///
    /// Counters are kept for rules whose name remains. Callers that need the others must take them beforehand.
    pub fn replace_rules(&mut self, rules: impl Into<Arc<RuleSet>>) {
        let moved = self.rules.replace(rules.into());
        let to = |rule: RuleIndex| moved.unchanged(rule);
        self.watch.renumber(to);
        if let Some(sync) = &mut self.sync {
            sync.renumber(to, &self.rules);
        }
        self.counters.rearrange(self.rules.terms.len(), |place| moved.named(place));
        // A rule may be looser now, and the scratch contains hits of the old rules.
        self.local_cache.clear();
        self.scratch = None;
    }

    /// Ends conditions of the rules in force that expire by `now_ms`, in milliseconds since 1970.
    pub(crate) fn end_conditions(&mut self, now_ms: u64) {
        self.rules.set.end(now_ms);
        // A client may be in another tier now.
        self.local_cache.clear();
        self.scratch = None;
    }

    /// True if requests under this rule acquire tokens for themselves and hold them until they end.
    pub(crate) fn reserves(&self, rule: RuleIndex) -> bool {
        self.rules.reserves(rule, self.current.is_reserving)
    }

    /// The POP's limits for a key of `rule` without a grant.
    pub(crate) fn local_limits(&self, rule: RuleIndex) -> Option<LocalLimits> {
        let divisor = self.sync.as_ref().map_or(1, SyncClient::cold_rate_divisor);
        self.rules.terms_of(rule).map(|terms| terms.local_limits(divisor))
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        self.sync.as_ref().map_or(0, |sync| sync.timeout_ns)
    }

    /// The entry of the key with these canonical bytes under the rule at `rule`, for simulations and tests.
    pub fn entry(&self, rule: usize, value: &[u8], slots: &mut dyn Slots) -> Option<Entry> {
        let place = self.rules.find_at(rule, value, slots.count())?.place;
        let (loaded, _) = LoadedSlot::read(slots, place.slot, Slot::default());
        loaded.slot.get(place.tag)
    }
}

#[cfg(test)]
mod tests;
