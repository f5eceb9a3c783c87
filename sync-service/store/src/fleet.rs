//! Rule sets that POPs run, from the notes in a store.
//!
//! Each interval, a weir-sync stores what it received from its POPs since the last one, so every weir-sync can
//! answer for the whole fleet. A POP has several workers, which may run different rule sets for a moment, and
//! report to different replicas; the POP then counts as running the lowest version.

use std::collections::BTreeMap;

use weir_budget::pops::SILENT_NS;
use weir_protocol::messages::POPS_MAX;

/// Maximum number of notes in a store; beyond it, the oldest are dropped first.
pub const NOTES_MAX: usize = 2 * POPS_MAX as usize;

/// A note in a store.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// The weir-sync that wrote it: `region/replica`.
    pub member: &'a str,
    /// The POP that it is about.
    pub pop: &'a str,
    /// See [`weir_budget::pops::PopNote`].
    pub version: u64,
    /// See [`weir_budget::pops::PopNote`].
    pub refused: u64,
    /// Time at which it was written, in microseconds of the store's clock.
    pub at_us: u64,
}

/// A POP as seen by the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub pop: String,
    /// Region of the weir-sync with the newest note.
    pub region: String,
    /// That weir-sync's replica name.
    pub replica: String,
    /// See [`weir_budget::pops::PopNote`].
    pub version: u64,
    /// See [`weir_budget::pops::PopNote`].
    pub refused: u64,
    /// Age of the newest note, in microseconds.
    pub age_us: u64,
}

/// Summary of `notes` at `now_us`, by POP. Of several notes from one replica, the latest counts. Of notes from
/// several replicas, the lowest version counts, among all that are about as new as the newest.
pub fn seen<'a>(notes: impl Iterator<Item = Note<'a>>, now_us: u64) -> Vec<Seen> {
    let mut latest: BTreeMap<(&str, &str), Note<'_>> = BTreeMap::new();
    for note in notes {
        let of = latest.entry((note.pop, note.member)).or_insert(note);
        if of.at_us <= note.at_us {
            *of = note;
        }
    }
    let mut pops: BTreeMap<&str, Vec<Note<'_>>> = BTreeMap::new();
    for ((pop, _), note) in latest {
        pops.entry(pop).or_default().push(note);
    }
    pops.into_iter().filter_map(|(pop, notes)| one(pop, notes, now_us)).collect()
}

fn one(pop: &str, mut notes: Vec<Note<'_>>, now_us: u64) -> Option<Seen> {
    let newest = notes.iter().copied().max_by_key(|note| note.at_us)?;
    notes.retain(|note| newest.at_us - note.at_us <= SILENT_NS / 1_000);
    let (region, replica) = newest.member.split_once('/').unwrap_or((newest.member, ""));
    Some(Seen {
        pop: pop.to_owned(),
        region: region.to_owned(),
        replica: replica.to_owned(),
        version: notes.iter().map(|note| note.version).min()?,
        refused: notes.iter().map(|note| note.refused).max()?,
        age_us: now_us.saturating_sub(newest.at_us),
    })
}
