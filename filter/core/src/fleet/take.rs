//! Strict rules beside the store: a request takes its tokens from the budget itself.
//!
//! A lease pays for a key that is asked for often. For any other key it costs two exchanges, one to draw and one to say what
//! was spent, and an entry here that hardly anybody asks for again. A host that is one step from the store can have its
//! requests *take* instead: what the budget gives is spent, nothing is kept here, and nothing is left to say.
//!
//! Only a request that needs nothing else takes: its one strict rule has no token at all on hand for it, and all others have enough. What was
//! taken cannot be given back, so if one of those refuses it after all, as another request was quicker, it has paid for nothing.

use alloc::boxed::Box;

use super::taken::{Take, Taken};
use super::wish::{INTERVAL_NS, unsaid_of};
use crate::RuleIndex;
use crate::buckets::{Bucket, Standing};
use crate::counters::Event;
use crate::decide::{Decision, Hit, Judged, RuleTerms, Scratch, Verdict};
use crate::limiter::{Drawn, Limiter};
use crate::table::Slots;
use crate::table::slot::{Cold, Entry, Lodging, Slot, Tag, Watched};
use weir_rules::request::Request;
use weir_wire::law::Law;
use weir_wire::quota::Quota;
use weir_wire::sharing::WhenUnsynced;
use weir_wire::time::{SECOND_NS, Time};

/// A key takes where its budget had less than one part in this many left: others need the rest.
const LOW_PART: u32 = 4;
/// How long a client waits if the budget did not say, in nanoseconds.
const UNKNOWN_WAIT_NS: u64 = SECOND_NS;

impl Limiter {
    /// From now on requests take where that is cheaper: the host gives what they took to [`Limiter::decide_taken`].
    pub(crate) fn let_take(&mut self) {
        self.takes = Some(Box::default());
    }

    /// What the request at hand takes, which has just been told to wait; none if it had better draw.
    pub(crate) fn take(&mut self, now: Time) -> Option<Take> {
        let takes = self.takes.as_mut().filter(|_| self.touch.drawn == Drawn::NotYet && !self.only_asks)?;
        let scratch = self.scratch.take()?;
        let lacking = |hit: &&Hit| !matches!(hit.judged.verdict, Verdict::Fits(_));
        let mut lacks = scratch.hits.iter().filter(lacking);
        let take = match (lacks.next(), lacks.next()) {
            (Some(hit), None) if hit.judged.verdict == Verdict::Unpaid => {
                let is_often = takes.recent(hit.tag).is_some_and(|recent| recent.is_often(now));
                let is_leased = is_often || has_some(&scratch, hit, now);
                let value = *self.keys.value(hit.key);
                let take = Take { rule: hit.rule, value, tokens: hit.cost, tag: hit.tag };
                let is_alone =
                    !scratch.hits.iter().any(|other| other.tag != hit.tag && self.is_strict(other.rule));
                Some(take).filter(|take| !is_leased && is_alone && self.may_take(take.rule))
            }
            _ => None,
        };
        self.scratch = Some(scratch);
        self.counters.add(Event::Paused, u32::from(take.is_some()));
        take
    }

    fn is_strict(&self, rule: RuleIndex) -> bool {
        self.rule(rule).is_some_and(|rule| rule.sharing.strict)
    }

    /// What is held until its request ends cannot be taken, nor can a turn, which is not spent at once.
    fn may_take(&self, rule: RuleIndex) -> bool {
        let is_spent = |law| matches!(law, Law::Steady | Law::Window(_) | Law::Sliding(_) | Law::Log(_));
        !self.reserves(rule) && self.rule(rule).is_some_and(|rule| is_spent(rule.sharing.law))
    }

    /// Tokens that a token bucket's key draws beyond those that it needs: little, as all of it is outstanding for a while.
    pub(crate) fn chunk_beside(&self, quota: Quota) -> u32 {
        let refilled = u32::try_from(INTERVAL_NS / quota.token_ns().max(1)).unwrap_or(u32::MAX);
        if self.takes.is_some() { unsaid_of(Law::Steady, quota).min(refilled) } else { 0 }
    }

