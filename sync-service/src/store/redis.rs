//! Redis store: one string per budget, charged by one script, by Redis's own clock.
//!
//! All keys begin with the fleet's prefix, here `weir`:
//!
//! - `weir:budget:{<rule>:<value in hex>}`: a budget. The braces are a hash tag of Redis Cluster, where all
//!   keys of a call must be in one slot.
//! - `weir:strict:{<rule>:<value in hex>}`: a strict budget. With windows the name begins with `weir:quota:day:`,
//!   `weir:quota:60s+0:` or `weir:sliding:60s+0:` instead of `weir:strict:`.
//! - `weir:rules`: rule sets; `weir:{weir:rules}:overrides`: overrides.
//! - `weir:pops` and `weir:fleet`: POPs.
//! - `weir:hot` and `weir:{weir:hot}:changed`: hot keys.
//! - `weir:{bans}` and `weir:{bans}:changed`: bans.
//! - `weir:{top_keys}` and `weir:{top_keys}:times`: top keys.
//!
//! The charges of a report are sent together, as one pipeline of `EVALSHA` to each server. If a server has lost
//! the script, because it was restarted, its part is sent again after loading the script, which is harmless.
//! Strict budgets are drawn on in the same way.

mod acquire;
mod bans;
mod changed_list;
mod charge;
mod charger;
mod cluster;
mod confirmer;
mod consume;
mod exchange;
mod fleet;
mod hot;
mod nodes;
mod overrides;
mod reach;
mod rules;
mod script;
mod server;
mod servers;
mod slots;
mod top_keys;
mod trips;

use std::sync::Arc;
use std::time::Duration;

use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, BudgetId, COUNT_MAX};
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hot::HotKey;
use weir_budget::plan::PlanEntry;
use weir_budget::pops::PopNote;
use weir_protocol::messages::POPS_MAX;
use weir_protocol::refill_policy::RefillPolicy;

pub use self::acquire::script as draw_script;
pub use self::charge::{
    Arguments, Charging, HEAD_BYTES, ImpliedReply, accounts as charge_accounts, script as charge_script,
};
use self::charger::Charger;
use self::consume::Taker;
pub use self::consume::script as take_script;
use self::exchange::RoutedCommand;
use self::reach::Reach;
use self::script::{Lua, with_maxima};
use self::servers::Servers;
use super::address::NodeMap;
use super::canary;
use super::ceiling::Ceiling;
use super::clock::{Clocks, Route};
use super::dial::{DialError, Dialer, LoginFiles};
use super::keys::RedisKeys;
pub use super::keys::{PREFIX, budget_key, escrow_key};
use super::overrides::{Current, OverrideChange, StoredOverrides};
use super::rules::{NewVersion, Stored, StoredVersion};
use super::{ChargeBatch, Each, Master, Store, StoreError, StoreFuture};
use crate::fleet::Seen;

/// Name of the sorted set of live POPs.
const LIVE: &str = "pops";

/// Store in Redis.
#[derive(Debug)]
pub struct Redis {
    servers: Arc<Servers>,
    keys: RedisKeys,
    /// Sender of charges; only if one server has all keys.
    charger: Option<Charger>,
    /// Sender of takes; only if they need no confirmation, and one server has all keys.
    taker: Option<Taker>,
    clocks: Arc<Clocks>,
    scripts: Scripts,
    known_hot: hot::KnownHotKeys,
    known_bans: bans::KnownBans,
    pop_ttl_us: u64,
    ceiling: Ceiling,
}

/// Options of a [`Redis`] store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time limit of an answer.
    pub response_timeout: Duration,
    /// Time for which a silent POP counts as alive.
    pub pop_ttl: Duration,
    /// Files with the password and the certificates.
    pub files: LoginFiles,
    /// Map from announced to reachable addresses.
    pub nodes: NodeMap,
    /// Time limit for a replica to confirm a draw of a strict rule; if none is given, draws are not confirmed.
    pub wait: Option<Duration>,
    /// Maximum number of live keys per rule that this weir-sync keeps there.
    pub keys_max: usize,
    /// Prefix of all keys.
    pub prefix: String,
}

