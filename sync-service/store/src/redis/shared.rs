//! State that weir-syncs share through Redis: hot keys, bans, live POPs with the rule sets they run, and top keys.
//!
//! The lists of hot keys and of bans are two sorted sets each, changed by one script. Such a list may be long and is
//! read every interval, so Redis returns the changes since the last read. From time to time it returns the whole list.
//! That repairs changes lost on the way, or lost by a clock that stepped back.

use std::collections::BTreeSet;
use std::sync::Mutex;

use weir_budget::ban::{BanList, BanState, BannedKey};
use weir_budget::hot::{HotKey, RANK_MAX};
use weir_budget::pops::PopRuleSet;
use weir_protocol::messages::BAN_MS_MAX;

use super::Redis;
use super::exchange::RoutedCommand;
use super::script::WHOLE_MS;
use crate::fleet::{POP_RECORDS_MAX, PopRecord, Seen, seen};
use crate::{StoreError, lock};

/// Overlap of two reads, in milliseconds: two servers' clocks may differ, and answers overtake each other.
const OVERLAP_MS: u64 = 1_000;
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
    fn since_ms(&self) -> u64 {
        let state = lock(&self.0);
        let is_whole_due = state.at_ms.saturating_sub(state.whole_at_ms) >= WHOLE_MS;
        if is_whole_due { 0 } else { state.at_ms.saturating_sub(OVERLAP_MS) }
    }

    /// Applies Redis's answer of `now_ms` with the changes since `since_ms`. `take_in` adds them to the list,
    /// which is empty if the whole list was read, and returns its content.
    fn apply<T>(&self, since_ms: u64, now_ms: u64, take_in: impl FnOnce(&mut L) -> T) -> T {
        let mut state = lock(&self.0);
        if since_ms == 0 {
            (state.list, state.whole_at_ms) = (L::default(), now_ms);
        }
        // If the clock stepped back, the next read is of the whole list.
        state.at_ms = if now_ms < since_ms { 0 } else { now_ms };
        take_in(&mut state.list)
    }
}

const POP_RECORDS: &str = "fleet";

pub(super) type KnownHotKeys = ChangedList<BTreeSet<HotKey>>;
pub(super) type KnownBans = ChangedList<BanList>;

/// Answer of the script of hot keys: `now_ms`, keys on the list, and keys that left it.
type HotRow = (u64, Vec<String>, Vec<String>);
/// Answer of the script of bans: `now_us`, and keys with the ends of their bans.
type BanRow = (u64, Vec<(String, u64)>);

impl Redis {
    pub(super) async fn exchange_hot(&self, mine: &[HotKey]) -> Result<Vec<HotKey>, StoreError> {
        let (script, since_ms) = (&self.scripts.hot, self.known_hot.since_ms());
        // In one cluster slot, that of the list's name.
        let names = [self.keys.one("hot"), self.keys.beside("hot", "changed")];
        let mut call = RoutedCommand::of(script, &names);
        call.arg(since_ms);
        for key in mine {
            call.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
        }
        let (now_ms, on, off): HotRow = self.send(script, call).await?;
        let list = self.known_hot.apply(since_ms, now_ms, |list| {
            // Keys that cannot be parsed are from a newer version or another program.
            for key in off.iter().filter_map(|text| text.parse().ok()) {
                list.remove(&key);
            }
            list.extend(on.iter().filter_map(|text| text.parse().ok()));
            list.iter().cloned().collect()
        });
        Ok(list)
    }

    pub(super) async fn exchange_bans(&self, mine: &[BannedKey]) -> Result<Vec<BannedKey>, StoreError> {
        let (script, since_ms) = (&self.scripts.bans, self.known_bans.since_ms());
        let names = ["{bans}", "{bans}:changed"].map(|name| self.keys.one(name));
        let mut call = RoutedCommand::of(script, &names);
        call.arg(since_ms * 1_000);
        for key in mine {
            let prefix = if key.state == BanState::BannedByOperator { "!" } else { "" };
            let for_us = u64::from(key.for_ms.min(BAN_MS_MAX)) * 1_000;
            call.arg(format!("{prefix}{for_us}")).arg(key.to_string());
        }
        let (now_us, rows): BanRow = self.send(script, call).await?;
        let list = self.known_bans.apply(since_ms, now_us / 1_000, |list| {
            // Keys that cannot be parsed are from a newer version or another program.
            let keys = rows.iter().filter_map(|(text, us)| Some((text.parse::<BannedKey>().ok()?, us)));
            for (key, until_us) in keys {
                list.put(&key.id, *until_us, key.is_forgotten(), now_us);
            }
            list.expire(now_us);
            list.live(now_us)
        });
        Ok(list)
    }

    /// Records that `members` of the sorted set `name` exist. Returns the number of all that do; at most `most`.
    pub(super) async fn record(&self, name: &str, most: usize, members: &[String]) -> Result<u32, StoreError> {
        let mut call = RoutedCommand::of(&self.scripts.seen, &[self.keys.one(name)]);
        call.arg(self.pop_ttl_us).arg(most).arg(members);
        self.send(&self.scripts.seen, call).await
    }

    pub(super) async fn write_pop_records(&self, replica: &str, pops: &[PopRuleSet]) -> Result<(), StoreError> {
        if pops.is_empty() {
            return Ok(());
        }
        let record = |pop: &PopRuleSet| format!("{replica} {} {} {}", pop.version, pop.refused, pop.pop);
        let records: Vec<String> = pops.iter().map(record).collect();
        self.record(POP_RECORDS, POP_RECORDS_MAX, &records).await.map(|_| ())
    }

    pub(super) async fn read_pop_records(&self) -> Result<Vec<Seen>, StoreError> {
        let (script, key) = (&self.scripts.seen, self.keys.one(POP_RECORDS));
        // Time of the server that has the records.
        let (s, us): (u64, u64) = self.send(script, RoutedCommand::new("TIME", &key)).await?;
        let mut range = RoutedCommand::new("ZRANGE", &key);
        range.arg(&key).arg(0).arg(-1).arg("WITHSCORES");
        let rows: Vec<(String, f64)> = self.send(script, range).await?;
        let now_us = s.saturating_mul(1_000_000).saturating_add(us);
        // Records that cannot be parsed are from a newer version or another program.
        let records = rows.iter().filter_map(|(text, at_us)| pop_record(text, *at_us));
        Ok(seen(records.filter(|record| now_us.saturating_sub(record.at_us) <= self.pop_ttl_us), now_us))
    }

    pub(super) fn top_keys_call(&self) -> RoutedCommand {
        let names = ["{top_keys}", "{top_keys}:times"].map(|name| self.keys.one(name));
        RoutedCommand::of(&self.scripts.top_keys, &names)
    }
}

fn pop_record(text: &str, at_us: f64) -> Option<PopRecord<'_>> {
    let mut words = text.splitn(4, ' ');
    let (replica, version, refused, pop) = (words.next()?, words.next()?, words.next()?, words.next()?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
    let at_us = at_us as u64;
    Some(PopRecord { replica, pop, version: version.parse().ok()?, refused: refused.parse().ok()?, at_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_list_is_read_first_regularly_and_after_a_step_back() {
        let list = ChangedList::<Vec<u64>>::default();
        let asked = |now_ms: u64| {
            let since_ms = list.since_ms();
            let known = list.apply(since_ms, now_ms, |list| {
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
