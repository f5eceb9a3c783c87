//! Rule sets in Redis: one hash, written by one script.

use std::sync::Arc;

use super::exchange::Call;
use super::script::{Lua, with_maxima};
use super::servers::Servers;
use crate::store::StoreError;
use crate::store::rules::{Kept, Put, Stored, VERSIONS_KEPT};

/// The hash of the rule sets.
pub(super) const RULES_KEY: &str = "weir:rules";

/// The script, with its maximum in front.
pub(super) fn script() -> String {
    with_maxima(&[("VERSIONS_KEPT", VERSIONS_KEPT as u64)], include_str!("../rules.lua"))
}

pub(super) async fn put(servers: &Servers, script: &Arc<Lua>, put: &Put<'_>) -> Result<Stored, StoreError> {
    let mut call = Call::of(script, &[RULES_KEY]);
    call.arg(put.document).arg(put.expected.map_or_else(String::new, |version| version.to_string()));
    call.arg(put.note).arg(u8::from(put.from_file));
    match servers.send_one(call, script).await? {
        (1, version) => Ok(Stored::New(version)),
        (0, version) => Ok(Stored::Same(version)),
        (-1, version) => Ok(Stored::Conflict(version)),
        _ => Err(StoreError::Nonsense("another outcome of a put")),
    }
}

pub(super) async fn version(servers: &Servers, script: &Arc<Lua>) -> Result<Option<u64>, StoreError> {
    let mut call = Call::new("HGET", RULES_KEY);
    call.arg(RULES_KEY).arg("current");
    servers.send_one(call, script).await
}

pub(super) async fn document(
    servers: &Servers,
    script: &Arc<Lua>,
    version: u64,
) -> Result<Option<String>, StoreError> {
    let mut call = Call::new("HGET", RULES_KEY);
    call.arg(RULES_KEY).arg(format!("document:{version}"));
    servers.send_one(call, script).await
}

pub(super) async fn kept(servers: &Servers, script: &Arc<Lua>) -> Result<Vec<Kept>, StoreError> {
    let Some(current) = version(servers, script).await? else { return Ok(Vec::new()) };
    let versions = (0..VERSIONS_KEPT as u64).map_while(|back| current.checked_sub(back));
    let mut call = Call::new("HMGET", RULES_KEY);
    call.arg(RULES_KEY);
    for version in versions.clone() {
        call.arg(format!("note:{version}"));
    }
    let notes: Vec<Option<String>> = servers.send_one(call, script).await?;
    let kept = |(version, note): (u64, Option<String>)| {
        let (at_s, note) = note.as_deref()?.split_once(' ')?;
        Some(Kept { version, at_s: at_s.parse().ok()?, note: note.to_owned() })
    };
    Ok(versions.zip(notes).filter_map(kept).collect())
}
