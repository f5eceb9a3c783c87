//! Lists in Redis that all regions share: the hot keys and the bans. Each is two sorted sets, changed by one script.
//!
//! A list may be long and is read every interval, so Redis returns the changes since the last read. From time to
//! time it returns the whole list. That repairs changes lost on the way, or lost by a clock that stepped back.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weir_budget::ban::{BANS_KEPT_MAX, BanList, BanState, BannedKey, FORGOTTEN};
use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS, RANK_MAX};
use weir_protocol::messages::BAN_MS_MAX;

use super::script::script;
use super::servers::Caller;
use crate::store::StoreError;
use crate::store::keys::RedisKeys;

/// Overlap of two reads, in milliseconds: the clocks of two Redis servers may differ by this, and answers may
/// overtake each other.
const OVERLAP_MS: u64 = 1_000;
/// Interval at which the whole list is read, in milliseconds.
const WHOLE_MS: u64 = 10_000;

/// The list as last read from Redis.
#[derive(Debug, Default)]
pub(super) struct ChangedList<L>(Mutex<State<L>>);

#[derive(Debug, Default)]
struct State<L> {
    list: L,
    /// Time of the last read, and of the last read of the whole list, on Redis's clock; zero if never.
    at_ms: u64,
    whole_at_ms: u64,
}

impl<L: Default> ChangedList<L> {
    /// Time from which to read changes, in milliseconds of Redis's clock; 0 for the whole list.
    pub(super) fn since_ms(&self) -> u64 {
        self.with(|state| {
            let is_whole_due = state.at_ms.saturating_sub(state.whole_at_ms) >= WHOLE_MS;
            if is_whole_due { 0 } else { state.at_ms.saturating_sub(OVERLAP_MS) }
        })
    }

    /// Applies Redis's answer of `now_ms` with the changes since `since_ms`. `take_in` adds them to the list,
    /// which is empty if the whole list was read, and returns its content.
    pub(super) fn heard<T>(&self, since_ms: u64, now_ms: u64, take_in: impl FnOnce(&mut L) -> T) -> T {
        self.with(|state| {
            if since_ms == 0 {
                (state.list, state.whole_at_ms) = (L::default(), now_ms);
            }
            // If the clock stepped back, the next read is of the whole list.
            state.at_ms = if now_ms < since_ms { 0 } else { now_ms };
            take_in(&mut state.list)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut State<L>) -> T) -> T {
        // Nothing here panics; if it did, the list would still be valid.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Names of the list and of its changes, in one cluster slot, that of the list's name.
fn hot_names(keys: &RedisKeys) -> [String; 2] {
    [keys.one("hot"), keys.beside("hot", "changed")]
}

/// Time for which a change is kept, in milliseconds: longer than any read goes back.
const CHANGES_KEPT_MS: u64 = 2 * WHOLE_MS;

/// Answer of the script: `now_ms`, keys on the list, and keys that left it.
type HotRow = (u64, Vec<String>, Vec<String>);

/// Keys on the list.
pub(super) type KnownHotKeys = ChangedList<BTreeSet<HotKey>>;

pub(super) fn hot_script() -> String {
    let maxima = [
        ("HOT_MAX", HOT_MAX as u64),
        ("LISTED_MS", LISTED_MS),
        ("RANK_MAX", u64::from(RANK_MAX)),
        ("CHANGES_KEPT_MS", CHANGES_KEPT_MS),
    ];
    script(&maxima, include_str!("../hot.lua"))
}

/// Adds `mine` to the list, and returns it.
pub(super) async fn exchange_hot(
    caller: &Caller,
    known: &KnownHotKeys,
    mine: &[HotKey],
) -> Result<Vec<HotKey>, StoreError> {
    let since_ms = known.since_ms();
    let mut call = caller.call(&hot_names(&caller.keys));
    call.arg(since_ms);
    for key in mine {
        call.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
    }
    let (now_ms, on, off): HotRow = caller.send(call).await?;
    let list = known.heard(since_ms, now_ms, |list| {
        // Keys that cannot be parsed are from a newer version or another program.
        for key in off.iter().filter_map(|text| text.parse().ok()) {
            list.remove(&key);
        }
        list.extend(on.iter().filter_map(|text| text.parse().ok()));
        list.iter().cloned().collect()
    });
    Ok(list)
}

/// Names of the list and of the times of its latest changes, in one cluster slot.
fn ban_names(keys: &RedisKeys) -> [String; 2] {
    ["{bans}", "{bans}:changed"].map(|name| keys.one(name))
}

/// Answer of the script: `now_us`, and keys with the ends of their bans.
type BanRow = (u64, Vec<(String, u64)>);

/// Bans on the list.
pub(super) type KnownBans = ChangedList<BanList>;

pub(super) fn ban_script() -> String {
    let maxima = [("BANS_KEPT_MAX", BANS_KEPT_MAX as u64), ("BAN_US_MAX", u64::from(BAN_MS_MAX) * 1_000)];
    format!("local FORGOTTEN = '{FORGOTTEN}'\n{}", script(&maxima, include_str!("../bans.lua")))
}

/// Adds `mine` to the list, and returns it.
pub(super) async fn exchange_bans(
    caller: &Caller,
    known: &KnownBans,
    mine: &[BannedKey],
) -> Result<Vec<BannedKey>, StoreError> {
    let since_ms = known.since_ms();
    let mut call = caller.call(&ban_names(&caller.keys));
    call.arg(since_ms * 1_000);
    for key in mine {
        let order = if key.said == BanState::Ordered { "!" } else { "" };
        let for_us = u64::from(key.for_ms.min(BAN_MS_MAX)) * 1_000;
        call.arg(format!("{order}{for_us}")).arg(key.to_string());
    }
    let (now_us, rows): BanRow = caller.send(call).await?;
    let list = known.heard(since_ms, now_us / 1_000, |list| {
        // Keys that cannot be parsed are from a newer version or another program.
        for (key, until_us) in
            rows.iter().filter_map(|(text, us)| Some((text.parse::<BannedKey>().ok()?, us)))
        {
            list.put(&key.id, *until_us, key.is_forgotten(), now_us);
        }
        list.expire(now_us);
        list.live(now_us)
    });
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_list_is_asked_for_at_first_now_and_then_and_after_a_step_back() {
        let list = ChangedList::<Vec<u64>>::default();
        let asked = |now_ms: u64| {
            let since_ms = list.since_ms();
            let known = list.heard(since_ms, now_ms, |list| {
                list.push(now_ms);
                list.len()
            });
            (since_ms, known)
        };
        assert_eq!(asked(50_000), (0, 1));
        assert_eq!(asked(50_250), (49_000, 2));
        assert_eq!(asked(59_000), (49_250, 3));
        assert_eq!(asked(60_000), (58_000, 4));
        assert_eq!(asked(60_250), (0, 1), "after ten seconds");
        assert_eq!(asked(20_000), (59_250, 2));
        assert_eq!(asked(20_250), (0, 1), "after a step back");
    }
}
