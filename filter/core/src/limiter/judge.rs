//! Judging hits on a slot that was read: what each takes, in the slot's copy.

use alloc::vec::Vec;

use super::penalty::boxed_until;
use super::terms::Terms;
use super::{Asked, Hit, Limiter};
use crate::algorithm::{Algorithm, Taken};
use crate::batch::requests_max;
use crate::bucket::{Bucket, Take};
use crate::counters::Event;
use crate::decision::Standing;
use crate::rules::Rule;
use crate::rules::cost::Cost;
use crate::sharing::WhenUnsynced;
use crate::slot::{BAR_STEP_NS, Cold, Entry, Lodging, Slot, Tag, Unheard, Watched};
use crate::table::{Loaded, Slots, WriteError};
use crate::time::{SECOND_NS, Time};
use crate::wire::AdmitRatio;

/// What a thinned key is told to wait beside what its ratio says: until its demand has left the window
/// that it is measured over (0.5 s) and the next grant has come (0.25 s).
const THINNED_WAIT_NS: u64 = SECOND_NS * 3 / 4;
/// A strict rule's key for which there was no token, and no word of when there will be one, is not asked for again
/// sooner than a token comes, or this, in nanoseconds.
const UNPAID_WAIT_NS_MAX: u64 = SECOND_NS;
/// How long a strict rule's key is believed to have no tokens, in nanoseconds: what is done to its budget by hand
/// is heard of no later. A calendar's quota is believed to have none until its window ends.
const BARRED_NS_MAX: u64 = 60 * SECOND_NS;

/// When a key that finds no place to be watched in is looked at again, at the latest, in nanoseconds: there may be one.
const CROWDED_WAIT_NS_MAX: u64 = SECOND_NS;

/// What a hit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is room; this is how its client stands once it is taken.
    Fits(Standing),
    /// Its bucket has too few.
    Short { wait_ns: u64, full_ns: u64 },
    /// Its admit ratio leaves this request out.
    Thinned { wait_ns: u64, full_ns: u64 },
    /// Its key is in the rule's penalty box.
    Boxed { wait_ns: u64 },
    /// Its rule is strict, and too few tokens that were paid for are on hand.
    Unpaid,
    /// Its rule refuses everything while the POP is out of touch with weir-sync.
    Denied,
}

/// What judging a hit found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// The tag its bucket or cells live under: its own, or an overflow cell's.
    pub(super) tag: Tag,
    /// Whether others owe what its bucket or cell lacks.
    pub(super) is_shared: bool,
    /// Spent entries that made room for it.
    pub(super) evicted: u32,
    /// What it took, by another algorithm than the token bucket.
    pub(super) taken: Option<Taken>,
}

impl Judged {
    pub(super) const NOT_YET: Self = Self::refused(Verdict::Unpaid, Tag::of_key(0, 0));

    /// With nothing taken.
    pub(super) const fn refused(verdict: Verdict, tag: Tag) -> Self {
        Self { verdict, tag, is_shared: false, evicted: 0, taken: None }
    }
}

