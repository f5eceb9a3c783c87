//! Which rules count a request, and which buckets they name.

use super::judge::Judged;
use super::keys::KeyId;
use super::{Asked, Hit, Limiter, Scratch, slot_of};
use crate::bucket::Bucket;
use crate::counters::Event;
use crate::decision::{Decision, Outcome, Standing};
use crate::request::{Fetched, Request};
use crate::rules::Listed;
use crate::rules::key_spec::{Missing, MissingPart};
use crate::rules::mode::{Enforcement, Mode};
use crate::slot::Tag;
use crate::time::Time;

/// What there is to be done about a request once its rules are known.
pub(super) enum Met {
    /// To judge the hits, of which there may be none.
    Counted,
    /// To refuse it for what it is.
    Blocked,
    /// To limit it by this rule, of whose key it lacks a part.
    Lacking(u16),
    /// Nothing: it is paid for.
    Paid(Decision),
}

impl Limiter {
    /// Finds the rules that count the request, and the buckets they name.
    pub(super) fn meet(
        &mut self,
        request: &mut dyn Request,
        scratch: &mut Scratch,
        slot_count: u32,
        now: Time,
    ) -> Met {
        let Scratch { values, conditions, met, hits, shadow, whose, .. } = scratch;
        hits.clear();
        shadow.clear();
        let request = &mut Fetched::new(request, self.rules.attributes(), values);
        match self.rules.listed(request, conditions) {
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
        *whose = Self::whose(&self.terms, met, request);
        if let Some(whose) = whose.as_ref()
            && let Some(strictest) = self.batches.pay(whose, now)
        {
            self.counters.add(Event::BatchPaid, 1);
            whose.rules().for_each(|rule| self.counters.allowed(rule));
            return Met::Paid(Decision { outcome: Outcome::Allow, strictest: Some(strictest), hold_ns: 0 });
        }
        self.keys.next_request();
        let mut is_address_missing = false;
        for &i in met {
            let place = usize::from(i);
            let (Some(rule), Some(terms)) = (self.rules.rules().get(place), self.terms.get(place)) else {
                continue;
            };
            if terms.enforcement.mode == Mode::Off {
                continue;
            }
            let secrets = (&self.fleet_secret, &self.secret);
            let (key, hash) = match self.keys.hash(terms.key, &rule.key, request, secrets) {
                Ok(hash) => (terms.key, hash),
                Err(part) => {
                    let is_news = part == MissingPart::ClientAddress && !is_address_missing;
                    self.counters.add(Event::AddressUnreadable, u32::from(is_news));
                    is_address_missing |= is_news;
                    match rule.missing {
                        Missing::Skip => continue,
                        Missing::Share => (KeyId::LACKING, self.keys.hash_of_lacking()),
                        Missing::Limit if terms.enforcement == Enforcement::default() => {
                            hits.clear();
                            shadow.clear();
                            return Met::Lacking(i);
                        }
                        Missing::Limit => {
                            self.counters.shadow_limited(i);
                            continue;
                        }
                    }
                }
            };
            let slot = slot_of(hash.place, slot_count);
            let tag = Tag::of_key(hash.tag, terms.salt);
            // A request that has waited was counted before.
            let watched = self.touch.asked != Asked::NotYet;
            let (cost, judged) = (terms.cost.of(request), Judged::NOT_YET);
            let is_shadow = !terms.enforcement.holds_for(self.keys.value(key), &self.fleet_secret);
            let list = if is_shadow { &mut *shadow } else { &mut *hits };
            list.push(Hit {
                rule: i,
                key,
                tag,
                slot,
                cost,
                unused: None,
                after: Bucket::FULL,
                withdrawn: None,
                is_shadow,
                watched,
                thinned: false,
                judged,
            });
        }
        Met::Counted
    }

    /// A request that lacks a part of the rule's key is told to wait for one token's time.
    pub(super) fn refused_for_lacking(&mut self, rule: u16) -> Decision {
        let wait_ns = self.rule(rule).map_or(0, |rule| rule.quota.token_ns());
        self.refused(rule, Standing::refused(wait_ns, wait_ns))
    }
}
