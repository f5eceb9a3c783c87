//! Rule sets and the canary in Redis: one hash, written by one script.

use std::sync::Arc;

use super::exchange::RoutedCommand;
use super::script::{Lua, with_maxima};
use super::servers::Servers;
use crate::store::StoreError;
use crate::store::canary::{self, CanaryChange, CanaryResult};
use crate::store::keys::RedisKeys;
use crate::store::rules::{NewVersion, Stored, StoredVersion, VERSIONS_KEPT};

/// Name of the rule sets' hash.
pub(super) const RULES: &str = "rules";

/// The script, preceded by its limit.
pub(super) fn script() -> String {
    with_maxima(&[("VERSIONS_KEPT", VERSIONS_KEPT as u64)], include_str!("../rules.lua"))
}

pub(super) async fn put(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    put: &NewVersion<'_>,
) -> Result<Stored, StoreError> {
    let mut call = RoutedCommand::of(script, &[keys.one(RULES)]);
    call.arg("put").arg(put.document).arg(or_empty(put.expected));
    call.arg(put.note).arg(u8::from(put.from_file)).arg("");
    match servers.send_one(call, script).await? {
        (1, version) => Ok(Stored::New(version)),
        (0, version) => Ok(Stored::Same(version)),
        (-1, version) => Ok(Stored::Conflict(version)),
        (-2, id) => Ok(Stored::Canary(id)),
        _ => Err(StoreError::Invalid("another outcome of a put")),
    }
}

pub(super) async fn change_canary(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    change: &CanaryChange<'_>,
) -> Result<CanaryResult, StoreError> {
    let mut call = RoutedCommand::of(script, &[keys.one(RULES)]);
    match *change {
        CanaryChange::Begin { document, text, expected } => {
            call.arg("begin").arg(document).arg(or_empty(expected)).arg(text).arg(0).arg("");
        }
        CanaryChange::Promote { id, note } => {
            call.arg("promote").arg("").arg("").arg(note).arg(0).arg(or_empty(id));
        }
        CanaryChange::Withdraw { id } => {
            call.arg("withdraw").arg("").arg("").arg("").arg(0).arg(or_empty(id));
        }
        CanaryChange::PutOver { document, expected, note } => {
            call.arg("put over").arg(document).arg(expected).arg(note).arg(0).arg("");
        }
    }
    match servers.send_one(call, script).await? {
        (1, version) => Ok(CanaryResult::Put(version)),
        (2, id) => Ok(CanaryResult::Begun(id)),
        (3, id) => Ok(CanaryResult::Withdrawn(id)),
        (-1, version) => Ok(CanaryResult::Conflict(version)),
        (-2, id) => Ok(CanaryResult::Runs(id)),
        (-3, 0) => Ok(CanaryResult::Missing),
        _ => Err(StoreError::Invalid("another outcome of a change of the canary")),
    }
}

pub(super) async fn canary(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
) -> Result<Option<canary::StoredCanary>, StoreError> {
    let rules = keys.one(RULES);
    let mut call = RoutedCommand::new("HMGET", &rules);
    call.arg(&rules).arg("canary").arg("canary:note").arg("canary:document");
    let row: (Option<u64>, Option<String>, Option<String>) = servers.send_one(call, script).await?;
    let (Some(id), Some(note), Some(document)) = row else { return Ok(None) };
    let (at_ms, text) = note.split_once(' ').unwrap_or_default();
    let at_ms = at_ms.parse().map_err(|_| StoreError::Invalid("a canary without a time"))?;
    Ok(Some(canary::StoredCanary { id, at_ms, text: text.to_owned(), document }))
}

/// A number as text; empty if there is none.
fn or_empty(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

pub(super) async fn version(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
) -> Result<Option<u64>, StoreError> {
    let rules = keys.one(RULES);
    let mut call = RoutedCommand::new("HGET", &rules);
    call.arg(&rules).arg("current");
    servers.send_one(call, script).await
}

pub(super) async fn document(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    version: u64,
) -> Result<Option<String>, StoreError> {
    let rules = keys.one(RULES);
    let mut call = RoutedCommand::new("HGET", &rules);
    call.arg(&rules).arg(format!("document:{version}"));
    servers.send_one(call, script).await
}

pub(super) async fn kept(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
) -> Result<Vec<StoredVersion>, StoreError> {
    let Some(current) = version(servers, script, keys).await? else { return Ok(Vec::new()) };
    let versions = (0..VERSIONS_KEPT as u64).map_while(|back| current.checked_sub(back));
    let rules = keys.one(RULES);
    let mut call = RoutedCommand::new("HMGET", &rules);
    call.arg(&rules).arg("first");
    for version in versions.clone() {
        call.arg(format!("note:{version}"));
    }
    let fields: Vec<Option<String>> = servers.send_one(call, script).await?;
    let mut fields = fields.into_iter();
    let first = fields.next().flatten().and_then(|first| first.parse().ok()).unwrap_or(current);
    let kept = |(version, note): (u64, Option<String>)| {
        let (at_s, note) = note.as_deref()?.split_once(' ')?;
        let short = version.checked_sub(first)? + 1;
        Some(StoredVersion { version, short, at_s: at_s.parse().ok()?, note: note.to_owned() })
    };
    Ok(versions.zip(fields).filter_map(kept).collect())
}
