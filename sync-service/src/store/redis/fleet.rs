//! Rule sets of POPs as weir-syncs stored them, in Redis: one sorted set.

use std::sync::Arc;

use weir_budget::pops::PopNote;

use super::exchange::RoutedCommand;
use super::script::{Lua, with_maxima};
use super::servers::Servers;
use crate::fleet::{NOTES_MAX, Note, Seen, seen};
use crate::store::StoreError;
use crate::store::keys::RedisKeys;

/// Name of the sorted set.
const NOTES: &str = "fleet";

/// The script, preceded by its limit.
pub(super) fn script() -> String {
    with_maxima(&[("NOTES_MAX", NOTES_MAX as u64)], include_str!("../fleet.lua"))
}

/// Stores the rule sets of the POPs that report to `member`.
pub(super) async fn note(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    ttl_us: u64,
    (member, pops): (&str, &[PopNote]),
) -> Result<(), StoreError> {
    if pops.is_empty() {
        return Ok(());
    }
    let mut call = RoutedCommand::of(script, &[keys.one(NOTES)]);
    call.arg(ttl_us);
    for pop in pops {
        call.arg(format!("{member} {} {} {}", pop.version, pop.refused, pop.pop));
    }
    servers.send_one::<()>(call, script).await
}

pub(super) async fn read(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    ttl_us: u64,
) -> Result<Vec<Seen>, StoreError> {
    let notes = keys.one(NOTES);
    // Time of the server that has the notes.
    let (s, us): (u64, u64) = servers.send_one(RoutedCommand::new("TIME", &notes), script).await?;
    let mut range = RoutedCommand::new("ZRANGE", &notes);
    range.arg(&notes).arg(0).arg(-1).arg("WITHSCORES");
    let rows: Vec<(String, f64)> = servers.send_one(range, script).await?;
    let now_us = s.saturating_mul(1_000_000).saturating_add(us);
    // Notes that cannot be parsed are from a newer version or another program.
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
