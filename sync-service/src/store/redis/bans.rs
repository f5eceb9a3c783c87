//! Bans in Redis: two sorted sets, changed by one script.

use weir_budget::ban::{BANS_KEPT_MAX, BanList, BanState, BannedKey, FORGOTTEN};
use weir_protocol::messages::BAN_MS_MAX;

use super::changed_list::ChangedList;
use super::exchange::RoutedCommand;
use super::script::{Lua, with_maxima};
use crate::store::keys::RedisKeys;

/// Names of the list and of the times of its latest changes, in one cluster slot.
fn names(keys: &RedisKeys) -> [String; 2] {
    ["{bans}", "{bans}:changed"].map(|name| keys.one(name))
}

/// Answer of the script: `now_us`, and keys with the ends of their bans.
pub(super) type BanRow = (u64, Vec<(String, u64)>);

/// Bans on the list.
pub(super) type KnownBans = ChangedList<BanList>;

/// The script, preceded by its limits.
pub(super) fn script() -> String {
    let maxima = [("BANS_KEPT_MAX", BANS_KEPT_MAX as u64), ("BAN_US_MAX", u64::from(BAN_MS_MAX) * 1_000)];
    format!("local FORGOTTEN = '{FORGOTTEN}'\n{}", with_maxima(&maxima, include_str!("../bans.lua")))
}

/// Creates a call of the script.
pub(super) fn call(script: &Lua, keys: &RedisKeys, since_ms: u64, mine: &[BannedKey]) -> RoutedCommand {
    let mut call = RoutedCommand::of(script, &names(keys));
    call.arg(since_ms * 1_000);
    for key in mine {
        let order = if key.said == BanState::Ordered { "!" } else { "" };
        let for_us = u64::from(key.for_ms.min(BAN_MS_MAX)) * 1_000;
        call.arg(format!("{order}{for_us}")).arg(key.to_string());
    }
    call
}

/// Applies the script's answer with the changes since `since_ms`; returns all bans.
pub(super) fn list(known: &KnownBans, since_ms: u64, (now_us, rows): &BanRow) -> Vec<BannedKey> {
    known.heard(since_ms, now_us / 1_000, |list| {
        for (text, until_us) in rows {
            // Keys that cannot be parsed are from a newer version or another program.
            if let Ok(key) = text.parse::<BannedKey>() {
                list.put(&key.id, *until_us, key.is_forgotten(), *now_us);
            }
        }
        list.expire(*now_us);
        list.live(*now_us)
    })
}
