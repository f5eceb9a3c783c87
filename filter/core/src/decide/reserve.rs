//! Tokens that a request reserves until its cost is known.
//!
//! The bucket is charged at once. A cell beside it counts the reserved tokens, and that part of the bucket
//! does not refill meanwhile. Otherwise the bucket could refill first and get the tokens back afterwards, and
//! then admit more than a burst at once (I3). Keys that are counted in cells need none of this, because
//! windows and logs record what they still hold.

use super::cells::Cells;
use super::end_action::{EndAction, ReservedTokens};
use super::evaluate::rate_divisor_of;
use super::hit::Hit;
use super::hit_result::HitDecision;
use super::terms::RuleTerms;
use crate::buckets::Bucket;
use crate::buckets::algorithm::{Admitted, Cell, Receipt, reserved};
use crate::limiter::Limiter;
use crate::table::LoadedSlot;
use crate::table::slot::{Entry, Slot, Tag, Watched};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

impl Limiter {
    /// Judges a hit on a bucket of which requests may have reserved tokens. Reserves what the hit takes, if
    /// its rule or its host asks for that.
    pub(super) fn evaluate_reserving(
        &mut self,
        hit: &mut Hit,
        terms: &RuleTerms,
        slot: &mut Slot,
        now: Time,
    ) {
        let cell = hold(slot, hit.tag, &terms.quota, now);
        self.evaluate(hit, terms, slot, now);
        let is_reserving = terms.reserves || self.is_reserving;
        if !is_reserving || !matches!(hit.judged.verdict, HitDecision::Fits(_)) {
            return;
        }
        let parts = rate_divisor_of(&slot.find_or_new(hit.tag, now).entry, hit.cost, now);
        let (cell, receipt) = reserved::begin(cell, hit.tag.bits(), hit.cost.saturating_mul(parts), now);
        // Without room for the cell, the tokens stay taken.
        let is_stored = Cells::one(hit.tag.beside(1), cell).store(slot, now).is_some();
        hit.judged.taken = is_stored.then_some(Admitted { receipt, hold_ns: 0 });
    }
}

impl ReservedTokens {
    /// The reservation of `hit`; nothing if its slot is not among those `written`.
    pub(super) fn by(hit: &Hit, written: &[LoadedSlot], now: Time) -> Self {
        let is_written = |loaded: &&LoadedSlot| loaded.index == hit.slot && loaded.is_known();
        written.iter().find(is_written).map_or(Self::NOTHING, |loaded| {
            let parts = rate_divisor_of(&loaded.slot.find_or_new(hit.judged.tag, now).entry, hit.cost, now);
            Self {
                tokens: hit.cost,
                parts,
                receipt: hit.judged.taken.map(|taken| taken.receipt),
                epoch: None,
            }
        })
    }
}

/// Keeps the reserved part of the key's bucket from refilling. Call it before any other change of the bucket.
/// Returns the cell that counts the reservations.
pub(super) fn hold(slot: &mut Slot, tag: Tag, quota: &Quota, now: Time) -> Cell {
    let cell = Cells::at(slot, tag.beside(1), 1).first();
    let held = reserved::held(cell, now);
    if held > 0 {
        let mut lodging = slot.find_or_new(tag, now);
        let least = Bucket::full_at(now + quota.token_ns().saturating_mul(held));
        let bucket = lodging.entry.bucket_mut();
        *bucket = least.max(*bucket);
        // Always fits: a slot has room for any cold bucket, and a watched entry exists already.
        let _ = slot.put_back(&lodging, &lodging.entry, now);
    }
    cell
}

/// Releases a reservation of `tokens`, charged at the rate divisor `parts`, from the cell `cell` of the key
/// `tag`. Returns the number of tokens that were still reserved.
pub(super) fn end(
    cell: Cell,
    slot: &mut Slot,
    tag: Tag,
    (receipt, tokens, parts): (Receipt, u32, u32),
    now: Time,
) -> u32 {
    let after = reserved::end(cell, receipt, tokens.saturating_mul(parts), now);
    // Always fits: the cell exists already.
    let _ = Cells::one(tag.beside(1), after).store(slot, now);
    let ended = reserved::held(cell, now).saturating_sub(reserved::held(after, now));
    u32::try_from(ended / u64::from(parts.max(1))).unwrap_or(u32::MAX)
}

/// Gives `tokens` of the reservation of `done` back to its bucket.
pub(super) fn return_to_bucket(
    done: &EndAction,
    reserved: ReservedTokens,
    tokens: u32,
    quota: &Quota,
    slot: &mut Slot,
    now: Time,
) -> Option<u32> {
    let mut lodging = slot.find_or_new(done.place.tag, now);
    give_back_tokens(&mut lodging.entry, quota, tokens, reserved.parts, |_| 0);
    if let Entry::Watched(watched) = &mut lodging.entry {
        // Otherwise `charged - admitted` tokens would count as leased if the rule became strict.
        watched.charged = watched.charged.min(watched.admitted);
    }
    slot.put_back(&lodging, &lodging.entry, now)
}

/// Gives back `tokens` that were taken from an entry at the rate divisor `parts`. A watched key's admitted
/// count goes down accordingly, but not below `least`. Budgets keep the highest count of an epoch, so if it
/// falls below the charged count, the key pays the difference with what it admits next.
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
