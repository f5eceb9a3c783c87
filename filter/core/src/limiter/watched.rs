//! The one loop that changes a watched entry of the table outside a decision.

use super::Limiter;
use super::exchange::Exchange;
use crate::counters::Event;
use crate::quota::Quota;
use crate::slot::{Cold, Entry, Tag, Watched};
use crate::table::{Loaded, Slots};
use crate::time::Time;

/// How often a change that meets another worker's is made again. What it could not change is tried
/// again at the next report.
const UPDATES_MAX: u32 = 8;

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) tag: Tag,
    pub(super) slot: u32,
}

/// What became of a change.
pub(super) enum Updated {
    Written(Watched),
    /// The entry is not there any more (spent, or its slot lost), or found no room.
    Gone,
    /// The host did not answer, or others kept writing.
    Failed,
}

impl Limiter {
    /// Changes the watched entry at `place`. Where there is none, one begins for `quota`, if given.
    pub(super) fn update_watched(
        &mut self,
        place: Place,
        quota: Option<&Quota>,
        slots: &mut dyn Slots,
        now: Time,
        change: impl Fn(&mut Watched),
    ) -> Updated {
        let parts = self.exchange.as_ref().map_or(1, Exchange::cold_parts);
        let mut bytes = core::mem::take(&mut self.scratch.bytes);
        let mut result = Updated::Failed;
        for _ in 0..UPDATES_MAX {
            let (mut loaded, _) = Loaded::read(slots, place.slot, &mut bytes);
            if !loaded.is_known() {
                break;
            }
            let known = loaded.slot.get(place.tag);
            let begin = |cold: &Cold| quota.map(|quota| Watched::begin(cold, quota, parts, 0, now));
            let watched = match known {
                Some(Entry::Watched(watched)) => Some(watched),
                Some(Entry::Cold(cold)) => begin(&cold),
                None => begin(&Cold::NEW),
            };
            let Some(mut watched) = watched else {
                result = Updated::Gone;
                break;
            };
            change(&mut watched);
            if loaded.slot.put(place.tag, &Entry::Watched(watched), now).is_none() {
                result = Updated::Gone;
                break;
            }
            if loaded.write(slots).is_ok() {
                result = Updated::Written(watched);
                break;
            }
            self.counters.add(Event::CasRetried, 1);
        }
        self.scratch.bytes = bytes;
        result
    }
}
