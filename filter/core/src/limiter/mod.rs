//! The limiter of one worker: request in, decision out.
//!
//! ```text
//! request -> rules it meets -> keys -> [deny cache] -> slots -> judge -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that meets several rules takes from all their buckets or from none.
//! Buckets in one slot change together, by one compare-and-swap; across slots the limiter commits
//! one after the other and gives back what it took if a later one turns out short.

mod afterwards;
mod answer;
mod calls;
mod cells;
mod counting;
mod draw;
mod exchange;
mod give_back;
mod grants;
mod inspect;
mod jitter;
mod judge;
mod keys;
mod meet;
mod parting;
mod penalty;
mod replace;
mod reporting;
mod ruling;
mod saying;
mod shadow;
mod spend;
mod terms;
#[cfg(test)]
mod tests;
mod versions;
mod watched;
mod wish;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::counters::{Counters, Event};
use crate::decision::{Decision, Outcome, Reason, Standing};
use crate::deny_cache::DenyCache;
use crate::key::Secret;
use crate::ladder::Step;
use crate::slot::{Slot, Tag};
use crate::table::{Loaded, Slots, WriteError};
use crate::watch::WatchList;
pub use afterwards::{Afterwards, What};
pub use draw::DRAWS_MAX;
use draw::{Ended, InHand};
use exchange::Exchange;
use weir_rules::RuleSet;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::matching::Bits;
use weir_rules::request::{Request, Values};
use weir_wire::time::{SECOND_NS, Time};

pub use calls::{Purpose, REPORTS_MAX};
use judge::Judged;
use keys::{KeyId, Keys};
use meet::Met;
pub use parting::PARTING_BYTES_MAX;
use ruling::Ruling;
use terms::Terms;

/// How often a write that meets another worker's is done again. Each retry means that some other
/// request was decided, so only a slot under absurd contention comes near it.
const WRITES_MAX: u32 = 32;

/// What a client is told to wait that is refused because the POP is out of touch, in nanoseconds.
const DENIED_WAIT_NS: u64 = SECOND_NS;

/// What the workers of one proxy share beside the slots, made once per process.
#[derive(Clone, Copy)]
pub struct TableIdentity {
    /// What keys are hashed with.
    pub secret: Secret,
    /// Names this process's table in reports; random.
    pub table_id: u32,
}

/// What this worker is called in reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The POP's name, the same for all its workers; 1 to [`weir_wire::messages::POP_NAME_MAX`] bytes.
    pub pop: alloc::string::String,
    /// A random name of this worker.
    pub worker: u64,
}

/// The limiter of one worker.
pub struct Limiter {
    rules: RuleSet,
    /// What decisions need of each rule.
    terms: Vec<Terms>,
    /// Counts the rule sets that were in force; a rule's index means something in one of them.
    generation: u32,
    secret: Secret,
    keys: Keys,
    /// What hides the parts of keys that leave the POP.
    fleet_secret: FleetSecret,
    deny_cache: DenyCache,
    watch: WatchList,
    /// The budget loop; none where the POP is on its own.
    exchange: Option<Exchange>,
    /// How the request at hand stands with weir-sync.
    touch: Touch,
    /// What the last of them brought for its request alone.
    in_hand: Vec<InHand>,
    /// What of that is over and not said to be.
    ended: Vec<Ended>,
    counters: Counters,
    afterwards: Vec<Afterwards>,
    /// Of the request decided last; none before the first, while one is decided, and since the rules were replaced.
    scratch: Option<Box<Scratch>>,
}

/// Whether weir-sync was asked to debit a strict rule's budget for the request at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    NotYet,
    Answered,
    /// It did not answer, or has no store.
    InVain,
}

/// In touch with weir-sync, or not: looked up once for each decision that looks at the table.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// Bounded rules go by their `when_unsynced`.
    is_lost: bool,
    /// Strict rules do.
    is_lost_for_strict: bool,
    asked: Asked,
}

/// Room that is used again for every request.
#[derive(Default)]
struct Scratch {
    values: Values,
    /// Conditions that the request may meet.
    conditions: Bits,
    /// Rules that it does.
    met: Vec<u16>,
    /// Those of them that are tiers without a limit.
    unlimited: Vec<u16>,
    hits: Vec<Hit>,
    /// Hits of rules that are not enforced for their keys.
    shadow: Vec<Hit>,
    loaded: Vec<Loaded>,
    /// Slots to read into.
    rooms: Vec<Slot>,
}

