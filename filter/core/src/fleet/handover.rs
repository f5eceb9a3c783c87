//! Handover from a worker that ends: the names of keys whose counts were not reported, or not confirmed by a
//! reply.
//!
//! The counts are in the shared slots, but only the worker has the keys' names. With the names handed over, a
//! key that is never asked for again is still reported.

use alloc::vec::Vec;
use core::iter;

use super::calls::CallPurpose;
use super::grants::unreport;
use crate::limiter::Limiter;
use crate::table::Slots;
use weir_protocol::time::Time;
use weir_rules::sorting::sorted;

/// Most bytes that all ended workers together hand over. A key beyond that is reported after its next
/// request.
pub const PARTING_BYTES_MAX: usize = 64 * 1024;

/// A key's name: its rule's name, and its canonical bytes.
type Name<'a> = (&'a str, &'a [u8]);

impl Limiter {
    /// Ends this worker. Returns the handover that replaces `left`, the one of the workers that ended before,
    /// or none if there is nothing to add.
    pub fn leave(&mut self, left: &[u8]) -> Option<Vec<u8>> {
        for sent in self.exchange.as_mut()?.calls.end_all(CallPurpose::Report) {
            unreport(&mut self.watch, &sent.told);
        }
        let rules = self.rules.rules();
        let mine = self.watch.unreported().filter_map(|key| {
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
    pub(crate) fn hurry(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        for sent in exchange.calls.end_all(CallPurpose::Report) {
            unreport(&mut self.watch, &sent.told);
        }
        self.watch.hurry();
    }

    /// Takes over the keys in the handover `left`, to be reported next. Keys of rules that are not in force
    /// are skipped, and so are bytes that cannot be read.
    pub fn inherit(&mut self, left: &[u8], slots: &dyn Slots, now: Time) {
        for (rule, value) in names(left) {
            if let Some(key) = self.find(rule, value, slots.count()) {
                self.learn_of(&key, now);
            }
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
