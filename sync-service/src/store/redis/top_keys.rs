//! Top keys of weir-syncs in Redis: a hash, and the time of each entry.

use std::sync::Arc;

use super::exchange::RoutedCommand;
use super::script::{Lua, with_maxima};
use super::servers::Servers;
use crate::store::keys::RedisKeys;
use crate::store::{StoreError, TOP_KEYS_MEMBERS_MAX, TOP_KEYS_MS};

/// Names of the hash and the times, in one cluster slot.
fn names(keys: &RedisKeys) -> [String; 2] {
    ["{top_keys}", "{top_keys}:times"].map(|name| keys.one(name))
}

/// The script, preceded by its limits.
pub(super) fn script() -> String {
    let maxima = [("SAID_MS", TOP_KEYS_MS), ("MEMBERS_MAX", TOP_KEYS_MEMBERS_MAX as u64)];
    with_maxima(&maxima, include_str!("../top_keys.lua"))
}

pub(super) async fn say(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    member: &str,
    text: &str,
) -> Result<(), StoreError> {
    let mut call = RoutedCommand::of(script, &names(keys));
    call.arg(member).arg(text);
    servers.send_one::<Vec<String>>(call, script).await.map(|_| ())
}

pub(super) async fn read(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
) -> Result<Vec<(String, String)>, StoreError> {
    servers.send_one(RoutedCommand::of(script, &names(keys)), script).await
}
