//! What the POPs were told of hot keys, so that they are told again in time and not more than that.
//!
//! Notes are kept of one table for each POP. There are never more than [`TOLD_MAX`]; and a POP is told no more than
//! [`PUSH_BYTES_PER_S`], first of what is new and of what matters most.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_wire::messages::{AdmitRatio, Grant, KEYS_MAX, POPS_MAX, Report};
use weir_wire::quota::Quota;
use weir_wire::time::{SECOND_NS, Time};

use super::known::Known;
use crate::budget::BudgetId;
use crate::heat::Weight;

/// The most notes, of all POPs together: about 80 MB. Beyond it the POP silent for longest is told everything anew.
pub const TOLD_MAX: usize = 1 << 20;
/// The most bytes of pushed keys that a POP is sent in a second, and at once.
pub const PUSH_BYTES_PER_S: u64 = 40_000;
/// What a pushed key takes beside its value, in bytes, at most or nearly so: a rule's index, a quota, a grant.
const PUSHED_BYTES: u64 = 32;
/// A POP that holds the same grant is told again after this, in nanoseconds: well within its lease.
const AGAIN_NS: u64 = SECOND_NS;
/// A grant is the same while its ratio differs by less than one part in this many.
const SAME_PART: u32 = 16;
/// The most versions of its rules that the workers of a POP run at a time: from one to the next.
const VERSIONS_MAX: usize = 2;

/// The notes of all POPs.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pops: BTreeMap<String, Pop>,
    /// Of all POPs.
    len: usize,
}

/// Of one POP. One that lost its table has lost what it held, and is told again; so is one whose rules are others:
/// it did not take what was told where its rule had another quota.
#[derive(Debug)]
struct Pop {
    table: u32,
    /// By the version of the rules, the newest last; of each, by [`Known::serial`].
    versions: Vec<(u64, BTreeMap<u64, Told>)>,
    heard_at: Time,
    /// What it may be sent now, in bytes.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    quota: Quota,
    ratio: AdmitRatio,
    burst: u32,
    lease_ms: u32,
    at: Time,
    again_ns: u64,
}

/// A key that its POP is to be told of.
struct Due<'a> {
    /// The largest first: what is in debt, of that what is new, of the rest what was said longest ago.
    turn: (bool, bool, u64, Weight),
    id: &'a BudgetId,
    known: &'a Known,
    is_hot: bool,
    telling: Told,
}

impl Notes {
    /// Of `known` keys, each with whether it is hot, those to tell the sender of `report` now. It counts as told.
    pub(super) fn due<'a>(
        &mut self,
        report: &Report,
        known: impl Iterator<Item = (&'a BudgetId, &'a Known, bool)>,
        now: Time,
    ) -> Vec<(&'a BudgetId, &'a Known, bool)> {
        self.make_room(&report.pop);
        let pop = self.pops.entry(report.pop.clone()).or_insert_with(|| Pop::new(report.table, now));
        pop.refill(now);
        self.len -= pop.begin(report);
        let Some((_, told)) = pop.versions.last_mut() else { return Vec::new() };
        let mut due: Vec<Due<'a>> = known
            .filter_map(|(id, known, is_hot)| {
                let before = told.get(&known.serial);
                let again_ns =
                    if is_hot { AGAIN_NS } else { u64::from(known.grant.lease_ms) * 1_000_000 / 2 };
                let telling = Told::due(before, known, again_ns, now)?;
                let is_new = before.is_none_or(|told| !told.is_same(known));
                let age_ns = before.filter(|_| !is_new).map_or(0, |told| now.nanos_since(told.at));
                Some(Due {
                    turn: (known.weight.is_debt(), is_new, age_ns, known.weight),
                    id,
                    known,
                    is_hot,
                    telling,
                })
            })
            .collect();
        let most = usize::try_from(pop.bytes / PUSHED_BYTES).unwrap_or(usize::MAX).min(KEYS_MAX);
        if due.len() > most {
            due.select_nth_unstable_by_key(most, |due| Reverse(due.turn));
            due.truncate(most);
        }
        // Always: `most` counts no values, so fewer may fit.
        due.sort_by_key(|due| Reverse(due.turn));
        let mut now_told = Vec::with_capacity(due.len());
        for Due { id, known, is_hot, telling, .. } in due {
            let bytes = PUSHED_BYTES + id.value.len() as u64;
            if bytes > pop.bytes {
                break;
            }
            pop.bytes -= bytes;
            if self.len < TOLD_MAX || told.contains_key(&known.serial) {
                self.len += usize::from(told.insert(known.serial, telling).is_none());
            }
            now_told.push((id, known, is_hot));
        }
        now_told
    }

    /// Forgets what is to be said again anyway, and POPs of which nothing is left.
    pub(super) fn sweep(&mut self, now: Time) {
        for told in self.pops.values_mut().flat_map(|pop| &mut pop.versions) {
            told.1.retain(|_, told| now.nanos_since(told.at) < 2 * told.again_ns);
        }
        self.pops.retain(|_, pop| pop.len() > 0 || now.nanos_since(pop.heard_at) < SECOND_NS);
        self.len = self.pops.values().map(Pop::len).sum();
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Forgets the POPs that have been silent for longest, but not `pop`, where there are too many, or too many notes.
    fn make_room(&mut self, pop: &str) {
        let is_new = !self.pops.contains_key(pop);
        while self.len + KEYS_MAX > TOLD_MAX || is_new && self.pops.len() >= POPS_MAX as usize {
            let others = self.pops.iter().filter(|(name, _)| *name != pop);
            let silent = others.min_by_key(|(_, pop)| pop.heard_at).map(|(name, _)| name.clone());
            let Some(silent) = silent else { break };
            self.len -= self.pops.remove(&silent).map_or(0, |pop| pop.len());
        }
    }
}

