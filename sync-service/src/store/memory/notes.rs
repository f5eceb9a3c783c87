//! Rule sets of POPs as weir-syncs stored them, in memory.

use std::collections::BTreeMap;

use weir_budget::pops::PopNote;

use crate::fleet::{NOTES_MAX, Note, Seen, seen};

/// Notes by member and POP, each with its time.
#[derive(Debug, Default)]
pub(super) struct StoredPopNotes(BTreeMap<(String, String), (PopNote, u64)>);

impl StoredPopNotes {
    pub(super) fn note(&mut self, now_us: u64, ttl_us: u64, member: &str, pops: &[PopNote]) {
        for note in pops {
            self.0.insert((member.to_owned(), note.pop.clone()), (note.clone(), now_us));
        }
        self.expire(now_us, ttl_us);
        while self.0.len() > NOTES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (_, at_us))| *at_us).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    pub(super) fn seen(&mut self, now_us: u64, ttl_us: u64) -> Vec<Seen> {
        self.expire(now_us, ttl_us);
        let notes = self.0.iter().map(|((member, _), (note, at_us))| {
            let PopNote { pop, version, refused } = note;
            Note { member, pop, version: *version, refused: *refused, at_us: *at_us }
        });
        seen(notes, now_us)
    }

    fn expire(&mut self, now_us: u64, ttl_us: u64) {
        self.0.retain(|_, (_, at_us)| now_us.saturating_sub(*at_us) <= ttl_us);
    }
}
