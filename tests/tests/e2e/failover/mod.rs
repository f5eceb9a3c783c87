//! Fail-overs of the store under load: three Envoys in two regions, and a cluster or sentinels behind their weir-syncs.
//!
//! The load is an open loop: each request is sent when it is due, to any of the three. Each client asks for two and
//! a half times its quota all the time, so what it gets is what its budget gives. A master that dies has passed
//! nothing on for its last second, so what it did in that is forgotten. One rule is like most rules; the other is
//! strict, and its acquires wait for a replica, so that none of them is forgotten; half of its clients come only in
//! that second. The whole load is checked, from the first request to the last.

mod checks;
mod cluster;
mod sentinels;
mod watch;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use weir_budget::budget::BudgetId;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::fleet::generator::Generator;
use weir_tests::fleet::reference::per_second;
use weir_tests::fleet::scenario::{Arrival, schedule};
use weir_tests::redis::{budget_key, escrow_key};
use weir_tests::simulation::traffic;
use weir_tests::wait::until;
use weir_tests::weir_sync::{TOKEN, WeirSync};

use self::checks::Outcome;
use self::watch::FORGOTTEN;
use crate::plugin::{rule, rules, with};

/// POPs, and the regions to whose weir-syncs they report.
const POPS: [(&str, &str); 3] = [("fra1", "fra"), ("fra2", "fra"), ("nyc1", "nyc")];
const REGIONS: [&str; 2] = ["fra", "nyc"];
/// The demand of clients, as a multiple of their quota.
const OFFERED: f64 = 2.5;
/// The length of a load.
const LASTS: Duration = Duration::from_secs(28);
/// The time at which something happens to the store, from the beginning of the load.
const AT: Duration = Duration::from_secs(8);
/// Time that an acquire waits for a replica.
const WAIT_MS: &str = "250";

/// A rule of the load.
#[derive(Debug, PartialEq)]
struct Rule {
    name: &'static str,
    path: &'static str,
    is_strict: bool,
    rate: u32,
    burst: u32,
    /// The beginning of its clients' addresses.
    network: &'static str,
    /// The number of its clients on each master.
    each: usize,
}

const STEADY: Rule =
    Rule { name: "per-address", path: "/", is_strict: false, rate: 5, burst: 5, network: "203.0.113", each: 8 };
const STRICT: Rule =
    Rule { name: "login", path: "/login", is_strict: true, rate: 1, burst: 5, network: "198.51.100", each: 4 };

impl Rule {
    fn plugin(&self) -> Value {
        let rule = rule(self.name, &format!("{}/s", self.rate), self.burst);
        let rule = with(rule, "strict", self.is_strict.into());
        with(rule, "match", json!({"path": {"exact": self.path}}))
    }

    /// The name of a client's budget in Redis.
    fn key(&self, address: &str) -> String {
        let address = address.parse().expect("an address");
        let value = KeyValue::of_address(address, Prefixes::default()).as_bytes().to_vec();
        let id = BudgetId::new(self.name.into(), value);
        if self.is_strict { escrow_key(RefillPolicy::Continuous, &id) } else { budget_key(&id) }
    }

    fn quota(&self) -> Quota {
        per_second(self.rate, self.burst)
    }
}

/// A client of one rule.
#[derive(Debug)]
struct Asker {
    rule: &'static Rule,
    address: String,
    /// The name of its budget in Redis, and the master that has it at first.
    key: String,
    shard: usize,
    /// True if it comes when a master that dies passes nothing on any more, and asks for its burst twice over until
    /// then.
    is_late: bool,
}

impl Asker {
    fn ask(&self) -> Ask {
        Ask::get(self.rule.path).forwarded_for(&self.address)
    }

    fn schedule(&self, seed: usize, lasts: Duration) -> Vec<Arrival> {
        let seed = seed.try_into().expect("a small number");
        let steady = traffic::even(OFFERED * f64::from(self.rule.rate), POPS.len());
        if !self.is_late {
            return schedule(seed, steady, lasts);
        }
        let [begins, at] =
            [AT.saturating_sub(FORGOTTEN), AT].map(|at| u64::try_from(at.as_nanos()).expect("some seconds"));
        let at_once = 2.0 * f64::from(self.rule.burst) / FORGOTTEN.as_secs_f64();
        let late = traffic::between(begins, at, traffic::even(at_once, POPS.len()));
        schedule(seed, traffic::merged(vec![late, traffic::between(at, u64::MAX, steady)]), lasts)
    }
}

