//! Messages pushed to POPs until they are known to have received them.
//!
//! A reply that pushes something is a *letter*, with the number of the report that it answers. Its worker's next
//! reports name the latest report whose reply it no longer waits for, and the latest whose reply it gave up on
//! ([`weir_protocol::messages::Replies`]). So a letter has arrived, is lost, or is under way. A lost one is sent again
//! with the next reply to that POP. One without a confirmation for [`LOST_NS`] also counts as lost, as its worker may
//! be gone.
//!
//! [`PushStates`] keeps the letters, and the [`PushState`] of each POP; a POP that lost its table gets all again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::mem;

use weir_protocol::messages::{KEYS_MAX, POPS_MAX, RULES_MAX, Replies, Report};
use weir_protocol::time::{SECOND_NS, Time};

/// Maximum number of keys recorded as sent, of all POPs: about 100 MB. Beyond it, the most silent POP is forgotten.
pub const SENT_MAX: usize = 1 << 20;
/// Time after which a letter without a confirmation counts as lost, in nanoseconds.
pub const LOST_NS: u64 = 2 * SECOND_NS;
/// Maximum number of letters under way to a POP; beyond it the first counts as lost.
const LETTERS_MAX: usize = 64;

/// State of one POP for one kind of message.
pub(crate) trait PushState: Default {
    /// Data to undo a letter that is lost.
    type Letter: Debug;

    /// Marks the content of `letter` as not sent.
    fn take_back(&mut self, letter: Self::Letter);

    /// Marks everything as not sent.
    fn forget(&mut self);

    fn len(&self) -> usize;
}

/// State of all POPs for one kind of message.
#[derive(Debug)]
pub(crate) struct PushStates<N: PushState> {
    pops: BTreeMap<String, Pop<N>>,
    len: usize,
}

#[derive(Debug)]
struct Pop<N: PushState> {
    table: u32,
    seen_at: Time,
    letters: Vec<Letter<N::Letter>>,
    state: N,
}

#[derive(Debug)]
struct Letter<T> {
    worker: u64,
    sequence: u64,
    sent_at: Time,
    content: T,
}

impl<N: PushState> Default for PushStates<N> {
    fn default() -> Self {
        Self { pops: BTreeMap::new(), len: 0 }
    }
}

impl<N: PushState> PushStates<N> {
    /// Has `write` make the pushes of the reply to `report`. It gets the POP's state, and may add [`KEYS_MAX`] keys to
    /// it. The second value that it returns is taken back if the reply is lost. A repeated report gets no pushes: it
    /// would be unknown which of the answers arrived.
    pub(crate) fn push<T: Default>(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
        write: impl FnOnce(&mut N) -> (T, Option<N::Letter>),
    ) -> T {
        self.make_room(&report.pop);
        let pop = self.pops.entry(report.pop.clone()).or_insert_with(|| Pop::new(report.table));
        self.len -= pop.state.len();
        pop.observe(now, report);
        let (text, content) = if is_repeated { Default::default() } else { write(&mut pop.state) };
        let Report { worker, sequence, .. } = *report;
        pop.letters.extend(content.map(|content| Letter { worker, sequence, sent_at: now, content }));
        self.len += pop.state.len();
        text
    }

    /// Applies `shorten` to all states, and forgets POPs whose state is empty and that were silent for a second.
    pub(crate) fn sweep(&mut self, now: Time, shorten: impl Fn(&mut N)) {
        self.pops.values_mut().for_each(|pop| shorten(&mut pop.state));
        self.pops.retain(|_, pop| pop.state.len() > 0 || now.nanos_since(pop.seen_at) < SECOND_NS);
        self.len = self.pops.values().map(|pop| pop.state.len()).sum();
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets the POPs that have been silent for longest, but not `pop`, until there is room for another report.
    fn make_room(&mut self, pop: &str) {
        let is_new = !self.pops.contains_key(pop);
        while self.len + KEYS_MAX > SENT_MAX || is_new && self.pops.len() >= POPS_MAX as usize {
            let others = self.pops.iter().filter(|(name, _)| *name != pop);
            let silent = others.min_by_key(|(_, pop)| pop.seen_at).map(|(name, _)| name.clone());
            let Some(silent) = silent else { break };
            self.len -= self.pops.remove(&silent).map_or(0, |pop| pop.state.len());
        }
    }
}

impl<N: PushState> Pop<N> {
    fn new(table: u32) -> Self {
        Self { table, seen_at: Time::ZERO, letters: Vec::new(), state: N::default() }
    }

    fn observe(&mut self, now: Time, report: &Report) {
        self.seen_at = now;
        if self.table != report.table {
            self.table = report.table;
            self.letters.clear();
            self.state.forget();
        }
        let Replies { done, lost } = report.replies;
        let surplus = self.letters.len().saturating_sub(LETTERS_MAX - 1);
        for (at, letter) in mem::take(&mut self.letters).into_iter().enumerate() {
            let is_its_own = letter.worker == report.worker;
            let is_done = is_its_own && letter.sequence <= done;
            if is_done && letter.sequence > lost {
                continue;
            }
            // A report that arrives twice is answered twice, and only one of the answers is read.
            let is_answer_to_it = is_its_own && letter.sequence == report.sequence;
            let is_late = at < surplus || now.nanos_since(letter.sent_at) >= LOST_NS;
            if is_done || is_answer_to_it || is_late {
                self.state.take_back(letter.content);
            } else {
                self.letters.push(letter);
            }
        }
    }
}

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