impl Redis {
    /// Starts connecting to `url` (see [`super::address`]) in the background. Must be called inside a tokio
    /// runtime. Fails if the URL or the files cannot be used.
    pub fn new(url: &str, options: Options) -> Result<Self, DialError> {
        let dialer = Arc::new(Dialer::new(url, options.files, options.nodes)?);
        let scripts = Scripts::new();
        let clocks = Arc::new(Clocks::new());
        let confirmed = options.wait.map(|wait| (Arc::clone(&scripts.draw), wait));
        let keys = RedisKeys::new(&options.prefix);
        let servers = Arc::new(Servers::new(Reach {
            dialer,
            keys: keys.clone(),
            response_timeout: options.response_timeout,
            scripts: scripts.texts().into(),
            confirmed,
            clocks: Arc::clone(&clocks),
        }));
        let is_one = matches!(*servers, Servers::One(_));
        let charger = is_one.then(|| Charger::new(Arc::clone(&servers), Arc::clone(&scripts.charge)));
        let is_simple = is_one && options.wait.is_none();
        let take = Arc::clone(&scripts.take);
        let taker = is_simple.then(|| Taker::new(Arc::clone(&servers), take, keys.clone()));
        Ok(Self {
            servers,
            keys,
            charger,
            taker,
            clocks,
            scripts,
            known_hot: hot::KnownHotKeys::default(),
            known_bans: bans::KnownBans::default(),
            ceiling: Ceiling::new(options.keys_max),
            pop_ttl_us: u64::try_from(options.pop_ttl.as_micros()).unwrap_or(u64::MAX).min(COUNT_MAX / 4),
        })
    }
}

impl Redis {
    /// Charges `entries`; returns their accounts in order.
    async fn charge_each(
        &self,
        batch: &ChargeBatch<'_>,
        entries: &[&PlanEntry],
    ) -> Vec<Result<Account, StoreError>> {
        // Redis refuses a call without keys, and the link would count that as a failure.
        if entries.is_empty() {
            return Vec::new();
        }
        let member: Arc<str> = batch.member.into();
        let charging = |entry: &&PlanEntry| {
            let charge = entry.charge(batch.member, batch.pop);
            Charging::new(self.keys.budget(&entry.id), Arc::clone(&member), &charge)
        };
        let charges = entries.iter().map(charging);
        if let Some(charger) = &self.charger {
            return charger.charge(charges.collect()).await;
        }
        // In a cluster all keys of a call must be in one slot, so each call has one key.
        let script = &self.scripts.charge;
        let (calls, says): (Vec<_>, Vec<_>) =
            charges.map(|charging| Charging::call(script, vec![charging])).unzip();
        let said = self.servers.send::<Vec<u8>>(calls, script).await;
        let account = |(said, says): (Result<Vec<u8>, StoreError>, ImpliedReply)| {
            next(&mut charge::accounts(&said?, says)?.into_iter().flatten().map(Ok))
        };
        said.into_iter().zip(says).map(account).collect()
    }

    /// Draws on strict budgets; returns the results in order. If all draws are takes, they are combined with
    /// those of other reports.
    async fn draw_each(
        &self,
        pop: &str,
        draws: Vec<&AcquireRequest>,
    ) -> Vec<Result<AcquireResult, StoreError>> {
        let taken = match &self.taker {
            Some(taker) if draws.iter().all(|draw| consume::is_known(draw)) => taker.take(&draws).await,
            _ => draws.iter().map(|_| Ok(None)).collect(),
        };
        let others = draws.iter().zip(&taken).filter(|(_, taken)| matches!(taken, Ok(None)));
        let calls: Vec<_> =
            others.map(|(draw, _)| acquire::call(&self.scripts.draw, &self.keys, pop, draw)).collect();
        if calls.is_empty() {
            return taken.into_iter().filter_map(Result::transpose).collect();
        }
        let mut rows = self.servers.send_confirmed(calls, &self.scripts.draw).await.into_iter();
        let answer =
            |(draw, taken): (&&AcquireRequest, Result<Option<AcquireResult>, StoreError>)| match taken? {
                Some(given) => Ok(given),
                None => acquire::drawn(draw, &next(&mut rows)?),
            };
        draws.iter().zip(taken).map(answer).collect()
    }
}

