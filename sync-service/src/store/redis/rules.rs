//! Rule sets in Redis: one hash, written by one script.

use redis::Pipeline;

use super::script::{Lua, with_maxima};
use super::send::send;
use crate::store::StoreError;
use crate::store::link::Link;
use crate::store::rules::{Kept, Put, Stored, VERSIONS_KEPT};

/// The hash of the rule sets.
pub(super) const RULES_KEY: &str = "weir:rules";

/// The script, with its maximum in front.
pub(super) fn script() -> String {
    with_maxima(&[("VERSIONS_KEPT", VERSIONS_KEPT as u64)], include_str!("../rules.lua"))
}

pub(super) async fn put(link: &Link, script: &Lua, put: &Put<'_>) -> Result<Stored, StoreError> {
    let mut pipeline = Pipeline::new();
    let command = pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(RULES_KEY).arg(put.document);
    command.arg(put.expected.map_or_else(String::new, |version| version.to_string())).arg(put.note);
    command.arg(u8::from(put.from_file));
    match send(link, &pipeline, script).await? {
        ((1, version),) => Ok(Stored::New(version)),
        ((0, version),) => Ok(Stored::Same(version)),
        ((-1, version),) => Ok(Stored::Conflict(version)),
        _ => Err(StoreError::Nonsense("another outcome of a put")),
    }
}

pub(super) async fn version(link: &Link, script: &Lua) -> Result<Option<u64>, StoreError> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("HGET").arg(RULES_KEY).arg("current");
    let (version,): (Option<u64>,) = send(link, &pipeline, script).await?;
    Ok(version)
}

pub(super) async fn document(link: &Link, script: &Lua, version: u64) -> Result<Option<String>, StoreError> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("HGET").arg(RULES_KEY).arg(format!("document:{version}"));
    let (document,): (Option<String>,) = send(link, &pipeline, script).await?;
    Ok(document)
}

pub(super) async fn kept(link: &Link, script: &Lua) -> Result<Vec<Kept>, StoreError> {
    let Some(current) = version(link, script).await? else { return Ok(Vec::new()) };
    let versions = (0..VERSIONS_KEPT as u64).map_while(|back| current.checked_sub(back));
    let mut pipeline = Pipeline::new();
    let command = pipeline.cmd("HMGET").arg(RULES_KEY);
    for version in versions.clone() {
        command.arg(format!("note:{version}"));
    }
    let (notes,): (Vec<Option<String>>,) = send(link, &pipeline, script).await?;
    let kept = |(version, note): (u64, Option<String>)| {
        let (at_s, note) = note.as_deref()?.split_once(' ')?;
        Some(Kept { version, at_s: at_s.parse().ok()?, note: note.to_owned() })
    };
    Ok(versions.zip(notes).filter_map(kept).collect())
}
