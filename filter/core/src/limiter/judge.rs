//! Judging hits on a slot that was read: what each takes, in the slot's copy.

use super::exchange::Exchange;
use super::{Hit, Limiter, RuleTags};
use crate::bucket::{Bucket, Take};
use crate::counters::Event;
use crate::quota::Quota;
use crate::slot::{Cold, Entry, Slot, Tag, Watched};
use crate::table::{Loaded, Slots, WriteError};
use crate::time::{SECOND_NS, Time};
use crate::wire::AdmitRatio;

/// The least that a thinned key is told to wait: by then a new grant may have come.
const THINNED_WAIT_NS: u64 = SECOND_NS;

/// What a hit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has its token; this is the bucket without it.
    Fits(Bucket),
    /// Its bucket has none.
    Short { wait_ns: u64, full_ns: u64 },
    /// Its admit ratio leaves this request out.
    Thinned { wait_ns: u64, full_ns: u64 },
}

/// What judging a hit found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// The tag its bucket lives under: its own, or an overflow bucket's.
    pub(super) tag: Tag,
    /// Spent entries that made room for it.
    pub(super) evicted: u32,
}

impl Judged {
    pub(super) const NOT_YET: Self =
        Self { verdict: Verdict::Fits(Bucket::FULL), tag: Tag::of_key(0, 0), evicted: 0 };
}