impl Limiter {
    /// Judges every hit whose bucket lies in `loaded`, taking from the copy as it goes. Whether all
    /// fit; if not, the copy must not be written.
    pub(super) fn judge_slot(&mut self, loaded: &mut Loaded, hits: &mut [Hit], now: Time) -> bool {
        // Taken out, so that they and the rest of the limiter can be used at once.
        let all_terms = core::mem::take(&mut self.terms);
        let mut fits = true;
        for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
            let Some(terms) = all_terms.get(usize::from(hit.rule)) else { continue };
            // Once before, for a key that is watched, and once after, for one that just became so.
            hit.withdrawn = None;
            self.count_if_watched(hit, &loaded.slot, now);
            let until = if terms.has_box { boxed_until(&loaded.slot, hit.tag, now) } else { None };
            match until {
                Some(until) => {
                    let wait_ns = until.nanos_since(now);
                    hit.judged = Judged::refused(Verdict::Boxed { wait_ns }, hit.tag);
                }
                // A cost that the response tells takes nothing yet.
                None if terms.is_charged_after => self.judge(hit, terms, &mut loaded.slot.clone(), now),
                None => self.judge(hit, terms, &mut loaded.slot, now),
            }
            self.count_if_watched(hit, &loaded.slot, now);
            fits &= matches!(hit.judged.verdict, Verdict::Fits(_));
        }
        self.terms = all_terms;
        fits
    }

    /// What the rule says to do out of touch with weir-sync, if the POP is.
    fn alone(&self, hit: &Hit, terms: &Terms) -> Option<WhenUnsynced> {
        // Nobody waits for a rule that is not enforced.
        if terms.is_strict && hit.is_shadow {
            return Some(WhenUnsynced::Local);
        }
        let is_lost = if terms.is_strict { self.touch.is_lost_for_strict } else { self.touch.is_lost };
        is_lost.then_some(terms.when_unsynced)
    }

    #[inline]
    fn judge(&mut self, hit: &mut Hit, terms: &Terms, slot: &mut Slot, now: Time) {
        if !matches!(terms.algorithm, Algorithm::TokenBucket(_)) {
            hit.judged = Self::judge_cells(hit, terms, &terms.algorithm, slot, now);
            return;
        }
        let quota = &terms.quota;
        let mut lodging = slot.lodge(hit.tag, now);
        let unheard = self.exchange.as_ref().map(|exchange| terms.unheard(exchange.cold_parts()));
        if let (Some(unheard), Entry::Cold(cold), false) =
            (&unheard, &mut lodging.entry, lodging.owed.is_full(now))
        {
            cold.share = unheard.share_of_debt(lodging.owed, now);
        }
        let judged = |hit: &mut Hit, verdict| {
            hit.judged = Judged { is_shared: lodging.is_shared, ..Judged::refused(verdict, lodging.tag) };
        };
        if let Some(wait_ns) = barred_ns(&lodging.entry, terms, now) {
            return judged(hit, Verdict::Short { wait_ns, full_ns: wait_ns });
        }
        let alone = self.alone(hit, terms);
        if alone == Some(WhenUnsynced::Deny) {
            return judged(hit, Verdict::Denied);
        }
        if terms.is_strict && alone.is_none() {
            hit.judged = self.spend(hit, lodging, terms, slot, now);
            return;
        }
        let is_share = alone == Some(WhenUnsynced::Share);
        if let Entry::Watched(watched) = &mut lodging.entry
            && !is_share
            && !terms.is_strict
        {
            watched.forgive_share(quota);
        }
        let dearest = if matches!(terms.cost, Cost::Header { .. }) {
            self.watch.dearest(hit.tag).max(hit.cost)
        } else {
            hit.cost
        };
        let burst = most_of(&lodging.entry, dearest, terms, now);
        let parts = parts_of(&lodging.entry, hit.cost, now);
        let mut bucket = lodging.entry.bucket();
        // Where another worker has taken since, its batch may rely on it.
        if let Some(stretch) = hit.unused.filter(|stretch| stretch.until == bucket) {
            bucket = stretch.paid;
        }
        let bucket = bucket.held_to(quota, burst, now);
        let full_ns = bucket.fill_ns(now);
        let taken = match alone {
            Some(WhenUnsynced::Share) => bucket.take_share(quota, hit.cost, self.pops().unwrap_or(1), now),
            _ => bucket.take_slowly(quota, hit.cost, parts, now),
        };
        // A strict rule's lease says nothing of the bucket that the rule's own choice asks.
        let ratio = if terms.is_strict { None } else { self.thins(hit, &lodging.entry, now) };
        if let Some(ratio) = ratio {
            // A bucket in debt knows when that is paid.
            let debt_ns = if let Take::Short { wait_ns } = taken { wait_ns } else { 0 };
            return judged(hit, Verdict::Thinned { wait_ns: debt_ns.max(thinned_wait_ns(ratio)), full_ns });
        }
        let after = match taken {
            Take::Taken(after) => after,
            Take::Short { wait_ns } => return judged(hit, Verdict::Short { wait_ns, full_ns }),
        };
        hit.after = after;
        let mut entry = after_taking(lodging.entry, after, unheard.as_ref(), hit.cost, now);
        if is_share && let Entry::Watched(watched) = &mut entry {
            self.note_share(watched, hit.cost, terms);
        }
        let put = slot.put_back(&lodging, &entry, now).ok_or(0);
        let evicted =
            match put.or_else(|_| self.crowd(&lodging, &entry, unheard.as_ref(), hit.cost, slot, now)) {
                Ok(evicted) => evicted,
                Err(wait_ns) => return judged(hit, Verdict::Short { wait_ns, full_ns }),
            };
        let standing = Standing::allowed(after, quota, now);
        judged(hit, Verdict::Fits(standing));
        hit.judged.evicted = evicted;
    }

    /// Notes what an even share was charged beyond a burst: it is owed only while out of touch.
    fn note_share(&self, watched: &mut Watched, cost: u32, terms: &Terms) {
        let pops = self.pops().unwrap_or(1);
        if !terms.is_strict && u64::from(pops) * u64::from(cost) > u64::from(terms.quota.burst()) {
            watched.owe_share(cost, pops);
        }
    }

    /// Takes for a key that is to be `watched` and finds no room for that in its slot. It stays cold
    /// within its even share, and takes the place of one that has less to say beyond that. Where there is none, it is
    /// how long the key waits.
    fn crowd(
        &mut self,
        lodging: &Lodging,
        watched: &Entry,
        unheard: Option<&Unheard>,
        cost: u32,
        slot: &mut Slot,
        now: Time,
    ) -> Result<u32, u64> {
        self.counters.add(Event::SyncDropped, 1);
        let (Entry::Cold(cold), Entry::Watched(watched)) = (lodging.entry, watched) else { return Ok(0) };
        let Some(Unheard { quota, parts, .. }) = unheard else { return Ok(0) };
        match cold.share.take_unheard(quota, cost, *parts, now) {
            Ok(share) => {
                let entry = Entry::Cold(Cold { bucket: watched.bucket, share });
                Ok(slot.put(lodging.tag, &entry, now).unwrap_or(0))
            }
            Err(wait_ns) => {
                slot.watch_instead(lodging.tag, watched, now).ok_or(wait_ns.min(CROWDED_WAIT_NS_MAX))
            }
        }
    }

    /// Spends tokens that were paid for.
    fn spend(&self, hit: &Hit, lodging: Lodging, terms: &Terms, slot: &mut Slot, now: Time) -> Judged {
        let (quota, cost) = (&terms.quota, hit.cost);
        let refused = |verdict| Judged::refused(verdict, hit.tag);
        let (on_hand, elsewhere) = match lodging.entry {
            // Of a calendar's quota, what the budget had left when it last answered.
            Entry::Watched(w) => (w.on_hand(now), if terms.is_calendar { w.burst } else { 0 }),
            Entry::Cold(_) => (0, 0),
        };
        // What clients are told is left.
        let told = |left: u32| {
            let bucket = Bucket::FULL.held_to(quota, left.saturating_add(elsewhere), now);
            refused(Verdict::Fits(Standing::allowed(bucket, quota, now)))
        };
        if let (Entry::Watched(mut watched), Some(left)) = (lodging.entry, on_hand.checked_sub(cost)) {
            watched.count_admitted(cost, now);
            // Only the rule's own choice, out of touch with weir-sync, asks the bucket; until it is full the entry
            // keeps its place, and of a calendar's quota that would be a month.
            if terms.when_unsynced != WhenUnsynced::Deny && !terms.is_calendar {
                watched.bucket = watched.bucket.charged(quota, cost, now);
            }
            // The entry is there, so it has its room.
            let _ = slot.put_back(&lodging, &Entry::Watched(watched), now);
            return told(left);
        }
        let in_hand = self.in_hand.iter().find(|in_hand| in_hand.tag == hit.tag && now < in_hand.until);
        let drawn = in_hand.map_or(0, |in_hand| in_hand.tokens);
        if drawn >= cost {
            return told(0);
        }
        let (barred_ns, since_ns) = match lodging.entry {
            Entry::Watched(watched) => (watched.barred_ns(now), watched.barred_since_ns(now)),
            Entry::Cold(_) => (0, 0),
        };
        if self.touch.asked == Asked::NotYet && (barred_ns == 0 || since_ns >= BARRED_NS_MAX) {
            return refused(Verdict::Unpaid);
        }
        // Those that are missing come one after the other.
        let missing = |tokens: u32| quota.token_ns().saturating_mul(u64::from(tokens.saturating_sub(1)));
        let told_ns = if barred_ns > 0 { barred_ns.saturating_add(BAR_STEP_NS) } else { 0 };
        let (wait_ns, full_ns) = match in_hand.map_or(told_ns, |drawn| drawn.more_at.nanos_since(now)) {
            0 => (missing(cost.saturating_add(1)).min(UNPAID_WAIT_NS_MAX), quota.fill_ns()),
            more_ns => {
                let lacks = cost.saturating_sub(on_hand).saturating_sub(drawn);
                (more_ns.saturating_add(missing(lacks)), more_ns.saturating_add(missing(quota.burst())))
            }
        };
        refused(Verdict::Short { wait_ns, full_ns })
    }

    /// The key's admit ratio, if that leaves this request out.
    fn thins(&mut self, hit: &mut Hit, entry: &Entry, now: Time) -> Option<AdmitRatio> {
        let Entry::Watched(watched) = entry else { return None };
        let ratio = watched.ratio_at(now);
        // Judged again, after a conflict, the request has had its turn.
        if ratio == AdmitRatio::ONE || core::mem::replace(&mut hit.thinned, true) {
            return None;
        }
        (!self.watch.is_due(hit.tag, ratio)).then_some(ratio)
    }

    /// Counts the request for its key, once, if the key is watched.
    fn count_if_watched(&mut self, hit: &mut Hit, slot: &Slot, now: Time) {
        if !hit.watched && slot.is_watched(hit.tag) {
            hit.watched = true;
            let is_hot = |slot: &Slot| matches!(slot.get(hit.tag), Some(Entry::Watched(w)) if w.hold_at(now).is_some());
            // Either it or the key that makes room is dropped.
            if !self.count_watched(hit, now) && is_hot(slot) && self.watch.push_out_for(hit.tag) {
                self.watch.touch(hit.tag, hit.rule, self.keys.value(hit.key), hit.slot, hit.cost, now);
            }
        }
    }

    /// Whether there is room to.
    fn count_watched(&mut self, hit: &Hit, now: Time) -> bool {
        let has_room = self.watch.touch(hit.tag, hit.rule, self.keys.value(hit.key), hit.slot, hit.cost, now);
        self.counters.add(Event::SyncDropped, u32::from(!has_room));
        has_room
    }

    /// A key that was refused is past its even share: from now on weir-sync hears of it.
    pub(super) fn watch_refused(
        &mut self,
        hit: &Hit,
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) {
        // What other algorithms count, each POP counts for itself.
        let is_heard = self.exchange.is_some() && self.rule(hit.rule).is_some_and(Rule::is_shared);
        let Some(unheard) = self.unheard(hit.rule).filter(|_| is_heard) else { return };
        let mut loaded = self.load(slots, hit.slot, rooms);
        let Some(Entry::Cold(cold)) = loaded.slot.get(hit.tag) else { return };
        let watched = Entry::Watched(Watched::begin(&cold, &unheard, 0, now));
        // On a conflict the next refusal does it.
        if loaded.slot.put(hit.tag, &watched, now).is_some() && loaded.write(slots).is_ok() {
            self.count_watched(hit, now);
        }
    }

    /// Gives back what the hits took in those of these slots that were written.
    pub(super) fn give_back(
        &mut self,
        written: &[Loaded],
        hits: &[Hit],
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) {
        for index in written.iter().filter(|loaded| loaded.is_known()).map(|loaded| loaded.index) {
            for _ in 0..super::WRITES_MAX {
                let mut loaded = self.load(slots, index, rooms);
                for hit in hits.iter().filter(|hit| hit.slot == index) {
                    self.give_back_one(hit, &mut loaded.slot, now);
                }
                let written = loaded.write(slots);
                rooms.push(loaded.slot);
                match written {
                    Err(WriteError::Conflict) => self.counters.add(Event::CasRetried, 1),
                    Ok(()) | Err(WriteError::Unavailable) => break,
                }
            }
        }
    }

    fn give_back_one(&self, hit: &Hit, slot: &mut Slot, now: Time) {
        // A cost that the response tells took nothing.
        let Some(rule) = self.rule(hit.rule).filter(|rule| rule.after.is_none()) else { return };
        if !rule.is_shared() {
            return Self::give_back_cells(hit, &rule.algorithm, slot, now);
        }
        let (quota, is_strict) = (rule.quota, rule.sharing.strict);
        let Some(mut entry) = slot.get(hit.judged.tag) else { return };
        // Where another worker has taken since, its batch may rely on what was taken here.
        // Its worker may have the rule with other fields, so the quota alone tells; a strict rule's has none.
        let may_rely = !is_strict && requests_max(quota.burst(), quota.token_ns(), 1).is_some();
        if may_rely && entry.bucket() != hit.withdrawn.unwrap_or(hit.after) {
            return;
        }
        let taken = parts_of(&entry, hit.cost, now).saturating_mul(hit.cost);
        let bucket = if may_rely { hit.after } else { entry.bucket() };
        *entry.bucket_mut() = bucket.give_back(&quota, taken);
        match &mut entry {
            Entry::Cold(cold) => cold.share = cold.share.give_back(hit.cost),
            Entry::Watched(watched) => {
                // What is charged already, of a bounded rule, is not taken back; a strict one's was paid for.
                let least = if is_strict { 0 } else { watched.charged };
                watched.admitted = watched.admitted.saturating_sub(hit.cost).max(least);
            }
        }
        // The entry is there, so it has its room.
        let _ = slot.put(hit.judged.tag, &entry, now);
    }
}