    /// Decides a request again, for which the budget gave `taken` to `take`; none if it is out of reach.
    pub(crate) fn decide_taken(
        &mut self,
        take: &Take,
        taken: Option<Taken>,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Decision {
        let Some(known) = self.takes.as_mut() else {
            return self.decide_again(false, request, slots, now);
        };
        known.taken = taken.map(|taken| (take.tag, taken));
        let burst = self.rules.rules().get(usize::from(take.rule)).map_or(0, |rule| rule.quota.burst());
        if let (Some(taken), Some(recent)) = (taken, known.recent(take.tag)) {
            recent.is_low = taken.left < burst / LOW_PART;
        }
        if taken.is_some_and(|taken| taken.is_taken) {
            // Another request may have heard since that there is no more.
            self.deny_cache.forget(take.tag);
        }
        let decision = self.decide_again(taken.is_some(), request, slots, now);
        if let Some(takes) = &mut self.takes {
            takes.taken = None;
        }
        decision
    }

    /// What was taken for `hit`, if its request took.
    pub(crate) fn taken_for(&self, tag: Tag) -> Option<Taken> {
        self.takes.as_ref()?.taken.filter(|(of, _)| *of == tag).map(|(_, taken)| taken)
    }

    /// Judges `hit` by what was taken for it.
    pub(crate) fn judge_taken(
        hit: &Hit,
        taken: Taken,
        terms: &RuleTerms,
        (lodging, slot): (&Lodging, &mut Slot),
        now: Time,
    ) -> Judged {
        let quota = &terms.quota;
        let mut evicted = 0;
        let verdict = if taken.is_taken {
            evicted = charge_bucket(hit.cost, terms, lodging, slot, now);
            let bucket = Bucket::FULL.held_to(quota, taken.left, now);
            Verdict::Fits(Standing::allowed(bucket, quota, now))
        } else {
            let wait_ns = match taken.wait_ms.saturating_mul(1_000_000) {
                0 => UNKNOWN_WAIT_NS,
                // One that asks for more than there ever is hears when all of it is there.
                _ if hit.cost > quota.burst() && !terms.is_calendar => {
                    quota.token_ns().saturating_mul(quota.burst().saturating_sub(taken.left).into())
                }
                known_ns => known_ns,
            };
            Verdict::Short { wait_ns }
        };
        Judged { evicted, ..Judged::refused(verdict, hit.tag) }
    }
}

/// Has what was taken count for the bucket, too, that `when_unsynced` decides by, as what is spent of a lease does. Returns
/// how many entries were evicted for it.
fn charge_bucket(cost: u32, terms: &RuleTerms, lodging: &Lodging, slot: &mut Slot, now: Time) -> u32 {
    if terms.when_unsynced == WhenUnsynced::Deny || terms.is_calendar {
        return 0;
    }
    let bucket = lodging.entry.bucket().charged(&terms.quota, cost, now);
    let entry = match lodging.entry {
        Entry::Watched(watched) => Entry::Watched(Watched { bucket, ..watched }),
        Entry::Cold(cold) => Entry::Cold(Cold { bucket, ..cold }),
    };
    // There is room: always for a cold bucket, and a watched key has its own.
    slot.put_back(lodging, &entry, now).unwrap_or(0)
}

/// Whether a lease left some tokens on hand, though too few: then the request draws the rest.
fn has_some(scratch: &Scratch, hit: &Hit, now: Time) -> bool {
    let loaded = scratch.loaded.iter().find(|loaded| loaded.index == hit.slot);
    let entry = loaded.map(|loaded| loaded.slot.lodge(hit.tag, now).entry);
    matches!(entry, Some(Entry::Watched(watched)) if watched.on_hand(now) > 0)
}
