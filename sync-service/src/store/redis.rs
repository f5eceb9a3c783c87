//! Budgets in Redis: one hash each, charged by one script, by Redis's own clock.
//!
//! Keys are `weir:{<rule>:<value in hex>}`: a budget is one key. The braces are a hash tag of Redis Cluster, but a
//! cluster is refused: some scripts take keys of several slots. The charges of a report travel as one pipeline of
//! `EVALSHA`; if Redis has lost the scripts (it was restarted), the pipeline is sent again behind the script, which is
//! harmless. Strict budgets are `weir:strict:{<rule>:<value in hex>}`, drawn on in the same way, and calendar quotas
//! `weir:quota:day:{<rule>:<value in hex>}` or `weir:quota:month:{...}`. Rule sets are `weir:rules`, POPs `weir:pops`
//! and `weir:fleet`, hot keys `weir:hot`, bans `weir:{boxed}` and `weir:{boxed}:changed`.

mod bans;
mod draw;
mod fleet;
mod rules;
mod send;

use std::time::Duration;

use redis::{Client, Pipeline, RedisResult, TlsCertificates};
use weir_budget::ban::BannedKey;
use weir_budget::budget::{
    Account, BudgetId, CHARGE_TOKENS_MAX, COUNT_MAX, DEFICIT_NS_MAX, Demand, GRACE_US, KEPT_US_MAX,
    LENIENCE_US, LOOK_US, MEMBER_IDLE_US, MEMBERS_MAX, Member, SOURCES_KEPT, SOURCES_MAX, STEP_KEPT_US,
    STEP_US,
};
use weir_budget::escrow::{Draw, Drawn};
use weir_budget::hot::{HOT_MAX, HotKey, LISTED_MS, RANK_MAX};
use weir_budget::plan::Entry;
use weir_budget::pops::PopNote;
use weir_budget::source::{DELAY_US_MAX, MADE_MS_MAX, PACE_US};
use weir_budget::spill::{SPILL_KEPT_US, SPILLS_MAX};
use weir_budget::spread::{
    AGAIN_MIN, SPREAD_DEBT_US_MAX, SPREAD_KEPT_US, SPREAD_MAX, SPREAD_MOMENT_US, fill_us,
};
use weir_budget::text::Hex;
use weir_wire::calendar::Calendar;
use weir_wire::messages::POPS_MAX;

use self::send::Lua;
use super::link::Link;
use super::rules::{Kept, Put, Stored};
use super::{Answer, Batch, Store, StoreError};
use crate::fleet::Seen;

/// The sorted set of live POPs.
const FLEET_KEY: &str = "weir:pops";
/// The sorted set of hot keys.
const HOT_KEY: &str = "weir:hot";

/// Budgets in Redis.
#[derive(Debug)]
pub struct Redis {
    link: Link,
    charge: Lua,
    draw: Lua,
    register: Lua,
    hot: Lua,
    bans: Lua,
    known_bans: bans::Known,
    rules: Lua,
    fleet: Lua,
    pop_ttl_us: u64,
}

/// What [`Redis`] needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an answer may take.
    pub response_timeout: Duration,
    /// How long a POP that says nothing counts as alive.
    pub pop_ttl: Duration,
    /// Certificates (PEM) to trust for `rediss://`, instead of the system's.
    pub ca_pem: Option<Vec<u8>>,
}

