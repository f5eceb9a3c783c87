//! Finding the rules that count a request, and the buckets of its keys.

use crate::RuleIndex;
use crate::check::current::{AcquireState, CurrentRequest};
use crate::check::hit::{Hit, Scratch};
use crate::check::keys::KeyId;
use crate::check::local_cache::LocalCache;
use crate::check::rules::CompiledRules;
use crate::counters::{CountedEvent, Counters};
use weir_protocol::time::Time;
use weir_rules::Listed;
use weir_rules::key::{Missing, MissingPart};
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Request};

/// The next step for a request once its rules are known.
pub(crate) enum MatchResult {
    /// Judge the hits, if there are any. If the local cache refuses one of them, the list may be incomplete.
    Counted,
    /// Block the request: it is on the `deny` list.
    Blocked,
    /// Limit the request by this rule: it lacks a part of the rule's key, or has that part more than once.
    Lacking(RuleIndex),
}

/// The inputs of matching besides the rules.
pub(crate) struct MatchContext<'a> {
    pub(crate) cache: &'a LocalCache,
    pub(crate) counters: &'a mut Counters,
    pub(crate) current: &'a mut CurrentRequest,
    pub(crate) slot_count: u32,
    pub(crate) now: Time,
}

impl CompiledRules {
    /// Finds the rules that count the request, and fills `scratch` with a hit for each.
    pub(crate) fn find_matches(
        &mut self,
        request: &mut dyn Request,
        scratch: &mut Scratch,
        with: MatchContext<'_>,
    ) -> MatchResult {
        let MatchContext { cache, counters, current, slot_count, now } = with;
        let Scratch { values, conditions, met, unlimited, hits, shadow, .. } = scratch;
        unlimited.clear();
        hits.clear();
        shadow.clear();
        let request = &mut Fetched::new(request, self.set.attributes(), values);
        self.keys.next_request();
        let mut listed = self.set.allowed(request, conditions);
        if listed == Listed::No && !current.is_booking && cache.is_worth_asking(now) {
            // A refusal that is cached for a rule that is cheap to match saves matching the others.
            let cheap = self.set.find_cheap_matches(request, conditions, met).unwrap_or_default();
            for i in cheap.iter().copied().map(RuleIndex::new) {
                let place = usize::from(i);
                let rule_terms = self.set.rules().get(place).zip(self.terms.get(place));
                let Some((rule, terms)) = rule_terms.filter(|(_, terms)| terms.is_enforced()) else {
                    continue;
                };
                let secrets = (&self.fleet_secret, &self.secret);
                if let Ok(hash) = self.keys.hash(terms.key, &rule.key, request, secrets) {
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
            listed = self.set.blocked(request, conditions);
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
        let met = self.set.find_matches(request, conditions, met);
        let is_unlimited = |i: &RuleIndex| {
            let terms = self.terms_of(*i);
            terms.is_some_and(|terms| terms.is_unlimited && terms.enforcement.mode != Mode::Off)
        };
        if self.set.has_unlimited() {
            unlimited.extend(met.iter().copied().map(RuleIndex::new).filter(is_unlimited));
        }
        let mut is_address_missing = false;
        for i in met.iter().copied().map(RuleIndex::new) {
            let place = usize::from(i);
            let (Some(rule), Some(terms)) = (self.set.rules().get(place), self.terms.get(place)) else {
                continue;
            };
            if terms.is_off() {
                continue;
            }
            let secrets = (&self.fleet_secret, &self.secret);
            let (key, hash) = match self.keys.hash(terms.key, &rule.key, request, secrets) {
                Ok(hash) => (terms.key, hash),
                Err(part) => {
                    let is_news = part == MissingPart::ClientAddress && !is_address_missing;
                    counters.add(CountedEvent::AddressUnreadable, u32::from(is_news));
                    is_address_missing |= is_news;
                    let is_repeated = part == MissingPart::Repeated;
                    match if is_repeated { Missing::Limit } else { rule.missing } {
                        Missing::Skip => continue,
                        Missing::Share => (KeyId::LACKING, self.keys.hash_of_lacking()),
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
            let is_shadow = !terms.enforcement.holds_for(self.keys.value(key), &self.fleet_secret);
            // A request that has waited was counted on its first pass.
            let watched = current.touch.acquired != AcquireState::NotYet;
            let list = if is_shadow { &mut *shadow } else { &mut *hits };
            let cost = terms.cost.of(request);
            list.push(Hit { is_shadow, watched, ..Hit::of(i, key, hash, terms.salt, slot_count, cost) });
        }
        MatchResult::Counted
    }
}
