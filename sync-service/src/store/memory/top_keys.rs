//! Top keys of weir-syncs, in memory.

use std::collections::BTreeMap;

use crate::store::{TOP_KEYS_MEMBERS_MAX, TOP_KEYS_MS};

/// Text of each weir-sync, by its name, with the time at which it was stored.
#[derive(Debug, Default)]
pub(super) struct StoredTopKeys(BTreeMap<String, (u64, String)>);

impl StoredTopKeys {
    pub(super) fn say(&mut self, now_us: u64, member: &str, text: &str) {
        if text.is_empty() {
            self.0.remove(member);
        } else {
            self.0.insert(member.into(), (now_us, text.into()));
        }
        self.expire(now_us);
        while self.0.len() > TOP_KEYS_MEMBERS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (at_us, _))| *at_us).map(|(member, _)| member.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    pub(super) fn all(&mut self, now_us: u64) -> Vec<(String, String)> {
        self.expire(now_us);
        self.0.iter().map(|(member, (_, text))| (member.clone(), text.clone())).collect()
    }

    fn expire(&mut self, now_us: u64) {
        self.0.retain(|_, (at_us, _)| now_us.saturating_sub(*at_us) < TOP_KEYS_MS * 1_000);
    }
}