impl Limiter {
    /// Judges every hit whose bucket lies in `loaded`, taking from the copy as it goes. Whether all
    /// fit; if not, the copy must not be written.
    pub(super) fn judge_slot(&mut self, loaded: &mut Loaded, hits: &mut [Hit], now: Time) -> bool {
        let mut fits = true;
        for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
            let tags = self.tags.get(usize::from(hit.rule)).copied();
            let quota = self.rule(hit.rule).map(|rule| rule.quota);
            let (Some(tags), Some(quota)) = (tags, quota) else { continue };
            // Once before, for a key that is watched, and once after, for one that just became so.
            self.count_if_watched(hit, &loaded.slot, now);
            hit.judged = self.judge(hit, tags, &quota, &mut loaded.slot, now);
            self.count_if_watched(hit, &loaded.slot, now);
            fits &= matches!(hit.judged.verdict, Verdict::Fits(_));
        }
        fits
    }

    fn judge(&mut self, hit: &mut Hit, tags: RuleTags, quota: &Quota, slot: &mut Slot, now: Time) -> Judged {
        let lodging = slot.lodge(hit.tag, tags.overflow, now);
        let refused = |verdict| Judged { verdict, tag: lodging.tag, evicted: 0 };
        let full_ns = lodging.entry.bucket().fill_ns(now);
        let taken = lodging.entry.bucket().take(quota, 1, now);
        if self.thins(hit, &lodging.entry, now) {
            // A bucket in debt knows when that is paid; else the ratio may let the next one through.
            let wait_ns = if let Take::Short { wait_ns } = taken { wait_ns } else { 0 };
            return refused(Verdict::Thinned { wait_ns: wait_ns.max(THINNED_WAIT_NS), full_ns });
        }
        let after = match taken {
            Take::Taken(after) => after,
            Take::Short { wait_ns } => return refused(Verdict::Short { wait_ns, full_ns }),
        };
        let entry = self.after_taking(lodging.entry, after, lodging.tag, quota, now);
        let evicted = slot.put(lodging.tag, &entry, now).unwrap_or_else(|| {
            // A key that begins to be watched needs more room; without it, it stays as it was.
            self.counters.add(Event::SyncDropped, 1);
            let mut unchanged = lodging.entry;
            *unchanged.bucket_mut() = after;
            slot.put(lodging.tag, &unchanged, now).unwrap_or(0)
        });
        Judged { verdict: Verdict::Fits(after), tag: lodging.tag, evicted }
    }

    /// Whether the key's admit ratio leaves this request out.
    fn thins(&mut self, hit: &mut Hit, entry: &Entry, now: Time) -> bool {
        let Entry::Watched(watched) = entry else { return false };
        let ratio = watched.ratio_at(now);
        // Judged again, after a conflict, the request has had its turn.
        if ratio == AdmitRatio::ONE || core::mem::replace(&mut hit.thinned, true) {
            return false;
        }
        !self.watch.is_due(hit.tag, ratio)
    }

    /// Counts the request for its key, once, if the key is watched.
    fn count_if_watched(&mut self, hit: &mut Hit, slot: &Slot, now: Time) {
        if !hit.watched && matches!(slot.get(hit.tag), Some(Entry::Watched(_))) {
            hit.watched = true;
            self.count_watched(hit, now);
        }
    }

    fn count_watched(&mut self, hit: &Hit, now: Time) {
        if !self.watch.touch(hit.tag, hit.rule, &hit.value, hit.slot, now) {
            self.counters.add(Event::SyncDropped, 1);
        }
    }

    /// The entry once the token is taken: a cold key that leaves its even share becomes watched.
    fn after_taking(&self, entry: Entry, after: Bucket, tag: Tag, quota: &Quota, now: Time) -> Entry {
        match entry {
            Entry::Watched(mut watched) => {
                watched.bucket = after;
                watched.count_admitted(1, now);
                Entry::Watched(watched)
            }
            Entry::Cold(cold) => {
                let Some(exchange) = &self.exchange else {
                    return Entry::Cold(Cold { bucket: after, ..cold });
                };
                match cold.share.take(quota, 1, exchange.pops(), now) {
                    Some(share) => Entry::Cold(Cold { bucket: after, share }),
                    None if tag.is_overflow() => Entry::Cold(Cold { bucket: after, ..cold }),
                    None => {
                        let begun = Watched::begin(&cold, quota, exchange.pops(), 1, now);
                        Entry::Watched(Watched { bucket: after, ..begun })
                    }
                }
            }
        }
    }

    /// A key that was refused is past its even share: from now on weir-sync hears of it.
    pub(super) fn watch_refused(
        &mut self,
        hit: &Hit,
        slots: &mut dyn Slots,
        bytes: &mut alloc::vec::Vec<u8>,
        now: Time,
    ) {
        let Some(pops) = self.exchange.as_ref().map(Exchange::pops) else { return };
        let Some(quota) = self.rule(hit.rule).map(|rule| rule.quota) else { return };
        let mut loaded = self.load(slots, hit.slot, bytes);
        let Some(Entry::Cold(cold)) = loaded.slot.get(hit.tag) else { return };
        let watched = Entry::Watched(Watched::begin(&cold, &quota, pops, 0, now));
        // On a conflict the next refusal does it.
        if loaded.slot.put(hit.tag, &watched, now).is_some() && loaded.write(slots).is_ok() {
            self.count_watched(hit, now);
        }
    }

    /// Gives back what the hits took in slots that were already written.
    pub(super) fn give_back(
        &mut self,
        written: &[Loaded],
        hits: &[Hit],
        slots: &mut dyn Slots,
        bytes: &mut alloc::vec::Vec<u8>,
        now: Time,
    ) {
        for index in written.iter().map(|loaded| loaded.index) {
            for _ in 0..super::WRITES_MAX {
                let mut loaded = self.load(slots, index, bytes);
                for hit in hits.iter().filter(|hit| hit.slot == index) {
                    self.give_back_one(hit, &mut loaded.slot, now);
                }
                match loaded.write(slots) {
                    Err(WriteError::Conflict) => self.counters.add(Event::CasRetried, 1),
                    Ok(()) | Err(WriteError::Unavailable) => break,
                }
            }
        }
    }

    fn give_back_one(&self, hit: &Hit, slot: &mut Slot, now: Time) {
        let quota = self.rule(hit.rule).map(|rule| rule.quota);
        let (Some(quota), Some(mut entry)) = (quota, slot.get(hit.judged.tag)) else { return };
        *entry.bucket_mut() = entry.bucket().give_back(&quota, 1);
        if let Entry::Watched(watched) = &mut entry {
            watched.admitted = watched.admitted.saturating_sub(1).max(watched.charged);
        }
        // The entry is there, so it has its room.
        let _ = slot.put(hit.judged.tag, &entry, now);
    }
}
