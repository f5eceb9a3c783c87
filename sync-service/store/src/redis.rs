//! Redis store: one string per budget, charged by one script, by Redis's own clock.
//!
//! All keys begin with the fleet's prefix (`docs/redis.md` lists them). All keys of a call must be in one slot of a
//! Redis Cluster: braces in a name are a hash tag.
//!
//! The charges of a report are sent together, as one pipeline of `EVALSHA` to each server. If a server has lost
//! the script, because it was restarted, its part is sent again after loading the script, which is harmless.
//! Strict budgets are acquired from in the same way.
//!
//! # Connections
//!
//! Connections, pipelines, errors and TLS are the `redis` crate's. Its `ClusterConnection` was tried, and the code of
//! its `Sentinel` read, both of version 1.8. Neither is used:
//!
//! - A cluster's pipeline must be of one slot, so each key is a request of its own. A report of 64 keys to three local
//!   masters takes 700 to 850 us, and 380 to 780 us as one pipeline to each master.
//! - `WAIT` confirms what its own connection sent before. A pipeline of acquires cannot end in it, for the same reason,
//!   and a request that is sent again over a new connection would be confirmed at once.
//! - A call whose master is down or hung is sent to other nodes until its time is over: each report waits 500 ms, where
//!   a link that is known to be down fails at once, with the reason.
//! - The map of slots is that of the first node that answers, and the master that of the first sentinel. One that is
//!   cut off may name a former master, on which tokens would be debited twice. Here the latest epoch and the majority
//!   of the sentinels count.
//! - Passwords and certificates are read once, not for each connection.

mod acquire;
mod charge;
mod cluster;
mod confirmer;
mod exchange;
mod nodes;
mod rules;
mod script;
mod server;
mod shared;
mod slots;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, Value};
use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, BudgetId, COUNT_MAX, PlanEntry};
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hot::HotKey;
use weir_budget::pops::PopRuleSet;
use weir_protocol::messages::POPS_MAX;
use weir_protocol::refill_policy::RefillPolicy;

// For the tests that compare the scripts with weir-budget.
use self::acquire::Taker;
#[doc(hidden)]
pub use self::acquire::{AcquireArguments, AcquireRow, acquired};
use self::charge::Charger;
#[doc(hidden)]
pub use self::charge::{Arguments, Charging, ImpliedReply, accounts as charge_accounts};
use self::cluster::Cluster;
use self::exchange::RoutedCommand;
#[cfg(test)]
pub(super) use self::script::texts;
use self::script::{Lua, Scripts};
#[doc(hidden)]
pub use self::script::{acquire_script, charge_script};
use self::server::{Reach, Server};
use self::shared::{KnownBans, KnownHotKeys};
use super::address::{Discovery, NodeMap};
use super::ceiling::Ceiling;
use super::clock::Clocks;
use super::dial::{DialError, Dialer, LoginFiles};
use super::keys::RedisKeys;
use super::rules::{Current, OverrideChange, RulesChange, RulesResult, StoredCanary, StoredOverrides, StoredVersion};
use super::{ChargeBatch, Each, Master, Store, StoreError, StoreFuture};
use crate::fleet::Seen;

#[derive(Debug)]
pub struct Redis {
    servers: Arc<Servers>,
    scripts: Scripts,
    keys: RedisKeys,
    /// Sender of charges; only if one server has all keys.
    charger: Option<Charger>,
    /// Sender of takes; only if they need no confirmation, and one server has all keys.
    taker: Option<Taker>,
    clocks: Arc<Clocks>,
    pop_ttl_us: u64,
    known_hot: KnownHotKeys,
    known_bans: KnownBans,
    ceiling: Ceiling,
}

/// Confirmation by replicas that acquires of strict rules wait for.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub replicas: u32,
    pub limit: Duration,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub response_timeout: Duration,
    pub pop_ttl: Duration,
    pub files: LoginFiles,
    pub nodes: NodeMap,
    /// Confirmation of acquires of strict rules; `None` to leave them unconfirmed.
    pub wait: Option<Wait>,
    /// Maximum number of live keys per rule that this weir-sync keeps in Redis.
    pub keys_max: usize,
    pub prefix: String,
}

/// One Redis, or the masters of a cluster.
#[derive(Debug)]
enum Servers {
    One(Server),
    Cluster(Cluster),
}

impl Servers {
    fn new(reach: Reach) -> Self {
        if reach.dialer.address.kind == Discovery::Cluster {
            return Self::Cluster(Cluster::new(reach));
        }
        Self::One(Server::new(&reach, None))
    }