/// The entry once `cost` tokens are taken: a cold key that leaves its even share of what is given unheard becomes
/// watched. Where that is not said, nobody hears of any key.
#[inline]
pub(super) fn after_taking(
    entry: Entry,
    after: Bucket,
    unheard: Option<&Unheard>,
    cost: u32,
    now: Time,
) -> Entry {
    match entry {
        Entry::Watched(mut watched) => {
            watched.bucket = after;
            watched.count_admitted(cost, now);
            Entry::Watched(watched)
        }
        Entry::Cold(cold) => {
            let Some(unheard) = unheard else { return Entry::Cold(Cold { bucket: after, ..cold }) };
            if let Some(share) = cold.share.take(&unheard.quota, cost, unheard.parts, now) {
                return Entry::Cold(Cold { bucket: after, share });
            }
            let begun = Watched::begin(&cold, unheard, cost, now);
            Entry::Watched(Watched { bucket: after, ..begun })
        }
    }
}

/// For how long it is known that a calendar's quota has no tokens for the key of `entry`, if so.
fn barred_ns(entry: &Entry, terms: &Terms, now: Time) -> Option<u64> {
    let Entry::Watched(watched) = entry else { return None };
    Some(watched.barred_ns(now)).filter(|wait_ns| terms.is_calendar && *wait_ns > 0)
}

