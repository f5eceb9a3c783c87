//! What a request reserves until its response tells what it cost.
//!
//! A bucket is charged for it at once. Beside the bucket, a cell counts what is reserved: so much of the bucket does not
//! refill meanwhile. Otherwise what comes back might have refilled before, and then more than a burst could pass at once
//! (I3). Keys counted in cells need none of this, because windows and logs say what they still hold.

use super::afterwards::{Afterwards, Reserved};
use super::cells::Cells;
use super::hit::Hit;
use super::judge::parts_of;
use super::judged::Verdict;
use super::terms::RuleTerms;
use crate::buckets::Bucket;
use crate::buckets::algorithm::{Cell, Receipt, Taken, reserved};
use crate::limiter::Limiter;
use crate::table::Loaded;
use crate::table::slot::{Entry, Slot, Tag, Watched};
use weir_wire::quota::Quota;
use weir_wire::time::Time;

impl Limiter {
    /// Judges a hit of a rule with a bucket, of which requests may hold some; what it takes is reserved, if its rule or its
    /// host says so.
    pub(super) fn judge_reserving(&mut self, hit: &mut Hit, terms: &RuleTerms, slot: &mut Slot, now: Time) {
        let cell = hold(slot, hit.tag, &terms.quota, now);
        self.judge(hit, terms, slot, now);
        let is_reserving = terms.reserves || self.is_reserving;
        if !is_reserving || !matches!(hit.judged.verdict, Verdict::Fits(_)) {
            return;
        }
        let parts = parts_of(&slot.lodge(hit.tag, now).entry, hit.cost, now);
        let (cell, receipt) = reserved::begin(cell, hit.tag.bits(), hit.cost.saturating_mul(parts), now);
        // If the slot has no room for the cell, nothing of it comes back.
        let is_stored = Cells::one(hit.tag.beside(1), cell).store(slot, now).is_some();
        hit.judged.taken = is_stored.then_some(Taken { receipt, hold_ns: 0 });
    }
}

impl Reserved {
    /// What `hit` took, if its slot is among those that were `written`.
    pub(super) fn by(hit: &Hit, written: &[Loaded], now: Time) -> Self {
        let is_written = |loaded: &&Loaded| loaded.index == hit.slot && loaded.is_known();
        written.iter().find(is_written).map_or(Self::NOTHING, |loaded| {
            let parts = parts_of(&loaded.slot.lodge(hit.judged.tag, now).entry, hit.cost, now);
            Self {
                tokens: hit.cost,
                parts,
                receipt: hit.judged.taken.map(|taken| taken.receipt),
                epoch: None,
            }
        })
    }
}

/// Keeps what is reserved of the bucket of the key `tag` from refilling, before anything else happens to it. Returns the
/// cell that counts it.
pub(super) fn hold(slot: &mut Slot, tag: Tag, quota: &Quota, now: Time) -> Cell {
    let cell = Cells::at(slot, tag.beside(1), 1).first();
    let held = reserved::held(cell, now);
    if held > 0 {
        let mut lodging = slot.lodge(tag, now);
        let least = Bucket::full_at(now + quota.token_ns().saturating_mul(held));
        let bucket = lodging.entry.bucket_mut();
        *bucket = least.max(*bucket);
        // There is always room for a cold bucket, and a watched one has its own.
        let _ = slot.put_back(&lodging, &lodging.entry, now);
    }
    cell
}

/// Of the tokens of the key `tag` that `cell` counts, so many, taken `parts` times, are reserved no more. Returns how many
/// of them still were.
pub(super) fn end(
    cell: Cell,
    slot: &mut Slot,
    tag: Tag,
    (receipt, tokens, parts): (Receipt, u32, u32),
    now: Time,
) -> u32 {
    let after = reserved::end(cell, receipt, tokens.saturating_mul(parts), now);
    // The cell is there, so it has its room.
    let _ = Cells::one(tag.beside(1), after).store(slot, now);
    let ended = reserved::held(cell, now).saturating_sub(reserved::held(after, now));
    u32::try_from(ended / u64::from(parts.max(1))).unwrap_or(u32::MAX)
}

/// Gives `tokens` of what the request of `done` `reserved` back to its bucket.
pub(super) fn return_to_bucket(
    done: &Afterwards,
    reserved: Reserved,
    tokens: u32,
    quota: &Quota,
    slot: &mut Slot,
    now: Time,
) -> Option<u32> {
    let mut lodging = slot.lodge(done.place.tag, now);
    give_back_tokens(&mut lodging.entry, quota, tokens, reserved.parts, |_| 0);
    if let Entry::Watched(watched) = &mut lodging.entry {
        // What is charged and not admitted would be on hand, should its rule become strict.
        watched.charged = watched.charged.min(watched.admitted);
    }
    slot.put_back(&lodging, &lodging.entry, now)
}

/// Gives `tokens` back to an entry from which they were taken `parts` times. What a watched key admitted goes down to what
/// `least` says. Budgets keep the highest count of an epoch, so if it goes below what was charged, the key pays with the
/// difference for what it admits here next.
pub(super) fn give_back_tokens(
    entry: &mut Entry,
    quota: &Quota,
    tokens: u32,
    parts: u32,
    least: impl FnOnce(&Watched) -> u32,
) {
    *entry.bucket_mut() = entry.bucket().give_back(quota, parts.saturating_mul(tokens));
    match entry {
        Entry::Cold(cold) => cold.share = cold.share.give_back(tokens),
        Entry::Watched(watched) => {
            watched.admitted = watched.admitted.saturating_sub(tokens).max(least(watched));
        }
    }
}
