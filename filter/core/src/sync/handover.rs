//! Handover from a worker that ends: the names of keys whose counts were not reported, or not confirmed by a
//! reply.
//!
//! The counts are in the shared slots, but only the worker has the keys' names. With the names handed over, a
//! key that is never asked for again is still reported.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;

use crate::RuleIndex;
use crate::limiter::Limiter;
use crate::sync::calls::CallPurpose;
use crate::sync::client::SyncClient;
use crate::sync::grants::unreport;
use crate::table::Slots;
use weir_protocol::time::Time;
use weir_rules::sorting::sorted;

/// Most bytes that all ended workers together hand over. A key beyond that is reported after its next
/// request.
pub(crate) const PARTING_BYTES_MAX: usize = 64 * 1024;

/// A key's name: its rule's name, and its canonical bytes.
type Name<'a> = (&'a str, &'a [u8]);

/// Ends this worker. Returns the handover that replaces `left`, the one of the workers that ended before,
/// or none if there is nothing to add.
pub(crate) fn leave(limiter: &mut Limiter, left: &[u8]) -> Option<Vec<u8>> {
    for sent in limiter.sync.as_mut()?.calls.end_all(CallPurpose::Report) {
        unreport(&mut limiter.watch, &sent.told);
    }
    let rules = limiter.rules.set.rules();
    let mine = limiter.watch.unreported().filter_map(|key| {
        let rule = rules.get(usize::from(key.name.rule))?;
        Some((rule.name.as_str(), key.name.value.as_bytes()))
    });
    let known = sorted(names(left).collect());
    let mut new = mine.filter(|name| known.binary_search(name).is_err()).peekable();
    new.peek()?;
    let mut all = Vec::new();
    for name in known.iter().copied().chain(new) {
        let Ok(bytes) = postcard::to_allocvec(&name) else { continue };
        if all.len() + bytes.len() > PARTING_BYTES_MAX {
            break;
        }
        all.extend(bytes);
    }
    Some(all)
}

/// Makes the next report the last one: it contains everything that is not confirmed, even if it is under
/// way.
pub(crate) fn hurry(limiter: &mut Limiter) {
    let Some(sync) = &mut limiter.sync else { return };
    for sent in sync.calls.end_all(CallPurpose::Report) {
        unreport(&mut limiter.watch, &sent.told);
    }
    limiter.watch.hurry();
}

/// Takes over the keys in the handover `left`, to be reported next. Keys of rules that are not in force
/// are skipped, and so are bytes that cannot be read.
pub(crate) fn inherit(limiter: &mut Limiter, left: &[u8], slots: &dyn Slots, now: Time) {
    for (rule, value) in names(left) {
        if let Some(key) = limiter.rules.find(rule, value, slots.count()) {
            limiter.learn_of(&key, now);
        }
    }
}

/// The names in `left`, up to the first that cannot be read.
fn names(left: &[u8]) -> impl Iterator<Item = Name<'_>> {
    let mut rest = left.get(..PARTING_BYTES_MAX).unwrap_or(left);
    iter::from_fn(move || {
        let (name, behind) = postcard::take_from_bytes::<Name<'_>>(rest).ok()?;
        rest = behind;
        Some(name)
    })
}

// Reporting by one engine for all workers of a program.
//
// ```text
// worker -- keys with something to report, bans -> gather         -> the reporter's list -> a report
// worker <- refusals that are no longer valid   <- take_forgotten <- the reporter        <- a reply
// ```
//
// The counts are in the slots that all workers share. The reporter takes over the names of keys with
// something to report, and their demand. Keys of strict rules stay with their worker, which acquires tokens
// for its own requests and has the records of those calls.

/// Takes over the reports of `worker`, as far as there is room. The worker reports the rest. In return it
/// gets the state that acquiring tokens depends on.
pub(crate) fn gather(limiter: &mut Limiter, worker: &mut Limiter, now: Time) {
    let is_same = Arc::ptr_eq(&limiter.rules.set, &worker.rules.set);
    let (mine, theirs) = (&limiter.rules.terms, &worker.rules.terms);
    // If only one of the two has replaced its rules yet, an unchanged rule may have different indices.
    let to = |rule: RuleIndex| {
        let terms = theirs.get(usize::from(rule)).filter(|terms| !terms.is_strict)?;
        if is_same {
            return Some(rule);
        }
        RuleIndex::of(mine.iter().position(|known| known.salt == terms.salt)?)
    };
    let watch = &mut limiter.watch;
    worker.watch.hand_over(|key| to(key.name.rule).is_some_and(|rule| watch.take_over(key, rule, now)));
    if let (Some(mine), Some(theirs)) = (&mut limiter.sync, &mut worker.sync) {
        mine.take_over_bans(theirs, to);
        theirs.observe_through(mine);
    }
}

impl SyncClient {
    /// Copies the reporter's knowledge of weir-sync, for this worker's calls.
    fn observe_through(&mut self, reporter: &Self) {
        self.answers_take_ns = self.answers_take_ns.or(reporter.answers_take_ns);
    }
}
