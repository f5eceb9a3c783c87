//! Rules changed in a running fleet: three regions, each an Envoy and a weir-sync, one Redis, load on all of them.
//!
//! Two clients ask at each POP all the time, the one at `/changed`, whose rule the tests change, the other at
//! `/kept`, whose rule stays. The one gets 200 while the rule is wide and 429 while it is narrow, so its last answer
//! of the old kind shows since when the new rules hold. Envoys have two workers; each asks over a connection to each.

mod changes;
mod refused;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::JoinHandle;
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::Setup;
use weir_tests::load::{Run, Tally, open_loop_until};
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::region::{self, Region};

use crate::plugin::{rule, rules, with};

const REGIONS: [&str; 3] = ["fra1", "nyc1", "sgp1"];
/// The longest time until a change is in force everywhere, from the answer to it.
const CHANGED_WITHIN: Duration = Duration::from_secs(1);
/// Requests per second of each connection of the load; a POP has four.
const ASKED: u32 = 40;
/// Requests that the rule for `/changed` admits at once, and per second, while it is wide: far more than come.
const WIDE: (&str, u32) = ("1000/s", 1_000);
/// And while it is narrow: its budget gives one request at first, and no more while a test lasts.
const NARROW: (&str, u32) = ("1/h", 1);
/// The load's client.
const CLIENT: &str = "203.0.113.7";

/// A document that is the same but for the rule of `/changed`.
fn document((rate, burst): (&str, u32)) -> Value {
    let at = |path: &str| json!({"path": {"exact": path}});
    let kept = with(rule("kept", "1000/s", 1_000), "match", at("/kept"));
    let few = with(with(rule("few", "1/h", 20), "match", at("/few")), "response", json!({"on_allowed": true}));
    rules([with(rule("changed", rate, burst), "match", at("/changed")), kept, few])
}

/// Three of them. Tests that measure do not run beside each other.
struct Fleet {
    regions: Vec<Region>,
    _redis: Redis,
    _alone: MutexGuard<'static, ()>,
}

impl Fleet {
    /// Starts it with `document` put as the fleet's first version, and waits until all POPs run that.
    async fn start(document: &Value) -> (Self, u64) {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let redis = Redis::start().await;
        let setup = Setup::with(document.clone()).concurrency(2);
        let regions = Region::start_all(&REGIONS, &redis.url(), &setup, &[]).await;
        let version = region::put(&regions, document).await;
        (Self { regions, _redis: redis, _alone: alone }, version)
    }

    /// An operator at the weir-sync of one region.
    fn operator(&self, region: usize) -> Operator {
        self.regions[region].operator()
    }

    /// Load on every POP until it is stopped; it is well under way when this returns.
    async fn load(&self) -> Load {
        let (stop, stopped) = watch::channel(false);
        let start = |client: Client, path: &str| {
            let (mut client, ask, stopped) = (client, Ask::get(path).forwarded_for(CLIENT), stopped.clone());
            tokio::spawn(async move { open_loop_until(&mut client, &ask, ASKED, stopped).await })
        };
        let pops = self.regions.iter().map(|Region { edge, .. }| PopLoad {
            changed: edge.clients(2).into_iter().map(|client| start(client, "/changed")).collect(),
            kept: edge.clients(2).into_iter().map(|client| start(client, "/kept")).collect(),
        });
        let load = Load { pops: pops.collect(), stop };
        for Region { edge, .. } in &self.regions {
            let total = "http.edge.downstream_rq_total";
            edge.stat_reaches(total, edge.stat(total).await.unwrap_or_default() + u64::from(ASKED)).await;
        }
        load
    }

    /// Takes `count` of the 20 tokens that a client has under the rule `few` at each POP, each POP's its own; what
    /// is left of them there. While more than half of them are, no report lets the fleet give it back.
    async fn take_few(&self, count: usize) -> Vec<u64> {
        let mut left = vec![];
        for (n, region) in (1..).zip(&self.regions) {
            let ask = Ask::get("/few").forwarded_for(&format!("198.51.100.{n}"));
            let mut client = region.edge.client();
            for _ in 1..count {
                assert_eq!(client.send(&ask).await.status, 200);
            }
            left.push(client.send(&ask).await.number("x-ratelimit-remaining"));
        }
        left
    }
}

/// The load on one POP.
struct PopLoad {
    changed: Vec<JoinHandle<Run>>,
    kept: Vec<JoinHandle<Run>>,
}

/// The load on all.
struct Load {
    pops: Vec<PopLoad>,
    stop: watch::Sender<bool>,
}

/// The answers to the clients of `/changed` at each POP, over all connections to it.
struct Answers(Vec<Vec<Run>>);

impl Load {
    /// Stops it, and panics unless every request was answered with 200 or 429, and those to `/kept` with 200.
    async fn stop(self) -> Answers {
        // What the change brought is to be seen for longer than it may take.
        tokio::time::sleep(2 * CHANGED_WITHIN).await;
        self.stop.send_replace(true);
        let (mut all, mut answers) = (Tally::default(), vec![]);
        for pop in self.pops {
            for run in ended(pop.kept).await {
                assert_eq!(run.tally.admitted(), run.tally.total(), "the rule that stays: {:?}", run.tally);
                all.merge(&run.tally);
            }
            let changed = ended(pop.changed).await;
            for run in &changed {
                all.merge(&run.tally);
            }
            answers.push(changed);
        }
        all.assert_only_decisions();
        println!("{} requests: {} admitted, {} limited", all.total(), all.admitted(), all.limited());
        Answers(answers)
    }
}

impl Answers {
    /// Panics unless at every POP the last answer 429 (or, if `opens` is false, the last 200) came within a second
    /// of `changed_at`, when the answer to the change was there, and the other kind after it; what took how long.
    fn assert_turned(&self, what: &str, opens: bool, changed_at: Instant) {
        for (name, runs) in REGIONS.iter().zip(&self.0) {
            let kinds = runs.iter().map(|run| {
                if opens { (&run.limited_at, &run.admitted_at) } else { (&run.admitted_at, &run.limited_at) }
            });
            let (mut last_old, mut is_turned) = (changed_at, true);
            for (old, new) in kinds {
                last_old = old.iter().copied().fold(last_old, Instant::max);
                is_turned &= new.last().is_some_and(|at| *at > changed_at);
            }
            let took = last_old - changed_at;
            println!("{what}: in force at {name} {took:?} after the answer");
            assert!(is_turned, "{what}: {name} never got it");
            assert!(took <= CHANGED_WITHIN, "{what}: {name} acted by the old rules {took:?} later");
        }
    }
}

async fn ended(runs: Vec<JoinHandle<Run>>) -> Vec<Run> {
    let mut ended = vec![];
    for run in runs {
        ended.push(run.await.unwrap_or_else(|e| panic!("the load broke off: {e}")));
    }
    ended
}