/// `times` as many clients of both rules on each of `shards` masters as the rules have; `shard_of` finds a key's shard.
async fn askers(shards: usize, times: usize, shard_of: impl AsyncFn(&str) -> usize) -> Vec<Asker> {
    let mut askers: Vec<Asker> = vec![];
    for rule in [&STEADY, &STRICT] {
        let mut missing = vec![rule.each * times; shards];
        for number in 1..=254 {
            if missing.iter().all(|count| *count == 0) {
                break;
            }
            let address = format!("{}.{number}", rule.network);
            let key = rule.key(&address);
            let shard = shard_of(&key).await;
            if let Some(count) = missing.get_mut(shard).filter(|count| **count > 0) {
                *count -= 1;
                let is_late = rule.is_strict && number % 2 == 0;
                askers.push(Asker { rule, address, key, shard, is_late });
            }
        }
        assert_eq!(missing, vec![0; shards], "addresses for every master");
    }
    askers
}

/// The keys of the clients on one master that are not strict.
fn keys_on(askers: &[Asker], shard: usize) -> Vec<String> {
    let on = |asker: &&Asker| asker.shard == shard && !asker.rule.is_strict;
    askers.iter().filter(on).map(|asker| asker.key.clone()).collect()
}

/// The POPs and their weir-syncs. Dropping it ends all.
struct Fleet {
    edges: Vec<Envoy>,
    _weir_syncs: Vec<WeirSync>,
    _place: SemaphorePermit<'static>,
}

impl Fleet {
    /// Starts it over the store at `url`, where `replicas` confirm acquires, and waits until every POP knows of
    /// three.
    async fn start(url: &str, replicas: u32, place: SemaphorePermit<'static>) -> Self {
        let mut weir_syncs = vec![];
        let replicas = replicas.to_string();
        for region in REGIONS {
            let flags = ["--store-wait-ms", WAIT_MS, "--store-wait-replicas", &replicas];
            weir_syncs.push(WeirSync::start_with(region, url, &flags).await);
        }
        let mut edges = vec![];
        for (pop, region) in POPS {
            let sync = json!({"cluster": "weir-sync", "pop": pop, "token": TOKEN});
            let plugin = with(rules([STEADY.plugin(), STRICT.plugin()]), "sync", sync);
            let at = REGIONS.iter().position(|name| *name == region).expect("a region");
            let setup = Setup::with(plugin).node(pop).cluster("weir-sync", weir_syncs[at].address());
            edges.push(Envoy::start(setup).await);
        }
        for weir_sync in &mut weir_syncs {
            weir_sync.answers("/readyz", 200).await;
        }
        for weir_sync in &weir_syncs {
            until("every weir-sync to know of three POPs", async || {
                (weir_sync.metric("weir_sync_pops").await == Some(3.0)).then_some(())
            })
            .await;
        }
        for edge in &edges {
            // The answer under way may be older than that.
            edge.counter_grows("weir.sync.answered", 2).await;
        }
        Self { edges, _weir_syncs: weir_syncs, _place: place }
    }

    /// Sends what `askers` ask for, and runs `happening` meanwhile with the instant at which the load began.
    async fn load<T>(
        &self,
        askers: Vec<Asker>,
        lasts: Duration,
        happening: impl AsyncFnOnce(Instant) -> T,
    ) -> (Outcome, T) {
        let generator = Generator::new(self.edges.iter().map(Envoy::address).collect()).await;
        let asks = askers.iter().map(Asker::ask).collect();
        let schedules = (1..).zip(&askers).map(|(seed, asker)| asker.schedule(seed, lasts)).collect();
        let began = Instant::now();
        let load = tokio::spawn(generator.run(asks, schedules, began));
        let happened = happening(began).await;
        let sent = load.await.unwrap_or_else(|e| panic!("the load broke off: {e}"));
        (Outcome::new(askers, sent, lasts), happened)
    }

    /// Replies so far that were not settled, at all POPs.
    async fn partial(&self) -> u64 {
        let mut sum = 0;
        for edge in &self.edges {
            sum += edge.counter("weir.sync.partial").await;
        }
        sum
    }
}