impl Redis {
    /// Starts connecting to `url` (`redis://` or `rediss://`) in the background. Must run inside
    /// tokio. Errors: the URL or the certificates cannot be used; certificates are of no use without TLS.
    pub fn new(url: &str, options: Options) -> RedisResult<Self> {
        let client = match options.ca_pem {
            Some(pem) => {
                Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert: Some(pem) })
            }
            None => Client::open(url),
        }?;
        let texts = [
            charge_script(),
            draw::script(),
            register_script(),
            hot_script(),
            bans::script(),
            rules::script(),
            fleet::script(),
        ];
        let [charge, draw, register, hot, bans, rules, fleet] = texts.each_ref().map(|text| Lua::new(text));
        Ok(Self {
            link: Link::new(client, options.response_timeout, texts.into()),
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

    async fn send<T: redis::FromRedisValue>(&self, calls: &Pipeline, script: &Lua) -> Result<T, StoreError> {
        send::send(&self.link, calls, script).await
    }
}

impl Store for Redis {
    fn charge<'a>(&'a self, batch: &'a Batch<'a>) -> Answer<'a, Vec<Account>> {
        Box::pin(async move {
            if batch.entries.is_empty() {
                return Ok(Vec::new());
            }
            let mut pipeline = Pipeline::with_capacity(batch.entries.len());
            for entry in batch.entries {
                add_charge(&mut pipeline, self.charge.get_hash(), batch, entry);
            }
            let rows: Vec<Row> = self.send(&pipeline, &self.charge).await?;
            if rows.len() != batch.entries.len() {
                return Err(StoreError::Nonsense("another number of accounts"));
            }
            rows.iter().map(account).collect()
        })
    }

    fn draw<'a>(&'a self, pop: &'a str, draws: &'a [Draw]) -> Answer<'a, Vec<Drawn>> {
        Box::pin(async move {
            if draws.is_empty() {
                return Ok(Vec::new());
            }
            let pipeline = draw::pipeline(self.draw.get_hash(), pop, draws);
            draw::drawn(draws, &self.send::<Vec<draw::Row>>(&pipeline, &self.draw).await?)
        })
    }

    fn register<'a>(&'a self, pop: &'a str) -> Answer<'a, u32> {
        Box::pin(async move {
            let mut pipeline = Pipeline::new();
            pipeline
                .cmd("EVALSHA")
                .arg(self.register.get_hash())
                .arg(1)
                .arg(FLEET_KEY)
                .arg(pop)
                .arg(self.pop_ttl_us);
            let (live,): (u32,) = self.send(&pipeline, &self.register).await?;
            Ok(live.max(1))
        })
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> Answer<'a, Vec<HotKey>> {
        Box::pin(async move {
            let mut pipeline = Pipeline::new();
            let command = pipeline.cmd("EVALSHA").arg(self.hot.get_hash()).arg(1).arg(HOT_KEY);
            for key in mine {
                command.arg(key.rank.min(RANK_MAX)).arg(key.to_string());
            }
            let (list,): (Vec<String>,) = self.send(&pipeline, &self.hot).await?;
            // What cannot be read was put there by a newer version, or by another program.
            Ok(list.iter().filter_map(|text| text.parse().ok()).collect())
        })
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> Answer<'a, Vec<BannedKey>> {
        Box::pin(async move {
            let since_us = self.known_bans.since_us();
            let pipeline = bans::pipeline(self.bans.get_hash(), since_us, mine);
            let (row,): (bans::Row,) = self.send(&pipeline, &self.bans).await?;
            Ok(self.known_bans.heard(since_us, &row))
        })
    }

    fn put_rules<'a>(&'a self, put: &'a Put<'a>) -> Answer<'a, Stored> {
        Box::pin(rules::put(self, put))
    }

    fn rules_version(&self) -> Answer<'_, Option<u64>> {
        Box::pin(rules::version(self))
    }

    fn get_rules(&self, version: u64) -> Answer<'_, Option<String>> {
        Box::pin(rules::document(self, version))
    }

    fn kept_rules(&self) -> Answer<'_, Vec<Kept>> {
        Box::pin(rules::kept(self))
    }

    fn note_pops<'a>(&'a self, member: &'a str, pops: &'a [PopNote]) -> Answer<'a, ()> {
        Box::pin(fleet::note(self, member, pops))
    }

    fn fleet(&self) -> Answer<'_, Vec<Seen>> {
        Box::pin(fleet::read(self))
    }

    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(async { self.link.connection().map(|_| ()) })
    }
}

/// What the script returns: `deficit_us`, `deficit_ns`, `spread`, `charged`, `now_us`, members.
type Row = (u64, u64, u32, u64, u64, String);

/// The name of a budget's hash.
pub fn budget_key(id: &BudgetId) -> String {
    key_under("weir:", id)
}

/// The name of the hash of a strict budget or a calendar quota.
pub fn escrow_key(calendar: Option<Calendar>, id: &BudgetId) -> String {
    match calendar {
        None => key_under("weir:strict:", id),
        Some(calendar) => key_under(&format!("weir:quota:{}:", calendar.name()), id),
    }
}

fn key_under(prefix: &str, id: &BudgetId) -> String {
    format!("{prefix}{{{}:{}}}", id.rule, Hex(&id.value))
}

