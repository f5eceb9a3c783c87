//! What weir-syncs have heard of their POPs, in memory.

use std::collections::BTreeMap;

use crate::fleet::{NOTES_MAX, Note, Noted, Seen, seen};

/// The notes, by who made them and of which POP.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<(String, String), Row>);

#[derive(Debug)]
struct Row {
    version: u64,
    refused: u64,
    at_us: u64,
}

impl Notes {
    pub(super) fn note(&mut self, now_us: u64, ttl_us: u64, member: &str, pops: &[Noted]) {
        for pop in pops {
            let row = Row { version: pop.version, refused: pop.refused, at_us: now_us };
            self.0.insert((member.to_owned(), pop.pop.clone()), row);
        }
        self.0.retain(|_, row| now_us.saturating_sub(row.at_us) <= ttl_us);
        while self.0.len() > NOTES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, row)| row.at_us).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    pub(super) fn seen(&mut self, now_us: u64, ttl_us: u64) -> Vec<Seen> {
        self.0.retain(|_, row| now_us.saturating_sub(row.at_us) <= ttl_us);
        let notes = self.0.iter().map(|((member, pop), row)| Note {
            member,
            pop,
            version: row.version,
            refused: row.refused,
            at_us: row.at_us,
        });
        seen(notes, now_us)
    }
}
