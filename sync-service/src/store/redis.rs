//! Budgets in Redis: one hash each, charged by one script, by Redis's own clock.
//!
//! Keys are `weir:{<rule>:<value in hex>}`: a budget is one key. The braces are a hash tag of Redis Cluster, where each
//! call has keys of one slot. The charges of a report travel together, as one pipeline of `EVALSHA` to each server; if a
//! server has lost the script (it was restarted), its part is sent again behind the script, which is harmless. Strict
//! budgets are `weir:strict:{<rule>:<value in hex>}`, drawn on in the same way, and calendar quotas
//! `weir:quota:day:{<rule>:<value in hex>}` or `weir:quota:month:{...}`. Rule sets are `weir:rules`, POPs `weir:pops`
//! and `weir:fleet`, hot keys `weir:hot`, bans `weir:{boxed}` and `weir:{boxed}:changed`.

mod bans;
mod charge;
mod cluster;
mod draw;
mod exchange;
mod fleet;
mod keys;
mod nodes;
mod reach;
mod rules;
mod script;
mod servers;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, COUNT_MAX};
use weir_budget::escrow::{Draw, Drawn};
use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS, RANK_MAX};
use weir_budget::pops::PopNote;
use weir_wire::messages::POPS_MAX;

use self::exchange::Call;
pub use self::keys::{budget_key, escrow_key};
use self::reach::Reach;
use self::script::{Lua, with_maxima};
use self::servers::Servers;
use super::address::NodeMap;
use super::dial::{DialError, Dialer, Files};
use super::rules::{Kept, Put, Stored};
use super::{Answer, Batch, Each, Store};
use crate::fleet::Seen;

/// The sorted set of live POPs.
const FLEET_KEY: &str = "weir:pops";
/// The sorted set of hot keys.
const HOT_KEY: &str = "weir:hot";

/// Budgets in Redis.
#[derive(Debug)]
pub struct Redis {
    servers: Servers,
    /// Connections for draws alone, which wait for a replica.
    patient: Option<Servers>,
    charge: Arc<Lua>,
    draw: Arc<Lua>,
    register: Arc<Lua>,
    hot: Arc<Lua>,
    bans: Arc<Lua>,
    known_bans: bans::Known,
    rules: Arc<Lua>,
    fleet: Arc<Lua>,
    pop_ttl_us: u64,
}

/// What [`Redis`] needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an answer may take.
    pub response_timeout: Duration,
    /// How long a POP that says nothing counts as alive.
    pub pop_ttl: Duration,
    /// The password and the certificates.
    pub files: Files,
    /// Where nodes are reached that are announced elsewhere.
    pub nodes: NodeMap,
    /// How long a replica may take to have a draw of a strict rule; without this it is not waited for.
    pub wait: Option<Duration>,
}

impl Redis {
    /// Starts connecting to `url` (see [`super::address`]) in the background. Must run inside tokio. Fails if the URL or
    /// the files cannot be used.
    pub fn new(url: &str, options: Options) -> Result<Self, DialError> {
        let dialer = Arc::new(Dialer::new(url, options.files, options.nodes)?);
        let texts = [
            charge::script(),
            draw::script(),
            register_script(),
            hot_script(),
            bans::script(),
            rules::script(),
            fleet::script(),
        ];
        let [charge, draw, register, hot, bans, rules, fleet] =
            texts.each_ref().map(|text| Arc::new(Lua::new(text)));
        let scripts: Arc<[String]> = texts.into();
        let servers = |wait| {
            let (dialer, scripts) = (Arc::clone(&dialer), Arc::clone(&scripts));
            Servers::new(Reach { dialer, response_timeout: options.response_timeout, scripts, wait })
        };
        Ok(Self {
            servers: servers(None),
            patient: options.wait.map(|wait| servers(Some(wait))),
            charge,
            draw,
            register,
            hot,
            bans,
            known_bans: bans::Known::default(),
            rules,
            fleet,
            pop_ttl_us: u64::try_from(options.pop_ttl.as_micros()).unwrap_or(u64::MAX).min(COUNT_MAX / 4),
        })
    }
}

impl Store for Redis {
    fn charge<'a>(&'a self, batch: &'a Batch<'a>) -> Each<'a, Account> {
        Box::pin(async move {
            if batch.entries.is_empty() {
                return Vec::new();
            }
            let rows = self.servers.send(charge::calls(&self.charge, batch), &self.charge).await;
            rows.into_iter().map(|row| charge::account(&row?)).collect()
        })
    }

    fn draw<'a>(&'a self, pop: &'a str, draws: &'a [Draw]) -> Each<'a, Drawn> {
        Box::pin(async move {
            if draws.is_empty() {
                return Vec::new();
            }
            let servers = self.patient.as_ref().unwrap_or(&self.servers);
            let rows = servers.send(draw::calls(&self.draw, pop, draws), &self.draw).await;
            draws.iter().zip(rows).map(|(draw, row)| draw::drawn(draw, &row?)).collect()
        })
    }

    fn register<'a>(&'a self, pop: &'a str) -> Answer<'a, u32> {
        Box::pin(async move {
            let mut call = Call::of(&self.register, &[FLEET_KEY]);
            call.arg(pop).arg(self.pop_ttl_us);
            let live: u32 = self.servers.send_one(call, &self.register).await?;
            Ok(live.max(1))
        })
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> Answer<'a, Vec<HotKey>> {
        Box::pin(async move {
            let mut call = Call::of(&self.hot, &[HOT_KEY]);
            for key in mine {
                call.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
            }
            let list: Vec<String> = self.servers.send_one(call, &self.hot).await?;
            // What cannot be read was put there by a newer version, or by another program.
            Ok(list.iter().filter_map(|text| text.parse().ok()).collect())
        })
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> Answer<'a, Vec<BannedKey>> {
        Box::pin(async move {
            let since_us = self.known_bans.since_us();
            let row = self.servers.send_one(bans::call(&self.bans, since_us, mine), &self.bans).await?;
            Ok(self.known_bans.heard(since_us, &row))
        })
    }

    fn put_rules<'a>(&'a self, put: &'a Put<'a>) -> Answer<'a, Stored> {
        Box::pin(rules::put(&self.servers, &self.rules, put))
    }

    fn rules_version(&self) -> Answer<'_, Option<u64>> {
        Box::pin(rules::version(&self.servers, &self.rules))
    }

    fn get_rules(&self, version: u64) -> Answer<'_, Option<String>> {
        Box::pin(rules::document(&self.servers, &self.rules, version))
    }

    fn kept_rules(&self) -> Answer<'_, Vec<Kept>> {
        Box::pin(rules::kept(&self.servers, &self.rules))
    }

    fn note_pops<'a>(&'a self, member: &'a str, pops: &'a [PopNote]) -> Answer<'a, ()> {
        Box::pin(fleet::note(&self.servers, &self.fleet, self.pop_ttl_us, member, pops))
    }

    fn fleet(&self) -> Answer<'_, Vec<Seen>> {
        Box::pin(fleet::read(&self.servers, &self.fleet, self.pop_ttl_us))
    }

    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(async { self.servers.ping() })
    }
}

fn hot_script() -> String {
    let maxima = [("HOT_MAX", HOT_MAX as u64), ("LISTED_MS", LISTED_MS), ("RANK_MAX", u64::from(RANK_MAX))];
    with_maxima(&maxima, include_str!("hot.lua"))
}

fn register_script() -> String {
    with_maxima(&[("POPS_MAX", u64::from(POPS_MAX))], include_str!("register.lua"))
}