    async fn send<T: FromRedisValue>(
        &self,
        calls: Vec<RoutedCommand>,
        script: &Arc<Lua>,
    ) -> Vec<Result<T, StoreError>> {
        let count = calls.len();
        let answers = match self {
            Self::One(server) => match server.send(calls, script, None).await {
                Ok((open, values)) => values.into_iter().map(|value| server.given(value, &open)).collect(),
                Err(reason) => vec![Err(reason); count],
            },
            Self::Cluster(cluster) => cluster.send(calls, script).await,
        };
        let read = |value| T::from_redis_value(value).map_err(|_| StoreError::Invalid("another type"));
        answers.into_iter().map(|answer: Result<Value, _>| answer.and_then(read)).collect()
    }

    fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => server.link.connection().map(|_| ()),
            Self::Cluster(cluster) => cluster.nodes.ping(),
        }
    }

    /// Masters in reach, with the result of their last confirmation by a replica, if acquires wait for one.
    fn masters(&self) -> Vec<Master> {
        match self {
            Self::One(server) => server.master().into_iter().collect(),
            Self::Cluster(cluster) => cluster.nodes.masters(),
        }
    }
}

impl Redis {
    /// Starts connecting to `url` (see [`super::address`]) in the background. Must be called inside a tokio
    /// runtime. Fails if the URL or the files cannot be used.
    pub fn new(url: &str, options: Options) -> Result<Self, DialError> {
        let dialer = Arc::new(Dialer::new(url, options.files, options.nodes)?);
        let scripts = Scripts::new();
        let clocks = Arc::new(Clocks::new());
        let confirmed = options.wait.map(|wait| (Arc::clone(&scripts.acquire), wait));
        let keys = RedisKeys::new(&options.prefix);
        let servers = Arc::new(Servers::new(Reach {
            dialer,
            keys: keys.clone(),
            response_timeout: options.response_timeout,
            scripts: Arc::clone(&scripts.all),
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
            scripts,
            keys,
            charger,
            taker,
            clocks,
            pop_ttl_us: u64::try_from(options.pop_ttl.as_micros()).unwrap_or(u64::MAX).min(COUNT_MAX / 4),
            known_hot: KnownHotKeys::default(),
            known_bans: KnownBans::default(),
            ceiling: Ceiling::new(options.keys_max),
        })
    }

    /// Sends one call of `script`, or a plain command; returns its result.
    async fn send<T: FromRedisValue>(&self, script: &Arc<Lua>, call: RoutedCommand) -> Result<T, StoreError> {
        next(&mut self.servers.send(vec![call], script).await.into_iter())
    }

    /// Calls `work` with those of `items` whose keys have room in the store, and returns a result for each item. For an
    /// item with result `T`, Redis keeps the key for the time that `kept` returns.
    async fn with_room<'a, I, T, F: Future<Output = Vec<Result<T, StoreError>>>>(
        &self,
        items: &'a [I],
        id: impl Fn(&I) -> &BudgetId,
        kept: impl Fn(&I, &T) -> Duration,
        work: impl FnOnce(Vec<&'a I>) -> F,
    ) -> Vec<Result<T, StoreError>> {
        let has_room = self.ceiling.admit(Instant::now(), items.iter().map(&id));
        let admitted: Vec<&'a I> =
            items.iter().zip(&has_room).filter(|(_, has_room)| has_room.is_ok()).map(|(item, _)| item).collect();
        // Redis refuses a call without keys, and the link would count that as a failure.
        let done = if admitted.is_empty() { Vec::new() } else { work(admitted).await };
        let mut done = done.into_iter();
        let result = |has_room: Result<(), StoreError>| has_room.and_then(|()| next(&mut done));
        let results: Vec<_> = has_room.into_iter().map(result).collect();
        let kept = |(item, result): (_, &Result<T, StoreError>)| Some((id(item), kept(item, result.as_ref().ok()?)));
        self.ceiling.keep(Instant::now(), items.iter().zip(&results).filter_map(kept));
        results
    }

    async fn charge_each(&self, batch: &ChargeBatch<'_>, entries: Vec<&PlanEntry>) -> Vec<Result<Account, StoreError>> {
        let replica: Arc<str> = batch.replica.into();
        let charging = |entry: &PlanEntry| {
            let charge = entry.charge(batch.replica, batch.pop);
            Charging::new(self.keys.budget(&entry.id), Arc::clone(&replica), &charge)
        };
        let charges = entries.into_iter().map(charging);
        if let Some(charger) = &self.charger {
            return charger.charge(charges.collect()).await;
        }
        // In a cluster all keys of a call must be in one slot, so each call has one key.
        let script = &self.scripts.charge;
        let (calls, implied): (Vec<_>, Vec<_>) = charges.map(|charging| Charging::call(script, vec![charging])).unzip();
        let answers = self.servers.send::<Vec<u8>>(calls, script).await;
        let account = |(answer, implied): (Result<Vec<u8>, StoreError>, ImpliedReply)| {
            next(&mut charge::accounts(&answer?, implied)?.into_iter().flatten().map(Ok))
        };
        answers.into_iter().zip(implied).map(account).collect()
    }

    /// Acquires tokens; returns the results in order. Takes alone are sent together with those of other reports.
    async fn acquire_each(&self, pop: &str, acquires: Vec<&AcquireRequest>) -> Vec<Result<AcquireResult, StoreError>> {
        let taken = match &self.taker {
            Some(taker) => taker.take(&acquires).await,
            None => None,
        };
        let taken = taken.unwrap_or_else(|| acquires.iter().map(|_| Ok(None)).collect());
        let script = &self.scripts.acquire;
        let others = acquires.iter().zip(&taken).filter(|(_, taken)| matches!(taken, Ok(None)));
        let calls: Vec<_> = others.map(|(acquire, _)| acquire::call(script, &self.keys, pop, acquire)).collect();
        if calls.is_empty() {
            return taken.into_iter().filter_map(Result::transpose).collect();
        }
        let mut rows = self.servers.send(calls, script).await.into_iter();
        let answer = |(acquire, taken): (&&AcquireRequest, Result<Option<AcquireResult>, StoreError>)| match taken? {
            Some(given) => Ok(given),
            None => acquired(acquire, &next(&mut rows)?),
        };
        acquires.iter().zip(taken).map(answer).collect()
    }
}

impl Store for Redis {
    fn charge<'a>(&'a self, batch: &'a ChargeBatch<'a>) -> Each<'a, Account> {
        let work = |entries| self.charge_each(batch, entries);
        Box::pin(self.with_room(batch.entries, |entry| &entry.id, charge::kept, work))
    }

    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        let work = |acquires| self.acquire_each(pop, acquires);
        Box::pin(self.with_room(acquires, |acquire| &acquire.id, acquire::kept, work))
    }

    fn forget<'a>(&'a self, id: &'a BudgetId, refill_policies: &'a [RefillPolicy]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let escrows = refill_policies.iter().map(|refill_policy| self.keys.escrow(*refill_policy, id));
            let calls = escrows.chain([self.keys.budget(id)]).map(|name| {
                let mut call = RoutedCommand::new("DEL", &name);
                call.arg(name);
                call
            });
            let deleted = self.servers.send::<u64>(calls.collect(), &self.scripts.charge).await;
            deleted.into_iter().try_for_each(|deleted| deleted.map(|_| ()))
        })
    }

    fn register<'a>(&'a self, pop: &'a str) -> StoreFuture<'a, u32> {
        Box::pin(async move {
            let live = self.record("pops", POPS_MAX as usize, &[pop.to_owned()]).await?;
            Ok(live.max(1))
        })
    }

    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> StoreFuture<'a, Vec<HotKey>> {
        Box::pin(self.exchange_hot(mine))
    }

    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> StoreFuture<'a, Vec<BannedKey>> {
        Box::pin(self.exchange_bans(mine))
    }

    fn change_rules<'a>(&'a self, change: &'a RulesChange<'a>) -> StoreFuture<'a, RulesResult> {
        Box::pin(self.write_rules(change))
    }

    fn canary(&self) -> StoreFuture<'_, Option<StoredCanary>> {
        Box::pin(self.read_canary())
    }

    fn get_rules(&self, version: u64) -> StoreFuture<'_, Option<String>> {
        Box::pin(async move {
            let (document,) = self.fields(&[format!("document:{version}")]).await?;
            Ok(document)
        })
    }

    fn kept_rules(&self) -> StoreFuture<'_, Vec<StoredVersion>> {
        Box::pin(self.read_versions())
    }

    fn current(&self) -> StoreFuture<'_, Current> {
        Box::pin(self.read_current())
    }

    fn overrides<'a>(&'a self, change: Option<&'a OverrideChange<'a>>) -> StoreFuture<'a, StoredOverrides> {
        Box::pin(self.write_overrides(change))
    }

    fn store_pop_records<'a>(&'a self, replica: &'a str, pops: &'a [PopRuleSet]) -> StoreFuture<'a, ()> {
        Box::pin(self.write_pop_records(replica, pops))
    }

    fn fleet(&self) -> StoreFuture<'_, Vec<Seen>> {
        Box::pin(self.read_pop_records())
    }

    fn store_top_keys<'a>(&'a self, replica: &'a str, text: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut call = self.top_keys_call();
            call.arg(replica).arg(text);
            self.send::<Vec<String>>(&self.scripts.top_keys, call).await.map(|_| ())
        })
    }

    fn top_keys(&self) -> StoreFuture<'_, Vec<(String, String)>> {
        Box::pin(self.send(&self.scripts.top_keys, self.top_keys_call()))
    }

    fn clock_jumps(&self) -> u64 {
        self.clocks.jumps()
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(self.servers.ping()))
    }

    fn masters(&self) -> Vec<Master> {
        self.servers.masters()
    }
}

/// Next answer; there is one for each call.
fn next<T>(rows: &mut impl Iterator<Item = Result<T, StoreError>>) -> Result<T, StoreError> {
    rows.next().unwrap_or(Err(StoreError::Invalid("no answer")))
}
