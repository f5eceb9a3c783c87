//! Bans in Redis: two sorted sets, changed by one script.

use weir_budget::ban::{BANS_KEPT_MAX, BanList, BannedKey, FORGOTTEN, Said};
use weir_wire::messages::BAN_MS_MAX;

use super::changed_list::ChangedList;
use super::exchange::Call;
use super::script::{Lua, with_maxima};
use crate::store::keys::Keys;

/// The list, and when its keys were last banned; in one slot of a cluster.
fn names(keys: &Keys) -> [String; 2] {
    ["{boxed}", "{boxed}:changed"].map(|name| keys.one(name))
}

/// What the script returns: `now_us`, and keys with when their bans end.
pub(super) type Row = (u64, Vec<(String, u64)>);

/// The bans on the list.
pub(super) type Known = ChangedList<BanList>;

/// The script, with the maxima in front.
pub(super) fn script() -> String {
    let maxima = [("BANS_KEPT_MAX", BANS_KEPT_MAX as u64), ("BAN_US_MAX", u64::from(BAN_MS_MAX) * 1_000)];
    format!("local FORGOTTEN = '{FORGOTTEN}'\n{}", with_maxima(&maxima, include_str!("../bans.lua")))
}

/// One call of the script.
pub(super) fn call(script: &Lua, keys: &Keys, since_ms: u64, mine: &[BannedKey]) -> Call {
    let mut call = Call::of(script, &names(keys));
    call.arg(since_ms * 1_000);
    for key in mine {
        let order = if key.said == Said::Ordered { "!" } else { "" };
        let for_us = u64::from(key.for_ms.min(BAN_MS_MAX)) * 1_000;
        call.arg(format!("{order}{for_us}")).arg(key.to_string());
    }
    call
}

/// Takes in what the script said of the changes since `since_ms`; returns all that is banned.
pub(super) fn list(known: &Known, since_ms: u64, (now_us, rows): &Row) -> Vec<BannedKey> {
    known.heard(since_ms, now_us / 1_000, |list| {
        for (text, until_us) in rows {
            // What cannot be read was put there by a newer version, or by another program.
            if let Ok(key) = text.parse::<BannedKey>() {
                list.put(&key.id, *until_us, key.is_forgotten(), *now_us);
            }
        }
        list.expire(*now_us);
        list.live(*now_us)
    })
}
