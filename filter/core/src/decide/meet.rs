//! Which rules count a request, and which buckets they name.

use super::hit::{Hit, Scratch};
use super::keys::KeyId;
use super::ruling::Ruling;
use crate::RuleIndex;
use crate::buckets::Standing;
use crate::counters::Event;
use crate::limiter::{Drawn, Limiter};
use weir_rules::Listed;
use weir_rules::key::{Missing, MissingPart};
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Request};
use weir_wire::time::Time;

/// What to do with a request once its rules are known.
pub(crate) enum Met {
    /// Judge the hits, if any. If the deny cache refuses one of them, the others may be missing.
    Counted,
    /// Refuse it, whatever its rate: it is on the `deny` list.
    Blocked,
    /// Limit it by this rule: it lacks a part of the rule's key, or has one more than once.
    Lacking(RuleIndex),
}

impl Limiter {
    /// Finds the rules that count the request, and the buckets they name.
    pub(crate) fn meet(
        &mut self,
        request: &mut dyn Request,
        scratch: &mut Scratch,
        slot_count: u32,
        now: Time,
    ) -> Met {
        let Scratch { values, conditions, met, unlimited, hits, shadow, .. } = scratch;
        unlimited.clear();
        hits.clear();
        shadow.clear();
        let request = &mut Fetched::new(request, self.rules.attributes(), values);
        self.keys.next_request();
        let mut listed = self.rules.allowed(request, conditions);
        if listed == Listed::No && !self.is_booking && self.deny_cache.is_worth_asking(now) {
            // If rules that are cheap to match are known to refuse the client, the others need not be looked at.
            let cheap = self.rules.meet_cheaply(request, conditions, met).unwrap_or_default();
            for i in cheap.iter().copied().map(RuleIndex::new) {
                let place = usize::from(i);
                let rule_terms = self.rules.rules().get(place).zip(self.terms.get(place));
                let Some((rule, terms)) = rule_terms.filter(|(_, terms)| terms.is_enforced()) else {
                    continue;
                };
                let secrets = (&self.fleet_secret, &self.secret);
                if let Ok(hash) = self.keys.hash(terms.key, &rule.key, request, secrets) {
                    let cost = terms.cost.of(request);
                    hits.push(Hit::of(i, terms.key, hash, terms.salt, slot_count, cost));
                }
            }
            if hits.iter().any(|hit| self.deny_cache.get(hit.tag, hit.cost, now).is_some()) {
                return Met::Counted;
            }
            hits.clear();
        }
        if listed == Listed::No {
            listed = self.rules.blocked(request, conditions);
        }
        match listed {
            Listed::No => {}
            Listed::Off => return Met::Counted,
            Listed::Allowed => {
                self.counters.add(Event::ListAllowed, 1);
                return Met::Counted;
            }
            Listed::Blocked => {
                self.counters.add(Event::ListBlocked, 1);
                return Met::Blocked;
            }
        }
        let met = self.rules.meet(request, conditions, met);
        let is_unlimited = |i: &RuleIndex| {
            let terms = self.terms.get(usize::from(*i));
            terms.is_some_and(|terms| terms.is_unlimited && terms.enforcement.mode != Mode::Off)
        };
        if self.rules.has_unlimited() {
            unlimited.extend(met.iter().copied().map(RuleIndex::new).filter(is_unlimited));
        }
        let mut is_address_missing = false;
        for i in met.iter().copied().map(RuleIndex::new) {
            let place = usize::from(i);
            let (Some(rule), Some(terms)) = (self.rules.rules().get(place), self.terms.get(place)) else {
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
                    self.counters.add(Event::AddressUnreadable, u32::from(is_news));
                    is_address_missing |= is_news;
                    let is_repeated = part == MissingPart::Repeated;
                    match if is_repeated { Missing::Limit } else { rule.missing } {
                        Missing::Skip => continue,
                        Missing::Share => (KeyId::LACKING, self.keys.hash_of_lacking()),
                        Missing::Limit if terms.is_enforced() => {
                            hits.clear();
                            shadow.clear();
                            return Met::Lacking(i);
                        }
                        Missing::Limit => {
                            self.counters.count(i, |counts| &mut counts.shadow_limited);
                            self.would_refuse.push(i);
                            continue;
                        }
                    }
                }
            };
            let is_shadow = !terms.enforcement.holds_for(self.keys.value(key), &self.fleet_secret);
            // A request that has waited was counted when it first came.
            let watched = self.touch.drawn != Drawn::NotYet;
            let list = if is_shadow { &mut *shadow } else { &mut *hits };
            let cost = terms.cost.of(request);
            list.push(Hit { is_shadow, watched, ..Hit::of(i, key, hash, terms.salt, slot_count, cost) });
        }
        Met::Counted
    }

    /// Refuses a request that lacks a part of the rule's key, or has one more than once; it waits for one token's time.
    pub(crate) fn refused_for_lacking(&mut self, rule: RuleIndex) -> Ruling {
        let wait_ns = self.rule(rule).map_or(0, |rule| rule.quota.token_ns());
        self.refused(rule, Standing::refused(wait_ns))
    }
}