fn add_charge(pipeline: &mut Pipeline, hash: &str, batch: &Batch<'_>, entry: &Entry) {
    let token_ns = entry.quota.token_ns();
    let command = pipeline.cmd("EVALSHA").arg(hash).arg(1).arg(budget_key(&entry.id));
    command.arg(batch.member).arg(entry.demand.milli.min(COUNT_MAX)).arg(entry.demand.askers);
    command.arg(token_ns / 1_000).arg(token_ns % 1_000).arg(fill_us(entry.quota)).arg(batch.pop);
    for count in &entry.counts {
        let admitted = count.admitted.min(COUNT_MAX);
        command.arg(format!("{:016x}", count.epoch)).arg(admitted).arg(count.unconfirmed.min(admitted));
        command.arg(count.span_us.min(COUNT_MAX)).arg(count.missing.min(CHARGE_TOKENS_MAX));
        command.arg(count.made_ms.min(MADE_MS_MAX));
    }
}

fn deficit(whole_us: u64, rest_ns: u64) -> Result<u64, StoreError> {
    let deficit_ns = whole_us.checked_mul(1_000).and_then(|ns| ns.checked_add(rest_ns));
    deficit_ns.ok_or(StoreError::Nonsense("a deficit beyond its maximum"))
}

fn account((whole_us, rest_ns, spread, charged, now_us, members): &Row) -> Result<Account, StoreError> {
    let deficit_ns = deficit(*whole_us, *rest_ns)?;
    let members = members.split_terminator(';').map(|text| member(text, *now_us)).collect::<Option<Vec<_>>>();
    let mut members = members.ok_or(StoreError::Nonsense("members that cannot be read"))?;
    members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Account { deficit_ns, spread: *spread, charged: *charged, now_us: *now_us, members })
}

/// Reads `region=milli,askers,at_us`.
fn member(text: &str, now_us: u64) -> Option<Member> {
    let (name, rest) = text.split_once('=')?;
    let mut numbers = rest.split(',').map(|number| number.parse::<u64>().ok());
    let (milli, askers, at_us) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let demand = Demand { milli, askers: u32::try_from(askers).ok()? };
    Some(Member { name: name.to_owned(), demand, age_us: now_us.saturating_sub(at_us) })
}

/// The script, with weir-budget's maxima in front.
fn charge_script() -> String {
    let maxima = [
        ("CHARGE_TOKENS_MAX", CHARGE_TOKENS_MAX),
        ("DEFICIT_US_MAX", DEFICIT_NS_MAX / 1_000),
        ("SOURCES_MAX", SOURCES_MAX as u64),
        ("SOURCES_KEPT", SOURCES_KEPT as u64),
        ("MEMBERS_MAX", MEMBERS_MAX as u64),
        ("MEMBER_IDLE_US", MEMBER_IDLE_US),
        ("GRACE_US", GRACE_US),
        ("KEPT_US_MAX", KEPT_US_MAX),
        ("STEP_US", STEP_US),
        ("LOOK_US", LOOK_US),
        ("STEP_KEPT_US", STEP_KEPT_US),
        ("SPILL_KEPT_US", SPILL_KEPT_US),
        ("SPILLS_MAX", SPILLS_MAX as u64),
        ("DELAY_US_MAX", DELAY_US_MAX),
        ("LENIENCE_US", LENIENCE_US),
        ("PACE_US", PACE_US),
        ("SPREAD_KEPT_US", SPREAD_KEPT_US),
        ("AGAIN_MIN", u64::from(AGAIN_MIN)),
        ("SPREAD_MAX", u64::from(SPREAD_MAX)),
        ("SPREAD_MOMENT_US", SPREAD_MOMENT_US),
        ("SPREAD_DEBT_US_MAX", SPREAD_DEBT_US_MAX),
    ];
    const { assert!(COUNT_MAX < 1 << 53, "Lua has doubles only") };
    with_maxima(&maxima, include_str!("charge.lua"))
}

fn hot_script() -> String {
    let maxima = [("HOT_MAX", HOT_MAX as u64), ("LISTED_MS", LISTED_MS), ("RANK_MAX", u64::from(RANK_MAX))];
    with_maxima(&maxima, include_str!("hot.lua"))
}

fn register_script() -> String {
    with_maxima(&[("POPS_MAX", u64::from(POPS_MAX))], include_str!("register.lua"))
}

fn with_maxima(maxima: &[(&str, u64)], text: &str) -> String {
    let lines = maxima.iter().map(|(name, value)| format!("local {name} = {value}\n"));
    lines.chain([text.to_owned()]).collect()
}
