//! Replacing the rules under load. The state of unchanged rules is kept.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::state::Limiter;
use crate::OWN_MEMORY;
use crate::RuleIndex;
use crate::decide::Plain;
use crate::decide::RuleTerms;
use weir_rules::sorting::sorted;
use weir_rules::{NO_RULE, Rule, RuleSet};

impl Limiter {
    /// Puts `rules` in force.
    ///
    /// A rule is unchanged if its name, key, algorithm and quota are. Its buckets then keep their level, its
    /// unreported counts are still reported, its grants and leases hold, and replies under way still apply.
    /// Watched keys of other rules are dropped, and replies about them change nothing. The exchange itself
    /// goes on.
    ///
    /// Counters are kept for rules whose name stays. A caller that needs the others takes them beforehand.
    pub fn replace_rules(&mut self, rules: impl Into<Arc<RuleSet>>) {
        self.replace_rules_by(rules.into());
    }

    fn replace_rules_by(&mut self, rules: Arc<RuleSet>) {
        let (keys, mut terms) = RuleTerms::of(&rules, &self.secret, self.exchange.is_some());
        let indices = Indices::of(terms.iter().map(|terms| terms.salt));
        let moved: Vec<Option<RuleIndex>> = self.terms.iter().map(|terms| indices.get(&terms.salt)).collect();
        let to = |rule: RuleIndex| moved.get(usize::from(rule)).copied().flatten();
        self.watch.renumber(to);
        // Requests hold epochs only under strict rules; weir-sync refuses a report that names any other.
        let is_strict = |rule: &RuleIndex| terms.get(usize::from(*rule)).is_some_and(|terms| terms.is_strict);
        self.renumber_own(|rule| to(rule).filter(is_strict));
        for told in self.exchange.iter_mut().flat_map(|exchange| exchange.calls.told_mut()) {
            told.rule = to(told.rule).unwrap_or(RuleIndex::NONE);
        }
        let named = Indices::of(rules.rules().iter().map(|rule| rule.name.as_str()));
        let before = self.rules.rules();
        for (rule, known) in before.iter().zip(&self.terms) {
            let same = named.get(&rule.name.as_str()).map(usize::from);
            let has_same_key = |new: &&Rule| new.key.identity().eq(rule.key.identity());
            if same.and_then(|at| rules.rules().get(at)).as_ref().is_some_and(has_same_key)
                && let Some(terms) = same.and_then(|at| terms.get_mut(at))
            {
                terms.follow(known);
            }
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.renumber_bans(to);
        }
        let same_name =
            |i: usize| before.get(i).and_then(|rule| named.get(&rule.name.as_str()).map(usize::from));
        self.counters.rearrange(rules.rules().len(), same_name);
        // A rule may be looser now. And the scratch holds hits of the old rules.
        self.local_cache.clear();
        self.scratch = None;
        self.plain = Plain::of(&rules, &terms);
        self.is_told = terms.iter().any(|terms| terms.is_told);
        self.tells_more = RuleTerms::tell_more(&terms);
        (self.rules, self.keys, self.terms) = (rules, keys, terms);
        self.generation = self.generation.wrapping_add(1);
    }

    /// Ends conditions of the rules in force whose time is over at `now_ms`, in milliseconds since 1970.
    pub(crate) fn end_conditions(&mut self, now_ms: u64) {
        self.rules.end(now_ms);
        // A client may be in another tier now.
        self.local_cache.clear();
        self.scratch = None;
    }

    /// Rebuilds the terms if a panic lost them while hits were judged. Only native programs go on after a
    /// panic.
    #[inline]
    pub(crate) fn restore_terms(&mut self) {
        if OWN_MEMORY && self.terms.is_empty() && !self.rules.rules().is_empty() {
            self.terms = RuleTerms::of(&self.rules, &self.secret, self.exchange.is_some()).1;
        }
    }

    /// Number of rule sets that were in force. An index into [`Limiter::rules`] is valid only while this
    /// stays the same.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

/// A map from rules' salts or names to their indices.
struct Indices<T>(Vec<(T, RuleIndex)>);

impl<T: Ord> Indices<T> {
    /// From the rules' salts or names, in rule order.
    fn of(rules: impl Iterator<Item = T>) -> Self {
        Self(sorted(rules.zip((0..NO_RULE).map(RuleIndex::new)).collect()))
    }

    fn get(&self, what: &T) -> Option<RuleIndex> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(what)).ok()?;
        self.0.get(at).map(|(_, rule)| *rule)
    }
}