impl Store for Redis {
    fn charge<'a>(&'a self, batch: &'a ChargeBatch<'a>) -> Each<'a, Account> {
        Box::pin(async move {
            if batch.entries.is_empty() {
                return Vec::new();
            }
            let has_room = self.ceiling.admit(batch.entries.iter().map(|entry| &entry.id));
            let entries = batch.entries.iter().zip(&has_room).filter(|(_, has_room)| has_room.is_ok());
            let entries: Vec<_> = entries.map(|(entry, _)| entry).collect();
            let mut accounts = self.charge_each(batch, &entries).await.into_iter();
            let account = |has_room: Result<(), StoreError>| has_room.and_then(|()| next(&mut accounts));
            let accounts: Vec<_> = has_room.into_iter().map(account).collect();
            let charged = batch.entries.iter().zip(&accounts);
            let charged = charged.filter_map(|(entry, account)| Some((entry, account.as_ref().ok()?)));
            self.ceiling.keep(charged.map(|(entry, account)| (&entry.id, charge::kept(entry, account))));
            accounts
        })
    }

    fn acquire<'a>(&'a self, pop: &'a str, draws: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        Box::pin(async move {
            if draws.is_empty() {
                return Vec::new();
            }
            let has_room = self.ceiling.admit(draws.iter().map(|draw| &draw.id));
            let wanted = draws.iter().zip(&has_room).filter(|(_, has_room)| has_room.is_ok());
            let mut given = self.draw_each(pop, wanted.map(|(draw, _)| draw).collect()).await.into_iter();
            let answer = |has_room: Result<(), StoreError>| has_room.and_then(|()| next(&mut given));
            let answers: Vec<_> = has_room.into_iter().map(answer).collect();
            let answered = draws.iter().zip(&answers);
            let answered = answered.filter_map(|(draw, given)| Some((draw, given.as_ref().ok()?)));
            self.ceiling.keep(answered.map(|(draw, given)| (&draw.id, acquire::kept(draw, given))));
            answers
        })
    }

    fn forget<'a>(&'a self, id: &'a BudgetId, refill_policies: &'a [RefillPolicy]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let escrows = refill_policies.iter().map(|refill_policy| self.keys.escrow(*refill_policy, id));
            let names = escrows.chain([self.keys.budget(id)]);
            let calls = names.map(|name| {
                let mut call = RoutedCommand::new("DEL", &name);
                call.arg(name);
                call
            });
            // No script is run, so any will do.
            let deleted = self.servers.send::<u64>(calls.collect(), &self.scripts.bans).await;
            deleted.into_iter().try_for_each(|deleted| deleted.map(|_| ()))
        })
    }

    fn register<'a>(&'a self, pop: &'a str) -> StoreFuture<'a, u32> {
        Box::pin(async move {
            let mut call = RoutedCommand::of(&self.scripts.register, &[self.keys.one(LIVE)]);
            call.arg(pop).arg(self.pop_ttl_us);
            let live: u32 = self.servers.send_one(call, &self.scripts.register).await?;
            Ok(live.max(1))
        })
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> StoreFuture<'a, Vec<HotKey>> {
        Box::pin(async move {
            let since_ms = self.known_hot.since_ms();
            let row = self
                .servers
                .send_one(hot::call(&self.scripts.hot, &self.keys, since_ms, mine), &self.scripts.hot)
                .await?;
            Ok(hot::list(&self.known_hot, since_ms, &row))
        })
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> StoreFuture<'a, Vec<BannedKey>> {
        Box::pin(async move {
            let since_ms = self.known_bans.since_ms();
            let row = self
                .servers
                .send_one(bans::call(&self.scripts.bans, &self.keys, since_ms, mine), &self.scripts.bans)
                .await?;
            Ok(bans::list(&self.known_bans, since_ms, &row))
        })
    }

    fn put_rules<'a>(&'a self, put: &'a NewVersion<'a>) -> StoreFuture<'a, Stored> {
        Box::pin(rules::put(&self.servers, &self.scripts.rules, &self.keys, put))
    }

    fn change_canary<'a>(
        &'a self,
        change: &'a canary::CanaryChange<'a>,
    ) -> StoreFuture<'a, canary::CanaryResult> {
        Box::pin(rules::change_canary(&self.servers, &self.scripts.rules, &self.keys, change))
    }

    fn canary(&self) -> StoreFuture<'_, Option<canary::StoredCanary>> {
        Box::pin(rules::canary(&self.servers, &self.scripts.rules, &self.keys))
    }

    fn rules_version(&self) -> StoreFuture<'_, Option<u64>> {
        Box::pin(rules::version(&self.servers, &self.scripts.rules, &self.keys))
    }

    fn get_rules(&self, version: u64) -> StoreFuture<'_, Option<String>> {
        Box::pin(rules::document(&self.servers, &self.scripts.rules, &self.keys, version))
    }

    fn kept_rules(&self) -> StoreFuture<'_, Vec<StoredVersion>> {
        Box::pin(rules::kept(&self.servers, &self.scripts.rules, &self.keys))
    }

    fn current(&self) -> StoreFuture<'_, Current> {
        Box::pin(overrides::current(&self.servers, &self.scripts.overrides, &self.keys))
    }

    fn overrides<'a>(&'a self, change: Option<&'a OverrideChange<'a>>) -> StoreFuture<'a, StoredOverrides> {
        Box::pin(overrides::change(&self.servers, &self.scripts.overrides, &self.keys, change))
    }

    fn note_pops<'a>(&'a self, member: &'a str, pops: &'a [PopNote]) -> StoreFuture<'a, ()> {
        let script = &self.scripts.fleet;
        Box::pin(fleet::note(&self.servers, script, &self.keys, self.pop_ttl_us, (member, pops)))
    }

    fn fleet(&self) -> StoreFuture<'_, Vec<Seen>> {
        Box::pin(fleet::read(&self.servers, &self.scripts.fleet, &self.keys, self.pop_ttl_us))
    }

    fn store_top_keys<'a>(&'a self, member: &'a str, text: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(top_keys::say(&self.servers, &self.scripts.top_keys, &self.keys, member, text))
    }

    fn top_keys(&self) -> StoreFuture<'_, Vec<(String, String)>> {
        Box::pin(top_keys::read(&self.servers, &self.scripts.top_keys, &self.keys))
    }

    fn clock_jumps(&self) -> u64 {
        self.clocks.jumps()
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.servers.ping() })
    }

    fn masters(&self) -> Vec<Master> {
        self.servers.masters()
    }
}

