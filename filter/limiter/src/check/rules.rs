//! The rules in force, compiled: which rules count a request, and the terms that decisions, reports and grants need.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::RuleIndex;
use crate::check::decision::{AcquireState, Hit, Scratch};
use crate::check::plain::Plain;
use crate::check::terms::{KeyCache, KeyId, RuleTerms};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table::slot::Tag;
use crate::table::{EntryPlace, HashSecret, NamedKey};
use weir_protocol::messages::BudgetRule;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::Time;
use weir_rules::algorithm::Concurrency;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::{KeyValue, Missing, MissingPart};
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Request};
use weir_rules::sorting::sorted;
use weir_rules::{Listed, NO_RULE, Rule, RuleSet};

pub(crate) struct CompiledRules {
    /// The rule set; all limiters of a process may share it.
    pub(crate) set: Arc<RuleSet>,
    pub(crate) terms: Vec<RuleTerms>,
    pub(crate) keys: KeyCache,
    /// State of the fast path; `None` if the rules are not plain, or while a quota has [returned](Self::has_returned).
    pub(crate) plain: Option<Box<Plain>>,
    pub(crate) secret: HashSecret,
    /// Secret that hides the parts of keys that leave the POP, the same at every POP. Must be set before any decision.
    pub(crate) fleet_secret: FleetSecret,
    pub(crate) sends_status: bool,
    /// True if a quota status may contain [more](crate::check::Beside) than its rule's policy.
    pub(crate) sends_more: bool,
    /// Number of rule sets in force so far. A rule's index is valid in one of them only.
    pub(crate) generation: u32,
    /// Number that the last jitter was computed from.
    pub(crate) dealt: u64,
    is_in_fleet: bool,
}

/// New indices of the rules from before a replacement.
pub(crate) struct Replacement {
    unchanged: Vec<Option<RuleIndex>>,
    named: Vec<Option<RuleIndex>>,
}

impl Replacement {
    /// New index of the rule that was `rule`, if it is unchanged.
    pub(crate) fn unchanged(&self, rule: RuleIndex) -> Option<RuleIndex> {
        self.unchanged.get(usize::from(rule)).copied().flatten()
    }

    /// New place of the rule that was at `place`, if its name remains.
    pub(crate) fn named(&self, place: usize) -> Option<usize> {
        self.named.get(place).copied().flatten().map(usize::from)
    }
}

impl CompiledRules {
    /// Compiles `set`. In a fleet, parts of keys are hashed unkeyed unless `fleet_secret` is set.
    pub(crate) fn new(set: Arc<RuleSet>, secret: HashSecret, is_in_fleet: bool) -> Self {
        let (keys, terms) = RuleTerms::of(&set, &secret, is_in_fleet);
        Self {
            plain: Plain::of(&set, &terms),
            sends_status: terms.iter().any(|terms| terms.sends_status),
            sends_more: terms.iter().any(|one| one.is_clear || one.sends_policy && terms.len() > 1),
            fleet_secret: if is_in_fleet { FleetSecret::UNKEYED } else { secret.on_its_own() },
            set,
            terms,
            keys,
            secret,
            generation: 0,
            dealt: 0,
            is_in_fleet,
        }
    }

    pub(crate) fn replace(&mut self, set: Arc<RuleSet>) -> Replacement {
        let mut new = Self::new(set, self.secret, self.is_in_fleet);
        let by_name = new.set.rules().iter().map(|rule| rule.name.as_str());
        let by_name = sorted(by_name.zip((0..NO_RULE).map(RuleIndex::new)).collect());
        let namesake = |rule: &Rule| {
            let at = by_name.binary_search_by(|(name, _)| (*name).cmp(&rule.name)).ok()?;
            by_name.get(at).map(|(_, rule)| *rule)
        };
        let named: Vec<_> = self.set.rules().iter().map(namesake).collect();
        // Salts of rules with different names differ.
        let is_same =
            |rule: &RuleIndex, known: &RuleTerms| new.terms_of(*rule).is_some_and(|new| new.salt == known.salt);
        let unchanged = named.iter().zip(&self.terms).map(|(rule, known)| rule.filter(|rule| is_same(rule, known)));
        let moved = Replacement { unchanged: unchanged.collect(), named };
        for (place, (rule, known)) in self.set.rules().iter().zip(&self.terms).enumerate() {
            let Some(same) = moved.named(place) else { continue };
            if new.set.rules().get(same).is_some_and(|new| new.key.identity().eq(rule.key.identity()))
                && let Some(terms) = new.terms.get_mut(same)
            {
                terms.follow(known);
            }
        }
        if new.has_returned() {
            new.plain = None;
        }
        let generation = self.generation.wrapping_add(1);
        *self = Self { generation, dealt: self.dealt, fleet_secret: self.fleet_secret, ..new };
        moved
    }

