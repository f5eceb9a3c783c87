//! What weir-syncs have heard of their POPs, in Redis: one sorted set.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_budget::pops::PopNote;

use super::exchange::Call;
use super::script::{Lua, with_maxima};
use super::servers::Servers;
use crate::fleet::{NOTES_MAX, Note, Seen, seen};
use crate::store::StoreError;
use crate::store::keys::Keys;

/// The sorted set of the notes.
const NOTES: &str = "fleet";
/// The answer that serves all who ask whether all weir-syncs keep budgets as this version does; in the notes' slot.
const SHAPE: &str = "shape";
/// How long it serves, in milliseconds, unless there are more or fewer notes.
const SHAPE_MS: u64 = 500;
/// What a note begins with that is of the weir-sync itself.
const PACKS: &str = "packs";

/// The script, with its maxima in front.
pub(super) fn script() -> String {
    with_maxima(&[("NOTES_MAX", NOTES_MAX as u64), ("SHAPE_MS", SHAPE_MS)], include_str!("../fleet.lua"))
}

/// How often it is asked whether all weir-syncs keep budgets as this version does.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether all weir-syncs keep budgets as this version does: in strings. While one of the version before is there, all keep them
/// in hashes, so that each budget is one budget.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// What was said last, and when it was asked last, which may be later; nothing until the store has said it once.
    known: Mutex<Option<(bool, Instant)>>,
}

impl Shape {
    /// Whether they do, as was said last; asks if that was never said.
    pub(super) async fn is_packed(&self, notes: &Notes<'_>) -> Result<bool, StoreError> {
        let known = *self.known();
        if let Some((is_packed, _)) = known {
            return Ok(is_packed);
        }
        match (note(notes, self, &[]).await, notes.servers) {
            // The budgets of a cluster's other masters are charged all the same, as those do that know.
            (Err(_), Servers::Cluster(_)) => Ok(true),
            (Err(reason), Servers::One(_)) => Err(reason),
            (Ok(()), _) => Ok(self.known().is_none_or(|(is_packed, _)| is_packed)),
        }
    }

    fn is_due(&self) -> bool {
        self.known().is_none_or(|(_, at)| at.elapsed() >= ASK_INTERVAL)
    }

    fn hear(&self, said: Option<bool>) {
        let mut known = self.known();
        // Nothing is assumed: budgets of a wrong shape are others than those of the fleet.
        let Some(is_packed) = said.or(known.map(|(was_packed, _)| was_packed)) else { return };
        if known.is_some_and(|(was_packed, _)| was_packed != is_packed) || (known.is_none() && !is_packed) {
            let (shape, why) = if is_packed { ("strings", "no") } else { ("hashes", "a") };
            tracing::info!(
                shape,
                "{why} weir-sync of the version before is there: budgets are kept as {shape}"
            );
        }
        *known = Some((is_packed, Instant::now()));
    }

    fn known(&self) -> MutexGuard<'_, Option<(bool, Instant)>> {
        // Nothing that runs under this lock panics.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where notes are, and whose they are.
#[derive(Debug)]
pub(super) struct Notes<'a> {
    pub(super) servers: &'a Servers,
    pub(super) script: &'a Arc<Lua>,
    pub(super) keys: &'a Keys,
    pub(super) ttl_us: u64,
    pub(super) member: &'a str,
}

pub(super) async fn note(notes: &Notes<'_>, shape: &Shape, pops: &[PopNote]) -> Result<(), StoreError> {
    let (is_due, member) = (shape.is_due(), notes.member);
    if pops.is_empty() && !is_due {
        return Ok(());
    }
    let mut call = Call::of(notes.script, &[notes.keys.one(NOTES), notes.keys.beside(NOTES, SHAPE)]);
    call.arg(notes.ttl_us).arg(u8::from(is_due)).arg(format!("{PACKS} {member}"));
    for pop in pops {
        call.arg(format!("{member} {} {} {}", pop.version, pop.refused, pop.pop));
    }
    let said = notes.servers.send_one::<u64>(call, notes.script).await;
    if is_due {
        shape.hear(said.as_ref().ok().map(|said| *said == 1));
    }
    said.map(|_| ())
}

pub(super) async fn read(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &Keys,
    ttl_us: u64,
) -> Result<Vec<Seen>, StoreError> {
    let notes = keys.one(NOTES);
    // The clock of the server that has the notes.
    let (s, us): (u64, u64) = servers.send_one(Call::new("TIME", &notes), script).await?;
    let mut range = Call::new("ZRANGE", &notes);
    range.arg(&notes).arg(0).arg(-1).arg("WITHSCORES");
    let rows: Vec<(String, f64)> = servers.send_one(range, script).await?;
    let now_us = s.saturating_mul(1_000_000).saturating_add(us);
    // What cannot be read was put there by a newer version, or by another program.
    let notes = rows.iter().filter_map(|(text, at_us)| note_of(text, *at_us));
    Ok(seen(notes.filter(|note| now_us.saturating_sub(note.at_us) <= ttl_us), now_us))
}

fn note_of(text: &str, at_us: f64) -> Option<Note<'_>> {
    let mut words = text.splitn(4, ' ');
    let (member, version, refused, pop) = (words.next()?, words.next()?, words.next()?, words.next()?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
    let at_us = at_us as u64;
    Some(Note { member, pop, version: version.parse().ok()?, refused: refused.parse().ok()?, at_us })
}
