//! Grants pushed to POPs, at most [`PUSH_BYTES_PER_S`] to each: keys in debt first, then new ones.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_protocol::messages::{Grant, KEYS_MAX};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

use super::Tracked;
use crate::divide::Weight;
use crate::push::PushState;

/// Maximum number of bytes of pushed keys sent to a POP in a second, and at once.
pub const PUSH_BYTES_PER_S: u64 = 40_000;
/// Approximate size of a pushed key without its value, in bytes: the index of a rule, a quota and a grant.
const PUSHED_BYTES: u64 = 32;
/// A grant counts as unchanged while its ratio differs by less than one part in this many.
const SAME_PART: u32 = 16;

#[derive(Debug)]
pub(super) struct HeldGrants {
    /// Keyed by the version of its worker's rules, since a worker accepts a grant only for its own rule's
    /// quota, and by [`Tracked::serial`].
    sent: BTreeMap<(u64, u64), PopGrants>,
    bytes: u64,
    refilled_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct PopGrants {
    quota: Quota,
    grant: Grant,
    at: Time,
}

struct Due<'a> {
    /// Priority, largest first: keys in debt, then new keys, then those pushed longest ago.
    turn: (bool, bool, u64, Weight),
    known: &'a Tracked,
}

impl Default for HeldGrants {
    fn default() -> Self {
        Self { sent: BTreeMap::new(), bytes: PUSH_BYTES_PER_S, refilled_at: Time::ZERO }
    }
}

impl PushState for HeldGrants {
    type Letter = Vec<(u64, u64)>;

    fn take_back(&mut self, letter: Vec<(u64, u64)>) {
        for key in letter {
            self.sent.remove(&key);
        }
    }

    fn forget(&mut self) {
        self.sent.clear();
    }

    fn len(&self) -> usize {
        self.sent.len()
    }
}

impl HeldGrants {
    /// Selects from `known` keys, sorted by serial number, those to push now to a POP that runs this version;
    /// at most [`KEYS_MAX`]. Counts them as pushed.
    pub(super) fn due<'a>(
        &mut self,
        version: u64,
        known: impl Iterator<Item = &'a Tracked>,
        now: Time,
    ) -> Vec<&'a Tracked> {
        self.refill(now);
        let mut sent = self.sent.range((version, 0)..=(version, u64::MAX)).peekable();
        let mut due: Vec<Due<'a>> = known
            .filter_map(|known| {
                while sent.next_if(|((_, serial), _)| *serial < known.serial).is_some() {}
                let same = sent.peek().filter(|((_, serial), _)| *serial == known.serial);
                let same = same.map(|(_, sent)| *sent).filter(|sent| sent.is_same(known));
                let age_ns = same.map_or(0, |sent| now.nanos_since(sent.at));
                if same.is_some_and(|sent| age_ns < sent.lease_ns() / 2) {
                    return None;
                }
                let turn = (known.division.weight.rank() > 1, same.is_none(), age_ns, known.division.weight);
                Some(Due { turn, known })
            })
            .collect();
        let most = usize::try_from(self.bytes / PUSHED_BYTES).unwrap_or(usize::MAX).min(KEYS_MAX);
        if due.len() > most {
            due.select_nth_unstable_by_key(most, |due| Reverse(due.turn));
            due.truncate(most);
        }
        // Sorted even if all are selected: `most` does not include the values' bytes, so fewer may fit.
        due.sort_by_key(|due| Reverse(due.turn));
        let mut now_sent = Vec::with_capacity(due.len());
        for Due { known, .. } in due {
            let bytes = PUSHED_BYTES + known.id.value.len() as u64;
            if bytes > self.bytes {
                break;
            }
            self.bytes -= bytes;
            self.sent.insert(
                (version, known.serial),
                PopGrants { quota: known.quota, grant: known.division.elsewhere, at: now },
            );
            now_sent.push(known);
        }
        now_sent
    }

    /// Forgets the grants whose lease has ended.
    pub(super) fn sweep(&mut self, now: Time) {
        self.sent.retain(|_, sent| now.nanos_since(sent.at) < sent.lease_ns());
    }

    fn refill(&mut self, now: Time) {
        let since_us = now.nanos_since(self.refilled_at) / 1_000;
        let more = since_us.saturating_mul(PUSH_BYTES_PER_S) / 1_000_000;
        self.bytes = self.bytes.saturating_add(more).min(PUSH_BYTES_PER_S);
        self.refilled_at = now;
    }
}

impl PopGrants {
    /// Time for which the POP may hold the grant, in nanoseconds; it is repeated after half of that.
    fn lease_ns(&self) -> u64 {
        u64::from(self.grant.lease_ms) * 1_000_000
    }

    /// True if the grant is still valid for the key's state. The level does not count, since a bucket continues
    /// from the level it was sent.
    fn is_same(&self, known: &Tracked) -> bool {
        let (sent, new) = (&self.grant, &known.division.elsewhere);
        let (before, after) = (sent.ratio.bits(), new.ratio.bits());
        before.abs_diff(after) <= before.min(after) / SAME_PART
            && self.quota == known.quota
            && sent.burst == new.burst
            && sent.lease_ms.abs_diff(new.lease_ms) <= sent.lease_ms / 2
    }
}
