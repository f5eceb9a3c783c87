//! The list of hot keys in Redis: two sorted sets, changed by one script.
//!
//! The list may be long and is asked for every interval, so Redis says what changed since it was last asked. Now and
//! then it says all of it, which makes good what was lost on the way, by a clock that stepped back, or by a weir-sync of
//! an older version, which notes no changes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS, RANK_MAX};

use super::exchange::Call;
use super::script::{Lua, with_maxima};

/// The list, and when it changed; in one slot of a cluster, that of the list's name.
const KEYS: [&str; 2] = ["weir:hot", "weir:{weir:hot}:changed"];
/// How far back changes are asked for, in milliseconds: the clocks of two Redis servers may differ by as much, and
/// answers may overtake each other.
const OVERLAP_MS: u64 = 1_000;
/// After this, in milliseconds, the whole list is asked for.
const WHOLE_MS: u64 = 10_000;
/// How long a change is kept, in milliseconds: for longer than it may be asked for.
const CHANGES_KEPT_MS: u64 = 2 * WHOLE_MS;

/// What the script returns: `now_ms`, keys on the list, and keys that are not.
pub(super) type Row = (u64, Vec<String>, Vec<String>);

/// The list as last heard from Redis.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    list: BTreeSet<HotKey>,
    /// When that was, and when all of it was asked for; zero if never.
    at_ms: u64,
    whole_at_ms: u64,
}

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
pub(super) fn call(script: &Lua, since_ms: u64, mine: &[HotKey]) -> Call {
    let mut call = Call::of(script, &KEYS);
    call.arg(since_ms);
    for key in mine {
        call.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
    }
    call
}

impl Known {
    /// Since when to ask for changes; 0 for everything.
    pub(super) fn since_ms(&self) -> u64 {
        self.with(|state| {
            let is_whole_due = state.at_ms.saturating_sub(state.whole_at_ms) >= WHOLE_MS;
            if is_whole_due { 0 } else { state.at_ms.saturating_sub(OVERLAP_MS) }
        })
    }

    /// Takes in what the script said of the changes since `since_ms`; returns the list.
    pub(super) fn heard(&self, since_ms: u64, (now_ms, on, off): &Row) -> Vec<HotKey> {
        self.with(|state| {
            if since_ms == 0 {
                *state = State { list: BTreeSet::new(), at_ms: 0, whole_at_ms: *now_ms };
            }
            // What cannot be read was put there by a newer version, or by another program.
            for key in off.iter().filter_map(|text| text.parse().ok()) {
                state.list.remove(&key);
            }
            state.list.extend(on.iter().filter_map(|text| text.parse().ok()));
            // If the clock stepped back, everything is asked for anew.
            state.at_ms = if *now_ms < since_ms { 0 } else { *now_ms };
            state.list.iter().cloned().collect()
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // Nothing in here panics; should it, the list is still good.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
