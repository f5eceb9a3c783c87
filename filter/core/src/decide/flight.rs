//! Requests in flight under a rule that the whole fleet counts.
//!
//! A key's entry holds the POP's places. `charged - admitted` places are free. The `admitted` ones are taken
//! by requests in flight or were given back. A cell beside the entry counts the requests in flight, as for a
//! rule that each POP counts by itself, so a request whose end is never seen expires. A report states the
//! difference between `admitted` and that cell: the places given back.

use super::cells::Cells;
use super::hit::Hit;
use super::hit_result::{HitDecision, HitResult};
use super::terms::RuleTerms;
use crate::buckets::BucketStatus;
use crate::buckets::algorithm::concurrency::{self, RETRY_NS};
use crate::limiter::Limiter;
use crate::table::slot::{Entry, Placement, Slot, Tag};
use weir_protocol::time::Time;
use weir_rules::algorithm::{Algorithm, Concurrency, LeakyBucket};

/// Tag of the cell that counts the requests in flight of the key `tag`.
pub(crate) const fn cell_of(tag: Tag) -> Tag {
    tag.beside(1)
}

/// Number of requests of the key `tag` in flight.
pub(crate) fn in_flight(slot: &Slot, tag: Tag, flight: &Concurrency, now: Time) -> u32 {
    let Some(Entry::Cold(cold)) = slot.get(cell_of(tag)) else { return 0 };
    concurrency::in_flight(flight, cold.cell(), now)
}

/// Frees the places of `ended` requests of the key `tag`.
pub(crate) fn free(slot: &mut Slot, tag: Tag, ended: u32, now: Time) {
    if let Some(Entry::Watched(mut watched)) = slot.get(tag) {
        watched.admitted = watched.admitted.saturating_sub(ended);
        // Always fits: the entry exists already.
        let _ = slot.put(tag, &Entry::Watched(watched), now);
    }
}

impl Limiter {
    /// Judges a hit while the POP is offline, under a rule whose queue or requests in flight the fleet
    /// counts. Uses this POP's own count against the whole limit, or against its fair share of it if
    /// `is_share`. None for other rules.
    #[inline(never)]
    pub(super) fn evaluate_alone(
        &self,
        hit: &Hit,
        lodging: &Placement,
        terms: &RuleTerms,
        is_share: bool,
        slot: &mut Slot,
        now: Time,
    ) -> Option<HitResult> {
        let pops = if is_share { self.pops().unwrap_or(1) } else { 1 };
        let algorithm = match terms.in_flight {
            _ if terms.has_turns => Algorithm::LeakyBucket(LeakyBucket::of(terms.quota).shared_by(pops)),
            flight => Algorithm::Concurrency(flight?.shared_by(pops)),
        };
        if let Entry::Watched(mut watched) = lodging.entry {
            watched.spend(hit.cost, now);
            // Always fits: the entry exists already.
            let _ = slot.put_back(lodging, &Entry::Watched(watched), now);
        }
        Some(Self::begin(hit, &algorithm, u32::MAX, slot, now))
    }

    /// Puts the request of `hit` in flight, or gives it a turn. Its place is taken already, and `left` places
    /// are free after that.
    pub(crate) fn begin(
        hit: &Hit,
        algorithm: &Algorithm,
        left: u32,
        slot: &mut Slot,
        now: Time,
    ) -> HitResult {
        let cells = Cells::at(slot, cell_of(hit.tag), 1);
        let begun = Self::take_cells(cells, hit, algorithm, slot, now);
        let no_room = HitDecision::Short { wait_ns: RETRY_NS };
        let mut judged = begun.unwrap_or(HitResult::refused(no_room, hit.tag));
        judged.tag = hit.tag;
        if let HitDecision::Fits(standing) = &mut judged.verdict {
            *standing = BucketStatus { remaining: left.min(standing.remaining), ..*standing };
        }
        judged
    }
}