    /// Ends the quota changes after which every bucket has refilled.
    pub(crate) fn end_changes(&mut self, now: Time) {
        let had_returned = self.has_returned();
        self.terms.iter_mut().for_each(|terms| terms.changes.end(now));
        if had_returned && !self.has_returned() {
            self.plain = Plain::of(&self.set, &self.terms);
        }
    }

    /// True if a rule's quota is one it had before. The fast path would not see what its keys took in between.
    fn has_returned(&self) -> bool {
        self.terms.iter().any(|terms| terms.changes.have_returned())
    }

    pub(crate) fn get(&self, rule: RuleIndex) -> Option<&Rule> {
        self.set.rules().get(usize::from(rule))
    }

    pub(crate) fn terms_of(&self, rule: RuleIndex) -> Option<&RuleTerms> {
        self.terms.get(usize::from(rule))
    }

    /// The rule in the form of reports.
    pub(crate) fn reported(&self, rule: RuleIndex) -> Option<BudgetRule> {
        let rule = self.get(rule)?;
        Some(BudgetRule { name: rule.name.clone(), quota: rule.quota, sharing: rule.sharing.clone() })
    }

    /// Maximum number and duration of requests in flight under `rule`, if the fleet counts them.
    pub(crate) fn flight(&self, rule: RuleIndex) -> Option<Concurrency> {
        self.terms_of(rule)?.in_flight
    }

    pub(crate) fn has_turns(&self, rule: RuleIndex) -> bool {
        self.terms_of(rule).is_some_and(|terms| terms.has_turns)
    }

    /// True if requests under this rule acquire tokens for themselves and hold them until they end. `is_reserving` is
    /// true if the host states the request's cost at its end.
    pub(crate) fn reserves(&self, rule: RuleIndex, is_reserving: bool) -> bool {
        let may = |rule: &Rule| rule.sharing.strict && rule.sharing.refill_policy != RefillPolicy::Queue;
        self.get(rule).is_some_and(|rule| may(rule) && (is_reserving || rule.after.is_some()))
    }

    /// The quota of a rule that is shared and not strict.
    pub(crate) fn bounded(&self, rule: RuleIndex) -> Option<Quota> {
        self.get(rule).filter(|rule| rule.is_shared() && !rule.sharing.strict).map(|rule| rule.quota)
    }

    pub(crate) fn with_salt(&self, salt: u64) -> Option<RuleIndex> {
        RuleIndex::of(self.terms.iter().position(|terms| terms.salt == salt)?)
    }

    /// The hit's key with its rule, value and place.
    #[inline(never)]
    pub(crate) fn named(&self, hit: &Hit) -> NamedKey {
        NamedKey { place: hit.place(), rule: hit.rule, value: *self.keys.value(hit.key) }
    }

    /// The key with these canonical bytes under the rule `name`; `None` if there is no such rule or key.
    pub(crate) fn find(&self, name: &str, value: &[u8], slot_count: u32) -> Option<NamedKey> {
        let index = self.set.rules().iter().position(|rule| rule.name == name)?;
        self.find_at(index, value, slot_count)
    }

    /// [`CompiledRules::find`] by the rule's index.
    pub(crate) fn find_at(&self, index: usize, value: &[u8], slot_count: u32) -> Option<NamedKey> {
        let (terms, value) = (self.terms.get(index)?, KeyValue::from_bytes(value)?);
        let hash = self.secret.hash(value.as_bytes());
        let place = EntryPlace { tag: Tag::of_key(hash.tag, terms.salt), slot: hash.slot(slot_count) };
        Some(NamedKey { place, rule: RuleIndex::of(index)?, value })
    }
}

// Matching: the rules that count a request, and the buckets of its keys.

pub(crate) enum MatchResult {
    /// Decide the hits, if any. If the local cache refuses one of them, the list may be incomplete.
    Counted,
    Blocked,
    /// Limit the request by this rule: a part of the rule's key is missing or occurs more than once.
    Lacking(RuleIndex),
}

