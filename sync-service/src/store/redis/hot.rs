//! List of hot keys in Redis: two sorted sets, changed by one script.

use std::collections::BTreeSet;

use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS, RANK_MAX};

use super::changed_list::{ChangedList, WHOLE_MS};
use super::exchange::RoutedCommand;
use super::script::{Lua, with_maxima};
use crate::store::keys::RedisKeys;

/// Names of the list and of its changes, in one cluster slot, that of the list's name.
fn names(keys: &RedisKeys) -> [String; 2] {
    [keys.one("hot"), keys.beside("hot", "changed")]
}

/// Time for which a change is kept, in milliseconds: longer than any read goes back.
const CHANGES_KEPT_MS: u64 = 2 * WHOLE_MS;

/// Answer of the script: `now_ms`, keys on the list, and keys that left it.
pub(super) type HotRow = (u64, Vec<String>, Vec<String>);

/// Keys on the list.
pub(super) type KnownHotKeys = ChangedList<BTreeSet<HotKey>>;

/// The script, preceded by its limits.
pub(super) fn script() -> String {
    let maxima = [
        ("HOT_MAX", HOT_MAX as u64),
        ("LISTED_MS", LISTED_MS),
        ("RANK_MAX", u64::from(RANK_MAX)),
        ("CHANGES_KEPT_MS", CHANGES_KEPT_MS),
    ];
    with_maxima(&maxima, include_str!("../hot.lua"))
}

/// Creates a call of the script.
pub(super) fn call(script: &Lua, keys: &RedisKeys, since_ms: u64, mine: &[HotKey]) -> RoutedCommand {
    let mut call = RoutedCommand::of(script, &names(keys));
    call.arg(since_ms);
    for key in mine {
        call.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
    }
    call
}

/// Applies the script's answer with the changes since `since_ms`; returns the list.
pub(super) fn list(known: &KnownHotKeys, since_ms: u64, (now_ms, on, off): &HotRow) -> Vec<HotKey> {
    known.heard(since_ms, *now_ms, |list| {
        // Keys that cannot be parsed are from a newer version or another program.
        for key in off.iter().filter_map(|text| text.parse().ok()) {
            list.remove(&key);
        }
        list.extend(on.iter().filter_map(|text| text.parse().ok()));
        list.iter().cloned().collect()
    })
}
