//! What POPs are told without asking, until they are known to have heard it.
//!
//! A reply that pushes something is a *letter*, with the number of the report that it answers. Its worker's next
//! reports say up to which report it no longer waits for replies, and which was the latest whose reply it gave up on
//! ([`weir_wire::messages::Replies`]): so the letter was heard, or lost, or is under way. What a lost letter said is
//! told again with the next reply to that POP, whichever worker gets it. A letter of which nothing was heard for
//! [`LOST_NS`] counts as lost, too, as its worker may be gone.
//!
//! [`Told`] keeps the letters, and some [`Notes`] of what each POP holds: the hot keys it was granted, how far it has
//! heard of bans. A POP that lost its table has lost what it held, and is told all of it again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::mem;

use weir_wire::messages::{KEYS_MAX, POPS_MAX, RULES_MAX, Replies, Report};
use weir_wire::time::{SECOND_NS, Time};

/// The most notes, of all POPs together: about 80 MB. Beyond it the POP silent for longest is told everything anew.
pub const TOLD_MAX: usize = 1 << 20;
/// A letter of which nothing is heard for so long counts as lost, in nanoseconds.
pub const LOST_NS: u64 = 2 * SECOND_NS;
/// The most letters to a POP that are under way; beyond it the first counts as lost.
const LETTERS_MAX: usize = 64;

/// What one POP was told of one kind of news.
pub(crate) trait Notes: Default {
    /// What is to be taken back if a letter is lost.
    type Letter: Debug;

    /// Counts what `letter` told as not told.
    fn take_back(&mut self, letter: Self::Letter);

    /// Counts all of it as not told.
    fn forget(&mut self);

    /// How many notes there are.
    fn len(&self) -> usize;
}

/// What the POPs were told.
#[derive(Debug)]
pub(crate) struct Told<N: Notes> {
    pops: BTreeMap<String, Pop<N>>,
    /// Notes of all POPs.
    len: usize,
}

#[derive(Debug)]
struct Pop<N: Notes> {
    table: u32,
    heard_at: Time,
    letters: Vec<Letter<N::Letter>>,
    notes: N,
}

#[derive(Debug)]
struct Letter<T> {
    worker: u64,
    sequence: u64,
    sent_at: Time,
    told: T,
}

impl<N: Notes> Default for Told<N> {
    fn default() -> Self {
        Self { pops: BTreeMap::new(), len: 0 }
    }
}

impl<N: Notes> Told<N> {
    /// Writes the reply to `report` with `write`, which gets the notes of its POP, and adds at most [`KEYS_MAX`]. What it
    /// returns second is taken back if the reply is lost; `None` if nothing is told. A report that `is_repeated` was
    /// answered before, and is told nothing: nobody would know which answer was heard.
    pub(crate) fn tell<T: Default>(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
        write: impl FnOnce(&mut N) -> (T, Option<N::Letter>),
    ) -> T {
        self.make_room(&report.pop);
        let pop = self.pops.entry(report.pop.clone()).or_insert_with(|| Pop::new(report.table));
        self.len -= pop.notes.len();
        pop.hear(now, report);
        let (text, told) = if is_repeated { Default::default() } else { write(&mut pop.notes) };
        let Report { worker, sequence, .. } = *report;
        pop.letters.extend(told.map(|told| Letter { worker, sequence, sent_at: now, told }));
        self.len += pop.notes.len();
        text
    }

    /// Shortens all notes with `shorten`, and forgets POPs that have none left and were silent for a second.
    pub(crate) fn sweep(&mut self, now: Time, shorten: impl Fn(&mut N)) {
        self.pops.values_mut().for_each(|pop| shorten(&mut pop.notes));
        self.pops.retain(|_, pop| pop.notes.len() > 0 || now.nanos_since(pop.heard_at) < SECOND_NS);
        self.len = self.pops.values().map(|pop| pop.notes.len()).sum();
    }

    /// Notes of all POPs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// While there are too many POPs or notes, forgets the POP that has been silent for longest, but not `pop`.
    fn make_room(&mut self, pop: &str) {
        let is_new = !self.pops.contains_key(pop);
        while self.len + KEYS_MAX > TOLD_MAX || is_new && self.pops.len() >= POPS_MAX as usize {
            let others = self.pops.iter().filter(|(name, _)| *name != pop);
            let silent = others.min_by_key(|(_, pop)| pop.heard_at).map(|(name, _)| name.clone());
            let Some(silent) = silent else { break };
            self.len -= self.pops.remove(&silent).map_or(0, |pop| pop.notes.len());
        }
    }
}

impl<N: Notes> Pop<N> {
    fn new(table: u32) -> Self {
        Self { table, heard_at: Time::ZERO, letters: Vec::new(), notes: N::default() }
    }

    /// Takes in what `report` says of the letters.
    fn hear(&mut self, now: Time, report: &Report) {
        self.heard_at = now;
        if self.table != report.table {
            self.table = report.table;
            self.letters.clear();
            self.notes.forget();
        }
        let Replies { done, lost } = report.replies;
        let surplus = self.letters.len().saturating_sub(LETTERS_MAX - 1);
        for (at, letter) in mem::take(&mut self.letters).into_iter().enumerate() {
            let is_its_own = letter.worker == report.worker;
            let is_done = is_its_own && letter.sequence <= done;
            if is_done && letter.sequence > lost {
                continue;
            }
            // A report that comes twice is answered twice, and only one of the answers is heard.
            let is_answer_to_it = is_its_own && letter.sequence == report.sequence;
            let is_late = at < surplus || now.nanos_since(letter.sent_at) >= LOST_NS;
            if is_done || is_answer_to_it || is_late {
                self.notes.take_back(letter.told);
            } else {
                self.letters.push(letter);
            }
        }
    }
}

/// The index of `rule` in `rules`; adds it if there is room.
pub(crate) fn index_of(rule: &str, rules: &mut Vec<String>) -> Option<u16> {
    let index = rules.iter().position(|known| known == rule).unwrap_or(rules.len());
    if index == RULES_MAX {
        return None;
    }
    if index == rules.len() {
        rules.push(rule.into());
    }
    u16::try_from(index).ok()
}
