//! Rule sets that POPs run, from the records in a store.
//!
//! Each interval, a weir-sync stores what it received from its POPs since the last one, so every weir-sync can
//! answer for the whole fleet. A POP has several workers, which may run different rule sets for a moment, and
//! report to different replicas; the POP then counts as running the lowest version.

use std::collections::BTreeMap;

use weir_budget::pops::SILENT_NS;
use weir_protocol::messages::POPS_MAX;

/// Maximum number of records in a store; beyond it, the oldest are dropped first.
pub const POP_RECORDS_MAX: usize = 2 * POPS_MAX as usize;

/// Rule set of a POP, as one weir-sync recorded it in a store.
#[derive(Clone, Copy, Debug)]
pub struct PopRecord<'a> {
    pub replica: &'a str,
    pub pop: &'a str,
    pub version: u64,
    pub refused: u64,
    /// Time at which it was written, in microseconds of the store's clock.
    pub at_us: u64,
}

/// A POP as seen by the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub pop: String,
    pub region: String,
    pub replica: String,
    pub version: u64,
    pub refused: u64,
    pub age_us: u64,
}

/// Summary of `records` at `now_us`, by POP. Of the records of one replica, the latest counts. Of those of several
/// replicas, the lowest version counts, among all that are at most [`SILENT_NS`] older than the newest.
pub fn seen<'a>(records: impl Iterator<Item = PopRecord<'a>>, now_us: u64) -> Vec<Seen> {
    let mut latest: BTreeMap<(&str, &str), PopRecord<'_>> = BTreeMap::new();
    for record in records {
        let of = latest.entry((record.pop, record.replica)).or_insert(record);
        if of.at_us <= record.at_us {
            *of = record;
        }
    }
    let mut pops: BTreeMap<&str, Vec<PopRecord<'_>>> = BTreeMap::new();
    for ((pop, _), record) in latest {
        pops.entry(pop).or_default().push(record);
    }
    pops.into_iter().filter_map(|(pop, records)| one(pop, records, now_us)).collect()
}

fn one(pop: &str, mut records: Vec<PopRecord<'_>>, now_us: u64) -> Option<Seen> {
    let newest = records.iter().copied().max_by_key(|record| record.at_us)?;
    records.retain(|record| newest.at_us - record.at_us <= SILENT_NS / 1_000);
    let (region, replica) = newest.replica.split_once('/').unwrap_or((newest.replica, ""));
    Some(Seen {
        pop: pop.to_owned(),
        region: region.to_owned(),
        replica: replica.to_owned(),
        version: records.iter().map(|record| record.version).min()?,
        refused: records.iter().map(|record| record.refused).max()?,
        age_us: now_us.saturating_sub(newest.at_us),
    })
}
