//! What weir-syncs store for each other in Redis: the live POPs, the rule sets that POPs run, and the top keys.

use weir_budget::pops::PopNote;
use weir_protocol::messages::POPS_MAX;

use super::exchange::RoutedCommand;
use super::script::script;
use super::servers::Caller;
use crate::fleet::{NOTES_MAX, Note, Seen, seen};
use crate::store::keys::RedisKeys;
use crate::store::{StoreError, TOP_KEYS_MEMBERS_MAX, TOP_KEYS_MS};

/// Name of the sorted set of live POPs.
const LIVE: &str = "pops";
/// Name of the sorted set of notes about the rule sets of POPs.
const NOTES: &str = "fleet";

/// Script that adds members to a sorted set by time, and drops those that are too old.
pub(super) fn seen_script() -> String {
    script(&[], include_str!("../seen.lua"))
}

pub(super) fn top_keys_script() -> String {
    let maxima = [("SAID_MS", TOP_KEYS_MS), ("MEMBERS_MAX", TOP_KEYS_MEMBERS_MAX as u64)];
    script(&maxima, include_str!("../top_keys.lua"))
}

/// The sorted sets of live POPs, and of notes about them.
#[derive(Debug)]
pub(super) struct Pops {
    pub(super) caller: Caller,
    /// Time for which a silent POP counts as alive, in microseconds.
    pub(super) ttl_us: u64,
}

impl Pops {
    /// Records that `members` of the sorted set `name` exist. Returns the number of all that do; at most `most`.
    async fn record(&self, name: &str, most: usize, members: &[String]) -> Result<u32, StoreError> {
        let mut call = self.caller.call(&[self.caller.keys.one(name)]);
        call.arg(self.ttl_us).arg(most).arg(members);
        self.caller.send(call).await
    }

    pub(super) async fn register(&self, pop: &str) -> Result<u32, StoreError> {
        let live = self.record(LIVE, POPS_MAX as usize, &[pop.to_owned()]).await?;
        Ok(live.max(1))
    }

    /// Stores the rule sets of the POPs that report to `member`.
    pub(super) async fn note(&self, member: &str, pops: &[PopNote]) -> Result<(), StoreError> {
        if pops.is_empty() {
            return Ok(());
        }
        let note = |pop: &PopNote| format!("{member} {} {} {}", pop.version, pop.refused, pop.pop);
        let notes: Vec<String> = pops.iter().map(note).collect();
        self.record(NOTES, NOTES_MAX, &notes).await.map(|_| ())
    }

    pub(super) async fn notes(&self) -> Result<Vec<Seen>, StoreError> {
        let notes = self.caller.keys.one(NOTES);
        // Time of the server that has the notes.
        let (s, us): (u64, u64) = self.caller.send(RoutedCommand::new("TIME", &notes)).await?;
        let mut range = RoutedCommand::new("ZRANGE", &notes);
        range.arg(&notes).arg(0).arg(-1).arg("WITHSCORES");
        let rows: Vec<(String, f64)> = self.caller.send(range).await?;
        let now_us = s.saturating_mul(1_000_000).saturating_add(us);
        // Notes that cannot be parsed are from a newer version or another program.
        let notes = rows.iter().filter_map(|(text, at_us)| note_of(text, *at_us));
        Ok(seen(notes.filter(|note| now_us.saturating_sub(note.at_us) <= self.ttl_us), now_us))
    }
}

fn note_of(text: &str, at_us: f64) -> Option<Note<'_>> {
    let mut words = text.splitn(4, ' ');
    let (member, version, refused, pop) = (words.next()?, words.next()?, words.next()?, words.next()?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
    let at_us = at_us as u64;
    Some(Note { member, pop, version: version.parse().ok()?, refused: refused.parse().ok()?, at_us })
}

/// Names of the top keys' hash and its times, in one cluster slot.
fn top_keys(keys: &RedisKeys) -> [String; 2] {
    ["{top_keys}", "{top_keys}:times"].map(|name| keys.one(name))
}

pub(super) async fn store_top_keys(busy: &Caller, member: &str, text: &str) -> Result<(), StoreError> {
    let mut call = busy.call(&top_keys(&busy.keys));
    call.arg(member).arg(text);
    busy.send::<Vec<String>>(call).await.map(|_| ())
}

pub(super) async fn read_top_keys(busy: &Caller) -> Result<Vec<(String, String)>, StoreError> {
    busy.send(busy.call(&top_keys(&busy.keys))).await
}