impl Pop {
    fn new(table: u32, now: Time) -> Self {
        Self { table, versions: Vec::new(), heard_at: now, bytes: PUSH_BYTES_PER_S }
    }

    fn refill(&mut self, now: Time) {
        let since_us = now.nanos_since(self.heard_at) / 1_000;
        let more = since_us.saturating_mul(PUSH_BYTES_PER_S) / 1_000_000;
        self.bytes = self.bytes.saturating_add(more).min(PUSH_BYTES_PER_S);
        self.heard_at = now;
    }

    /// Puts the notes of the report's table and version last; how many notes are forgotten for it.
    fn begin(&mut self, report: &Report) -> usize {
        let before = self.len();
        if self.table != report.table {
            self.versions.clear();
            self.table = report.table;
        }
        let version = report.running.version;
        let at = self.versions.iter().position(|(known, _)| *known == version);
        let notes = at.map_or_else(|| (version, BTreeMap::new()), |at| self.versions.remove(at));
        if self.versions.len() >= VERSIONS_MAX {
            self.versions.remove(0);
        }
        self.versions.push(notes);
        before - self.len()
    }

    fn len(&self) -> usize {
        self.versions.iter().map(|(_, told)| told.len()).sum()
    }
}

impl Told {
    /// What to note of telling a POP of `known` at `now`; `None` where it still knows. It is told again
    /// after `again_ns`.
    fn due(before: Option<&Self>, known: &Known, again_ns: u64, now: Time) -> Option<Self> {
        match before.filter(|told| told.is_same(known)) {
            // A reply may be lost: what is new is soon said once more.
            None => Some(Self::of(known, now, AGAIN_NS)),
            Some(told) => (now.nanos_since(told.at) >= told.again_ns).then(|| Self::of(known, now, again_ns)),
        }
    }

    fn of(known: &Known, at: Time, again_ns: u64) -> Self {
        let Grant { ratio, burst, lease_ms, .. } = known.grant;
        Self { quota: known.quota, ratio, burst, lease_ms, at, again_ns }
    }

    /// Whether it does for what is known now, too. The level does not count: a bucket goes on from what it was told.
    fn is_same(&self, known: &Known) -> bool {
        let (quota, grant) = (known.quota, &known.grant);
        let (told, ratio) = (self.ratio.bits(), grant.ratio.bits());
        told.abs_diff(ratio) <= told.min(ratio) / SAME_PART
            && self.quota == quota
            && self.burst == grant.burst
            && self.lease_ms.abs_diff(grant.lease_ms) <= self.lease_ms / 2
    }
}