/// Next of the answers, of which there is one for each call.
fn next<T>(rows: &mut impl Iterator<Item = Result<T, StoreError>>) -> Result<T, StoreError> {
    rows.next().unwrap_or(Err(StoreError::Invalid("no answer")))
}

/// Scripts by name.
#[derive(Debug)]
pub(super) struct Scripts {
    charge: Arc<Lua>,
    draw: Arc<Lua>,
    take: Arc<Lua>,
    register: Arc<Lua>,
    hot: Arc<Lua>,
    bans: Arc<Lua>,
    rules: Arc<Lua>,
    overrides: Arc<Lua>,
    fleet: Arc<Lua>,
    top_keys: Arc<Lua>,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            charge: Arc::new(Lua::timed(&charge::script(), Route::Packed)),
            draw: Arc::new(Lua::timed(&acquire::script(), Route::Row(4))),
            take: Arc::new(Lua::timed(&consume::script(), Route::Row(0))),
            register: Arc::new(Lua::new(&register_script())),
            hot: Arc::new(Lua::new(&hot::script())),
            bans: Arc::new(Lua::new(&bans::script())),
            rules: Arc::new(Lua::new(&rules::script())),
            overrides: Arc::new(Lua::new(&overrides::script())),
            fleet: Arc::new(Lua::new(&fleet::script())),
            top_keys: Arc::new(Lua::new(&top_keys::script())),
        }
    }

    /// Texts of all scripts, for loading.
    pub(super) fn texts(&self) -> Vec<String> {
        let Self { charge, draw, take, register, hot, bans, rules, overrides, fleet, top_keys } = self;
        let all = [charge, draw, take, register, hot, bans, rules, overrides, fleet, top_keys];
        all.into_iter().map(|script| script.text().to_owned()).collect()
    }
}

fn register_script() -> String {
    with_maxima(&[("POPS_MAX", u64::from(POPS_MAX))], include_str!("register.lua"))
}
