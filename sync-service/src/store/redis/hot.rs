//! The list of hot keys in Redis: two sorted sets, changed by one script.

use std::collections::BTreeSet;

use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS, RANK_MAX};

use super::changed_list::{ChangedList, WHOLE_MS};
use super::exchange::Call;
use super::script::{Lua, with_maxima};
use crate::store::keys::Keys;

/// The list, and when it changed; in one slot of a cluster, that of the list's name.
fn names(keys: &Keys) -> [String; 2] {
    [keys.one("hot"), keys.beside("hot", "changed")]
}

/// How long a change is kept, in milliseconds: for longer than it may be asked for.
const CHANGES_KEPT_MS: u64 = 2 * WHOLE_MS;

/// What the script returns: `now_ms`, keys on the list, and keys that are not.
pub(super) type Row = (u64, Vec<String>, Vec<String>);

/// The keys on the list.
pub(super) type Known = ChangedList<BTreeSet<HotKey>>;

/// The script, with the maxima in front.
pub(super) fn script() -> String {
    let maxima = [
        ("HOT_MAX", HOT_MAX as u64),
        ("LISTED_MS", LISTED_MS),
        ("RANK_MAX", u64::from(RANK_MAX)),
        ("CHANGES_KEPT_MS", CHANGES_KEPT_MS),
    ];
    with_maxima(&maxima, include_str!("../hot.lua"))
}

/// One call of the script.
pub(super) fn call(script: &Lua, keys: &Keys, since_ms: u64, mine: &[HotKey]) -> Call {
    let mut call = Call::of(script, &names(keys));
    call.arg(since_ms);
    for key in mine {
        call.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
    }
    call
}

/// Takes in what the script said of the changes since `since_ms`; returns the list.
pub(super) fn list(known: &Known, since_ms: u64, (now_ms, on, off): &Row) -> Vec<HotKey> {
    known.heard(since_ms, *now_ms, |list| {
        // What cannot be read was put there by a newer version, or by another program.
        for key in off.iter().filter_map(|text| text.parse().ok()) {
            list.remove(&key);
        }
        list.extend(on.iter().filter_map(|text| text.parse().ok()));
        list.iter().cloned().collect()
    })
}