/// A rule that counts the request, and the bucket it names.
struct Hit {
    rule: u16,
    key: KeyId,
    tag: Tag,
    slot: u32,
    /// Tokens that the request takes.
    cost: u32,
    /// Whether the rule's word does not count for this key.
    is_shadow: bool,
    /// Whether the watch list has counted this request.
    watched: bool,
    /// Whether the key's admit ratio has spoken on this request.
    thinned: bool,
    judged: Judged,
}

impl Limiter {
    /// A limiter for `rules`. Without a `reporter` nothing is ever reported, and keys are hidden by this process's
    /// secret; with one, until [`Limiter::hide_keys_with`] says otherwise, by none.
    pub fn new(rules: RuleSet, identity: TableIdentity, reporter: Option<Reporter>) -> Self {
        let (keys, terms) = Terms::of(&rules, &identity.secret, reporter.is_some());
        Self {
            counters: Counters::new(rules.rules().len()),
            terms,
            rules,
            generation: 0,
            secret: identity.secret,
            keys,
            fleet_secret: if reporter.is_some() {
                FleetSecret::UNKEYED
            } else {
                identity.secret.on_its_own()
            },
            deny_cache: DenyCache::new(),
            watch: WatchList::default(),
            exchange: reporter.map(|reporter| Exchange::new(reporter, identity.table_id)),
            touch: Touch { is_lost: true, is_lost_for_strict: true, asked: Asked::NotYet },
            in_hand: Vec::new(),
            ended: Vec::new(),
            afterwards: Vec::new(),
            scratch: None,
        }
    }

