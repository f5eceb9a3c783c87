//! Hits of rules with other algorithms than the token bucket. Their state is in cells, in the same slots.

use crate::algorithms::{self, Admission, CELLS_MAX, Cell, NEVER_NS};
use crate::check::decision::{Hit, HitDecision, HitResult};
use crate::check::terms::RuleTerms;
use crate::table::slot::{Cold, Entry, Slot, Tag};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::Algorithm;

/// Wait for a client whose cells find no room, in nanoseconds.
const ROOM_WAIT_NS: u64 = SECOND_NS;

pub(crate) struct Cells {
    /// Tag of the first cell. `Tag::beside` derives those of the others.
    pub(crate) tag: Tag,
    list: [Cell; CELLS_MAX],
    len: usize,
}

impl Cells {
    /// The cells of the key `tag`, or the rule's overflow cell if the slot has no room for them. While that cell is not
    /// empty, keys without cells keep using it, so a client that drained it gets no fresh cell once there is room.
    pub(super) fn find_or_new(slot: &Slot, tag: Tag, overflow: Tag, algorithm: &Algorithm, now: Time) -> Self {
        let is_overflowing = || slot.get(overflow).is_some_and(|entry| !entry.bucket().is_full(now));
        if Self::is_known(slot, tag, algorithm) || slot.has_room_for_cell(tag, now) && !is_overflowing() {
            return Self::at(slot, tag, algorithm.cells());
        }
        Self::at(slot, overflow, 1)
    }

    /// True if the slot has any cell of the key. A log's first cell may be spent while others are not.
    fn is_known(slot: &Slot, tag: Tag, algorithm: &Algorithm) -> bool {
        (0u8..).take(algorithm.cells()).any(|i| slot.get(tag.beside(i)).is_some())
    }

    /// The `len` cells at `tag`; new cells where the slot has none.
    pub(crate) fn at(slot: &Slot, tag: Tag, len: usize) -> Self {
        let mut list = [Cell::NEW; CELLS_MAX];
        for (i, cell) in (0u8..).zip(list.iter_mut().take(len)) {
            if let Some(Entry::Cold(cold)) = slot.get(tag.beside(i)) {
                *cell = cold.cell();
            }
        }
        Self { tag, list, len }
    }

    pub(crate) fn one(tag: Tag, cell: Cell) -> Self {
        let mut list = [Cell::NEW; CELLS_MAX];
        if let Some(first) = list.first_mut() {
            *first = cell;
        }
        Self { tag, list, len: 1 }
    }

    pub(crate) fn first(&self) -> Cell {
        self.list.first().copied().unwrap_or(Cell::NEW)
    }

    pub(crate) fn all(&self) -> &[Cell] {
        self.list.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Cell] {
        self.list.get_mut(..self.len).unwrap_or_default()
    }

    /// Stores the cells that are not empty or already in the slot. Returns the number of spent entries that were
    /// dropped for them; `None` if there is no room for all, and then the slot may contain some of them.
    pub(crate) fn store(&self, slot: &mut Slot, now: Time) -> Option<u32> {
        let mut dropped = 0;
        for (i, cell) in (0u8..).zip(self.all()) {
            let tag = self.tag.beside(i);
            if *cell != Cell::NEW || slot.get(tag).is_some() {
                dropped += slot.put(tag, &Entry::Cold(Cold::of_cell(*cell)), now)?;
            }
        }
        Some(dropped)
    }
}

pub(crate) fn evaluate_cells(
    hit: &Hit,
    terms: &RuleTerms,
    algorithm: &Algorithm,
    slot: &mut Slot,
    now: Time,
) -> HitResult {
    let own = Cells::find_or_new(slot, hit.tag, terms.overflow, algorithm, now);
    let tag = own.tag;
    // Of several cells, some may be stored before the room runs out, so a copy is needed.
    let before = (own.len > 1).then(|| slot.clone());
    if let Some(result) = take_cells(own, hit, algorithm, slot, now) {
        return result;
    }
    // A log has no room to grow. A key with cells of its own does not move to the overflow cell.
    if let Some(before) = before {
        *slot = before;
    }
    let no_room = HitDecision::Short { wait_ns: ROOM_WAIT_NS };
    if tag.is_overflow() || Cells::is_known(slot, tag, algorithm) {
        return HitResult::refused(no_room, tag);
    }
    let shared = Cells::at(slot, terms.overflow, 1);
    let result = take_cells(shared, hit, algorithm, slot, now);
    result.unwrap_or(HitResult::refused(no_room, terms.overflow))
}

/// Takes the hit's cost from `cells`; `None` if the slot has no room for the result.
pub(crate) fn take_cells(
    mut cells: Cells,
    hit: &Hit,
    algorithm: &Algorithm,
    slot: &mut Slot,
    now: Time,
) -> Option<HitResult> {
    let algorithm = &algorithm_at(cells.tag, algorithm);
    let taken = algorithms::take(algorithm, cells.all_mut(), hit.tag.bits(), hit.cost, now);
    let status = algorithms::status(algorithm, cells.all(), now);
    let is_shared = cells.tag.is_overflow();
    let result = |decision| HitResult { is_shared, ..HitResult::refused(decision, cells.tag) };
    match taken {
        Admission::Taken(taken) => {
            let evicted = cells.store(slot, now)?;
            Some(HitResult { evicted, taken: Some(taken), ..result(HitDecision::Fits(status)) })
        }
        Admission::Short { wait_ns } => {
            // The same wait as for a bucket: until all tokens are available.
            let wait_ns = if wait_ns == NEVER_NS { status.full_ns } else { wait_ns };
            Some(result(HitDecision::Short { wait_ns }))
        }
    }
}

/// Gives the tokens that `hit` took back to the cells at `tag`, in the copy of the slot.
pub(crate) fn give_back_cells(hit: &Hit, tag: Tag, algorithm: &Algorithm, slot: &mut Slot, now: Time) {
    let Some(taken) = hit.result.taken else { return };
    let algorithm = &algorithm_at(tag, algorithm);
    let mut cells = Cells::at(slot, tag, algorithm.cells());
    algorithms::give_back(algorithm, cells.all_mut(), taken.receipt, hit.cost, now);
    // Always fits: the cells exist already.
    let _ = cells.store(slot, now);
}

/// The algorithm that counts at `tag`. All keys share one overflow cell, so a log counts as a window there.
pub(crate) fn algorithm_at(tag: Tag, algorithm: &Algorithm) -> Algorithm {
    if tag.is_overflow() { algorithm.in_one_cell() } else { *algorithm }
}
