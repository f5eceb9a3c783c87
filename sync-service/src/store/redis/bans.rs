//! Bans in Redis: two sorted sets, changed by one script.
//!
//! The list may be long and is asked for every interval, so Redis says what changed since it was last asked. Now and
//! then it says all of it, which makes good what was lost on the way or by a clock that stepped back.

use std::sync::{Mutex, PoisonError};

use weir_budget::ban::{BANS_KEPT_MAX, BanList, BannedKey};
use weir_wire::messages::BAN_MS_MAX;

use super::exchange::Call;
use super::script::{Lua, with_maxima};

/// The list, and when its keys were last banned; in one slot of a cluster.
const KEYS: [&str; 2] = ["weir:{boxed}", "weir:{boxed}:changed"];
/// How far back changes are asked for, in microseconds: the clocks of two Redis servers may differ by as much, and
/// answers may overtake each other.
const OVERLAP_US: u64 = 2_000_000;
/// After this, in microseconds, the whole list is asked for.
const WHOLE_US: u64 = 10_000_000;

/// What the script returns: `now_us`, and keys with when their bans end.
pub(super) type Row = (u64, Vec<(String, u64)>);

/// The list as last heard from Redis.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    list: BanList,
    /// When that was, and when all of it was asked for; zero if never.
    at_us: u64,
    whole_at_us: u64,
}

/// The script, with the maxima in front.
pub(super) fn script() -> String {
    let maxima = [("BANS_KEPT_MAX", BANS_KEPT_MAX as u64), ("BAN_US_MAX", u64::from(BAN_MS_MAX) * 1_000)];
    with_maxima(&maxima, include_str!("../bans.lua"))
}

/// One call of the script.
pub(super) fn call(script: &Lua, since_us: u64, mine: &[BannedKey]) -> Call {
    let mut call = Call::of(script, &KEYS);
    call.arg(since_us);
    for key in mine {
        call.arg(u64::from(key.for_ms.min(BAN_MS_MAX)) * 1_000).arg(key.to_string());
    }
    call
}

impl Known {
    /// Since when to ask for changes; 0 for everything.
    pub(super) fn since_us(&self) -> u64 {
        self.with(|state| {
            let is_whole_due = state.at_us.saturating_sub(state.whole_at_us) >= WHOLE_US;
            if is_whole_due { 0 } else { state.at_us.saturating_sub(OVERLAP_US) }
        })
    }

    /// Takes in what the script said of the changes since `since_us`; returns all that is banned.
    pub(super) fn heard(&self, since_us: u64, (now_us, rows): &Row) -> Vec<BannedKey> {
        self.with(|state| {
            if since_us == 0 {
                *state = State { list: BanList::default(), at_us: 0, whole_at_us: *now_us };
            }
            for (text, until_us) in rows {
                // What cannot be read was put there by a newer version, or by another program.
                if let Ok(key) = text.parse::<BannedKey>() {
                    state.list.add(&key.id, *until_us, *now_us);
                }
            }
            state.list.expire(*now_us);
            // If the clock stepped back, everything is asked for anew.
            state.at_us = if *now_us < since_us { 0 } else { *now_us };
            state.list.live(*now_us)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // Nothing in here panics; should it, the list is still good.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
