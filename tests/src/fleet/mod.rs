//! Three real regions: an Envoy and a weir-sync in each, one Redis for all, and between them links that
//! take their time and can be cut.
//!
//! ```text
//! generator.rs   the open loop that sends them
//! reference.rs   what one ideal bucket would have admitted of the same
//! run.rs         what a load saw
//! scenario.rs    the loads it is measured under: when each request is sent, and to which POP
//! ```

pub mod generator;
pub mod reference;
pub mod run;
pub mod scenario;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use weir_protocol::quota::Quota;

use crate::client::Ask;
use crate::envoy::{Envoy, Setup};
use crate::link::Link;
use crate::redis::Redis;
use crate::wait::until;
use crate::weir_sync::{TOKEN, WeirSync};

use generator::Generator;
use run::Run;
use scenario::Arrival;

/// The regions' names; each has one POP.
pub const REGIONS: [&str; POPS] = ["fra1", "nyc1", "sgp1"];
/// Regions, and so POPs and weir-syncs.
pub const POPS: usize = 3;
/// Between two reports of a POP.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// Time that a POP waits for weir-sync's answer.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// One way between a POP and the weir-sync of its region.
pub const NEAR: Duration = Duration::from_millis(10);
/// One way between a weir-sync and Redis: with [`NEAR`], a round trip of 100 ms.
pub const FAR: Duration = Duration::from_millis(40);

/// A fault, all of it in one region, and Redis for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The region's weir-sync is killed.
    WeirSyncKilled,
    /// The region's link to Redis is cut.
    StoreCut,
    /// Redis is killed, and comes back empty.
    RedisKilled,
    /// Between the region's POP and its weir-sync messages are dropped silently.
    PopSilenced,
}

/// A fault during a load.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// The fault.
    pub fault: Fault,
    /// When, from the beginning of the load.
    pub from: Duration,
    /// The time at which it is repaired.
    pub to: Duration,
}

/// The region that an [`Outage`] is in.
pub const BROKEN: usize = 1;

/// A region's parts. The links first: nothing breaks noisily when they end.
struct Region {
    near: Link,
    far: Link,
    edge: Envoy,
    weir_sync: WeirSync,
}

/// The regions and their Redis. Dropping it ends all of them.
pub struct Fleet {
    regions: Vec<Region>,
    redis: Redis,
    quota: Quota,
    generator: Generator,
    /// The number of clients so far: each load's are new.
    clients: usize,
}

impl Fleet {
    /// Starts all of it, with one rule per address, and waits until every POP knows that there are three.
    pub async fn start(rate: u32, burst: u32) -> Self {
        let redis = Redis::start().await;
        let mut regions = vec![];
        for name in REGIONS {
            regions.push(Region::start(name, &redis, plugin(name, rate, burst)).await);
        }
        let quota = reference::per_second(rate, burst);
        let generator = Generator::new(regions.iter().map(|region| region.edge.address()).collect()).await;
        let mut fleet = Self { regions, redis, quota, generator, clients: 0 };
        fleet.settled().await;
        fleet
    }

    /// Waits until every weir-sync reaches Redis, and every POP knows that there are three.
    pub async fn settled(&mut self) {
        for region in &mut self.regions {
            region.weir_sync.answers("/readyz", 200).await;
        }
        for region in &self.regions {
            until("every weir-sync to know of three POPs", async || {
                let pops = region.weir_sync.metric("weir_sync_pops").await;
                (pops == Some(float(POPS))).then_some(())
            })
            .await;
        }
        for region in &self.regions {
            // The answer under way may be older than that.
            region.edge.counter_grows("weir.sync.answered", 2).await;
        }
    }

    /// Sends each schedule in the name of a client of its own that was never here before, and gives what
    /// became of it all.
    pub async fn run(&mut self, schedules: Vec<Vec<Arrival>>) -> Run {
        let load = self.begin(schedules, Instant::now());
        Run::new(self.quota, ended(load).await)
    }

    /// The same with an outage meanwhile. Afterwards all is whole again.
    pub async fn run_through(&mut self, schedules: Vec<Vec<Arrival>>, outage: Outage) -> Run {
        let began = Instant::now();
        let load = self.begin(schedules, began);
        sleep_until(began + outage.from).await;
        self.strike(outage.fault).await;
        sleep_until(began + outage.to).await;
        self.repair(outage.fault).await;
        Run::new(self.quota, ended(load).await)
    }

    fn begin(&mut self, schedules: Vec<Vec<Arrival>>, began: Instant) -> tokio::task::JoinHandle<Vec<generator::Sent>> {
        let first = self.clients + 1;
        self.clients += schedules.len();
        let asks = (first..=self.clients).map(|client| Ask::from(&address(client))).collect();
        tokio::spawn(self.generator.clone().run(asks, schedules, began))
    }

    async fn strike(&mut self, fault: Fault) {
        let broken = &mut self.regions[BROKEN];
        match fault {
            Fault::WeirSyncKilled => broken.weir_sync.kill(),
            Fault::StoreCut => broken.far.cut().await,
            Fault::RedisKilled => self.redis.kill(),
            Fault::PopSilenced => broken.near.silence(),
        }
    }

    async fn repair(&mut self, fault: Fault) {
        let broken = &mut self.regions[BROKEN];
        match fault {
            Fault::WeirSyncKilled => broken.weir_sync.restart().await,
            Fault::StoreCut => broken.far.heal().await,
            Fault::RedisKilled => self.redis.restart().await,
            Fault::PopSilenced => broken.near.heal().await,
        }
    }
}

async fn ended(load: tokio::task::JoinHandle<Vec<generator::Sent>>) -> Vec<generator::Sent> {
    load.await.unwrap_or_else(|e| panic!("the load broke off: {e}"))
}

impl Region {
    async fn start(name: &str, redis: &Redis, plugin: Value) -> Self {
        let far = Link::start(redis.address(), FAR).await;
        let weir_sync = WeirSync::start(name, &format!("redis://{}", far.address())).await;
        let near = Link::start(weir_sync.address(), NEAR).await;
        let setup = Setup::with(plugin).node(name).cluster("weir-sync", near.address());
        let edge = Envoy::start(setup).await;
        Self { near, far, edge, weir_sync }
    }
}

/// The address of the `n`-th client.
fn address(n: usize) -> String {
    format!("203.0.113.{n}")
}

fn plugin(pop: &str, rate: u32, burst: u32) -> Value {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    json!({
        "rules": [{"name": "per-address", "key": ["client_address"], "rate": format!("{rate}/s"), "burst": burst}],
        "sync": {
            "cluster": "weir-sync", "pop": pop, "token": TOKEN,
            "interval_ms": millis(INTERVAL), "timeout_ms": millis(TIMEOUT),
        },
    })
}

/// A count in a test, which is far below 2^52.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn float(count: usize) -> f64 {
    count as f64
}