impl Limiter {
    /// Finds the rules that count the request, and adds a hit for each to `scratch`.
    pub(crate) fn find_matches(
        &mut self,
        request: &mut dyn Request,
        scratch: &mut Scratch,
        slot_count: u32,
        now: Time,
    ) -> MatchResult {
        let Self { rules, local_cache: cache, counters, current, .. } = self;
        let Scratch { values, conditions, met, unlimited, hits, shadow, .. } = scratch;
        unlimited.clear();
        hits.clear();
        shadow.clear();
        let request = &mut Fetched::new(request, rules.set.attributes(), values);
        rules.keys.next_request();
        let mut listed = rules.set.allowed(request, conditions);
        if listed == Listed::No && !current.is_booking && cache.is_worth_asking(now) {
            // If a rule that is cheap to match has a cached refusal, the others need not be matched.
            let cheap = rules.set.find_cheap_matches(request, conditions, met).unwrap_or_default();
            for i in cheap.iter().copied().map(RuleIndex::new) {
                let place = usize::from(i);
                let rule_terms = rules.set.rules().get(place).zip(rules.terms.get(place));
                let Some((rule, terms)) = rule_terms.filter(|(_, terms)| terms.is_enforced()) else {
                    continue;
                };
                let secrets = (&rules.fleet_secret, &rules.secret);
                if let Ok(hash) = rules.keys.hash(terms.key, &rule.key, request, secrets) {
                    let cost = terms.cost.of(request);
                    hits.push(Hit::of(i, terms.key, hash, terms.salt, slot_count, cost));
                }
            }
            if hits.iter().any(|hit| cache.get(hit.tag, hit.cost, now).is_some()) {
                return MatchResult::Counted;
            }
            hits.clear();
        }
        if listed == Listed::No {
            listed = rules.set.blocked(request, conditions);
        }
        match listed {
            Listed::No => {}
            Listed::Off => return MatchResult::Counted,
            Listed::Allowed => {
                counters.add(CountedEvent::ListAllowed, 1);
                return MatchResult::Counted;
            }
            Listed::Blocked => {
                counters.add(CountedEvent::ListBlocked, 1);
                return MatchResult::Blocked;
            }
        }
        let met = rules.set.find_matches(request, conditions, met);
        let is_unlimited = |i: &RuleIndex| {
            let terms = rules.terms_of(*i);
            terms.is_some_and(|terms| terms.is_unlimited && terms.enforcement.mode != Mode::Off)
        };
        if rules.set.has_unlimited() {
            unlimited.extend(met.iter().copied().map(RuleIndex::new).filter(is_unlimited));
        }
        let mut is_address_missing = false;
        for i in met.iter().copied().map(RuleIndex::new) {
            let place = usize::from(i);
            let (Some(rule), Some(terms)) = (rules.set.rules().get(place), rules.terms.get(place)) else {
                continue;
            };
            if terms.enforcement.mode == Mode::Off || terms.is_unlimited {
                continue;
            }
            let secrets = (&rules.fleet_secret, &rules.secret);
            let (key, hash) = match rules.keys.hash(terms.key, &rule.key, request, secrets) {
                Ok(hash) => (terms.key, hash),
                Err(part) => {
                    let is_news = part == MissingPart::ClientAddress && !is_address_missing;
                    counters.add(CountedEvent::AddressUnreadable, u32::from(is_news));
                    is_address_missing |= is_news;
                    let is_repeated = part == MissingPart::Repeated;
                    match if is_repeated { Missing::Limit } else { rule.missing } {
                        Missing::Skip => continue,
                        Missing::Share => (KeyId::LACKING, rules.keys.hash_of_lacking()),
                        Missing::Limit if terms.is_enforced() => {
                            hits.clear();
                            shadow.clear();
                            return MatchResult::Lacking(i);
                        }
                        Missing::Limit => {
                            counters.count(i, |counts| &mut counts.shadow_limited);
                            current.would_refuse.push(i);
                            continue;
                        }
                    }
                }
            };
            let is_shadow = !terms.enforcement.holds_for(rules.keys.value(key), &rules.fleet_secret);
            // A request that has waited was counted on its first pass.
            let watched = current.connectivity.acquired != AcquireState::NotYet;
            let list = if is_shadow { &mut *shadow } else { &mut *hits };
            let cost = terms.cost.of(request);
            list.push(Hit { is_shadow, watched, ..Hit::of(i, key, hash, terms.salt, slot_count, cost) });
        }
        MatchResult::Counted
    }
}
