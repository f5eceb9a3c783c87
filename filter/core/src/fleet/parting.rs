//! What an ending worker leaves to the others: the names of the keys whose counts were not reported, or not confirmed
//! by an answer.
//!
//! The counts are in the shared slots, but only the worker knows which keys they belong to. With the names left behind, a key
//! that is never asked for again is still reported.

use alloc::vec::Vec;
use core::iter;

use super::calls::Purpose;
use super::grants::unsay;
use crate::limiter::Limiter;
use crate::table::Slots;
use weir_rules::sorting::sorted;
use weir_wire::time::Time;

/// The most that all ended workers together leave, in bytes. A key beyond that is reported after its next request.
pub const PARTING_BYTES_MAX: usize = 64 * 1024;

/// The name of a key: its rule's, and its canonical bytes.
type Name<'a> = (&'a str, &'a [u8]);

impl Limiter {
    /// This worker ends. Returns what replaces what the workers that ended before it have `left`, or `None` if it has
    /// nothing to add.
    pub fn leave(&mut self, left: &[u8]) -> Option<Vec<u8>> {
        for sent in self.exchange.as_mut()?.calls.end_all(Purpose::Report) {
            unsay(&mut self.watch, &sent.told);
        }
        let rules = self.rules.rules();
        let mine = self.watch.unsaid().filter_map(|key| {
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

    /// The next report is the last: it says all that is not known to be charged, whatever is under way.
    pub(crate) fn hurry(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        for sent in exchange.calls.end_all(Purpose::Report) {
            unsay(&mut self.watch, &sent.told);
        }
        self.watch.hurry();
    }

    /// Takes over the keys that ended workers have `left`, to report them next. Keys of rules that are not in force
    /// here are skipped, and so is what cannot be read.
    pub fn inherit(&mut self, left: &[u8], slots: &dyn Slots, now: Time) {
        for (rule, value) in names(left) {
            if let Some(key) = self.find(rule, value, slots.count()) {
                self.learn_of(&key, now);
            }
        }
    }
}

/// The names in `left`, up to where it cannot be read.
fn names(left: &[u8]) -> impl Iterator<Item = Name<'_>> {
    let mut rest = left.get(..PARTING_BYTES_MAX).unwrap_or(left);
    iter::from_fn(move || {
        let (name, behind) = postcard::take_from_bytes::<Name<'_>>(rest).ok()?;
        rest = behind;
        Some(name)
    })
}