/// The most tokens that the entry's bucket may hold at `now`. Where it may hold any, it may hold those that the
/// `dearest` of its requests costs: else the fleet's shares would never let that through.
fn most_of(entry: &Entry, dearest: u32, terms: &Terms, now: Time) -> u32 {
    let held = entry.hold_at(now).filter(|_| !terms.is_strict);
    let burst = held.map_or(terms.local_burst, |(burst, _)| burst);
    if burst == 0 { 0 } else { burst.max(dearest) }
}

/// Into how many parts the rate is cut for a request of `cost` tokens: it is waited for as long as for one of a
/// single token, if not longer at the whole rate.
pub(super) fn parts_of(entry: &Entry, cost: u32, now: Time) -> u32 {
    entry.hold_at(now).map_or(1, |(_, parts)| (parts / cost.max(1)).max(1))
}

/// What a key with this admit ratio is told to wait, if it is not in debt: by then, should its client
/// stop, the budget lets everything through again. The surplus or lack of a budget is made up over one
/// second, so a ratio near zero needs that second and one near 1 hardly any.
fn thinned_wait_ns(ratio: AdmitRatio) -> u64 {
    let missing = u64::from(AdmitRatio::ONE.bits() - ratio.bits());
    THINNED_WAIT_NS + SECOND_NS * missing / u64::from(AdmitRatio::ONE.bits())
}