    /// Hashes the parts of keys with `secret`, which is the same at every POP. To be called before any decision.
    pub fn hide_keys_with(&mut self, secret: FleetSecret) {
        self.fleet_secret = secret;
        self.keys.forget();
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// What was counted since it was last taken.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Decides one request at `now`.
    pub fn decide(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> Decision {
        self.decide_at(Asked::NotYet, request, slots, now)
    }

    fn decide_at(
        &mut self,
        asked: Asked,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        self.touch.asked = asked;
        // The scratch is taken out, so that it and the rest of the limiter can be used at once.
        let mut scratch = self.scratch.take().unwrap_or_default();
        let met = self.meet(request, &mut scratch, slots.count(), now);
        let ruling = if let Met::Blocked = met {
            Ruling::BLOCKED
        } else if let Met::Lacking(rule) = met {
            self.refused_for_lacking(rule)
        } else if scratch.hits.is_empty() {
            Ruling::UNCOUNTED
        } else if let Some(refused) = self.remembered(&scratch.hits, now) {
            refused
        } else {
            self.settle(&mut scratch, slots, now)
        };
        let is_allowed = ruling.outcome == Outcome::Allow;
        if is_allowed {
            if !scratch.shadow.is_empty() {
                self.judge_shadows(&mut scratch, slots, now);
            }
            scratch.unlimited.iter().for_each(|rule| self.counters.allowed(*rule));
        }
        if !self.in_hand.is_empty() {
            self.end_in_hand(&scratch.hits, is_allowed, slots, now);
        }
        let Ruling { outcome, strictest, hold_ns } = ruling;
        let decision = match (outcome, strictest) {
            (Outcome::Allow, _) => {
                Decision::Allow { strictest, hold_ns, afterwards: core::mem::take(&mut self.afterwards) }
            }
            (Outcome::Limit | Outcome::Deny, Some((rule, standing))) => {
                let reason = if outcome == Outcome::Limit { Reason::Limit } else { Reason::Deny };
                let jitter_s = self.jitter_s(rule, &scratch.hits, now);
                Decision::Refuse { reason, rule, standing, jitter_s }
            }
            (Outcome::Wait, Some(_)) => {
                self.scratch = Some(scratch);
                return self.wait(request, slots, now);
            }
            _ => Decision::Block,
        };
        self.scratch = Some(scratch);
        decision
    }

    /// Looks up how the request at hand stands with weir-sync, before it is judged.
    fn look_up_touch(&mut self, now: Time) {
        let (asked, ladder) = (self.touch.asked, self.ladder());
        let is_lost = ladder.is_none_or(|ladder| ladder.step(now) == Step::Fallback);
        let is_lost_for_strict = asked == Asked::InVain || ladder.is_none_or(|ladder| !ladder.may_ask(now));
        self.touch = Touch { is_lost, is_lost_for_strict, asked };
    }

    /// The answer of the deny cache: the rule among those it remembers that holds out the longest.
    fn remembered(&mut self, hits: &[Hit], now: Time) -> Option<Ruling> {
        let denials = hits.iter().filter_map(|hit| Some((hit, self.deny_cache.get(hit.tag, hit.cost, now)?)));
        let (hit, denial) = denials.max_by_key(|(_, denial)| denial.until)?;
        for hit in hits {
            self.watch.touch_known(hit.tag, hit.cost, now);
        }
        self.counters.add(Event::DenyCacheAnswered, 1);
        let full_ns = denial.full_at.nanos_since(now);
        Some(self.refused(hit.rule, Standing::refused(denial.until.nanos_since(now), full_ns)))
    }

    /// Judges the hits on the table, and commits what they take.
    fn settle(&mut self, scratch: &mut Scratch, slots: &mut dyn Slots, now: Time) -> Ruling {
        self.look_up_touch(now);
        let Scratch { hits, loaded, rooms, .. } = scratch;
        while let Some(loaded) = loaded.pop() {
            rooms.push(loaded.slot);
        }
        for i in 0..hits.len() {
            let Some(index) = hits.get(i).map(|hit| hit.slot) else { break };
            if !loaded.iter().any(|l| l.index == index) {
                loaded.push(self.load(slots, index, rooms));
            }
        }
        let mut fits = true;
        for loaded in loaded.iter_mut() {
            fits &= self.judge_slot(loaded, hits, now);
        }
        if fits {
            for i in 0..loaded.len() {
                let (done, rest) = loaded.split_at_mut(i);
                let Some(next) = rest.first_mut() else { break };
                if !self.commit(next, hits, slots, rooms, now) {
                    self.give_back(done, hits, slots, rooms, now);
                    fits = false;
                    break;
                }
            }
        }
        for hit in hits.iter().filter(|hit| hit.thinned) {
            self.watch.settle(hit.tag, fits);
        }
        if !fits {
            return self.refuse(hits, slots, rooms, now);
        }
        self.allow(hits)
    }

    fn load(&mut self, slots: &mut dyn Slots, index: u32, rooms: &mut Vec<Slot>) -> Loaded {
        let (loaded, mishap) = Loaded::read(slots, index, rooms.pop().unwrap_or_default());
        if let Some(mishap) = mishap {
            self.counters.add(mishap, 1);
        }
        loaded
    }

    /// Writes a judged slot; on a conflict reads and judges it again. False if by then it is short.
    fn commit(
        &mut self,
        loaded: &mut Loaded,
        hits: &mut [Hit],
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) -> bool {
        for _ in 0..WRITES_MAX {
            if !loaded.is_known() {
                forget_taken(hits, loaded);
                return true;
            }
            match loaded.write(slots) {
                Ok(()) => return true,
                Err(WriteError::Unavailable) => {
                    self.counters.add(Event::Unavailable, 1);
                    forget_taken(hits, loaded);
                    return true;
                }
                Err(WriteError::Conflict) => self.counters.add(Event::CasRetried, 1),
            }
            *loaded = self.load(slots, loaded.index, rooms);
            if !self.judge_slot(loaded, hits, now) {
                return false;
            }
        }
        self.counters.add(Event::CasGaveUp, 1);
        forget_taken(hits, loaded);
        true
    }

    fn rule(&self, rule: u16) -> Option<&weir_rules::Rule> {
        self.rules.rules().get(usize::from(rule))
    }
}

/// Nothing was written of what hits took in this slot, so there is nothing to give back, or to release.
fn forget_taken(hits: &mut [Hit], loaded: &mut Loaded) {
    loaded.give_up();
    for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
        hit.judged.taken = None;
    }
}

/// Spreads hashes evenly over slots, without a division (Lemire, "Fast random integer generation in
/// an interval", 2019, section 3).
fn slot_of(place: u64, count: u32) -> u32 {
    let spread = (u128::from(place) * u128::from(count)) >> 64;
    u32::try_from(spread).unwrap_or(0)
}
