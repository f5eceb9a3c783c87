//! A Redis Cluster: three masters, and a replica of each.

use std::process::Command;
use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::port;
use crate::redis::{OPERATOR, Redis, Setup, in_a_group};
use crate::wait::until;

const MASTERS: usize = 3;

/// The servers of a cluster. Dropping it ends all.
#[derive(Debug)]
pub struct Cluster {
    /// The first three are masters at first.
    pub servers: Vec<Redis>,
}

impl Cluster {
    /// Starts one whose replicas take over about `timeout_ms` after a master fell silent, and waits until it serves
    /// every slot and the replicas are in step.
    pub async fn start(timeout_ms: u32) -> Self {
        let cluster = Self::create(2 * MASTERS, timeout_ms, &Setup::default()).await;
        cluster.in_step().await;
        cluster
    }

    /// Starts one without replicas, and waits until it serves every slot.
    pub async fn start_masters() -> Self {
        Self::start_masters_with(&Setup::default()).await
    }

    /// The same, with the certificates of `setup`, or with clocks of their own.
    pub async fn start_masters_with(setup: &Setup) -> Self {
        let cluster = Self::create(MASTERS, 5_000, setup).await;
        cluster.is_up().await;
        cluster
    }

    async fn create(count: usize, timeout_ms: u32, setup: &Setup) -> Self {
        let mut servers = Vec::with_capacity(count);
        let is_tls = if setup.tls.is_some() { "yes" } else { "no" };
        for _ in 0..count {
            let (bus, timeout) = (port::free().to_string(), timeout_ms.to_string());
            let settings = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                &timeout,
                "--cluster-require-full-coverage",
                "no",
                "--cluster-replica-validity-factor",
                "0",
                "--tls-cluster",
                is_tls,
            ];
            let Setup { tls, client_ca, has_own_clock, .. } = setup.clone();
            let setup = Setup { tls, client_ca, has_own_clock, ..in_a_group(&settings) };
            servers.push(Redis::start_with(setup).await);
        }
        let cluster = Self { servers };
        let addresses = cluster.servers.iter().map(|server| server.address().to_string());
        let mut create: Vec<String> = vec!["create".into()];
        create.extend(addresses);
        let replicas = (count / MASTERS - 1).to_string();
        create.extend(["--cluster-yes", "--cluster-replicas", &replicas].map(str::to_owned));
        create.extend(cluster.servers[0].tls_options());
        operate(&create);
        cluster
    }

    /// The servers that are masters at first.
    pub fn masters(&self) -> &[Redis] {
        &self.servers[..MASTERS]
    }

    /// Waits until every node knows of every slot.
    async fn is_up(&self) {
        for server in &self.servers {
            let mut connection = server.operator().await;
            until("the cluster to be up", async || {
                let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.ok()?;
                (info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")).then_some(())
            })
            .await;
        }
    }

    /// Waits until every node knows of every slot, and every replica has what its master has.
    pub async fn in_step(&self) {
        self.is_up().await;
        for server in self.masters() {
            let mut connection = server.operator().await;
            until("a replica to be in step", async || {
                let replicas: u32 = redis::cmd("WAIT").arg(1).arg(100).query_async(&mut connection).await.ok()?;
                (replicas >= 1).then_some(())
            })
            .await;
        }
    }

    /// weir-sync's URL for it: two of its nodes.
    pub fn url(&self) -> String {
        let seeds: Vec<_> = self.servers[1..3].iter().map(|server| server.address().to_string()).collect();
        let scheme = if self.servers[0].tls_options().is_empty() { "redis" } else { "rediss" };
        format!("{scheme}+cluster://weir-user:correct-horse@{}", seeds.join(","))
    }

    /// Drops all that is stored, and the scripts with it.
    pub async fn flush(&self) {
        for server in self.masters() {
            let mut connection = server.operator().await;
            for command in ["FLUSHALL", "SCRIPT FLUSH"] {
                let mut words = command.split(' ');
                let mut flush = redis::cmd(words.next().unwrap_or_default());
                words.for_each(|word| {
                    flush.arg(word);
                });
                flush.query_async::<()>(&mut connection).await.unwrap_or_else(|e| panic!("{command}: {e}"));
            }
        }
    }

    /// The master of `key` according to the server `asked`.
    pub async fn master_of(&self, key: &str, asked: usize) -> Option<usize> {
        let mut connection = self.servers[asked].operator().await;
        let mut command = redis::cmd("CLUSTER");
        let slot: i64 = command.arg("KEYSLOT").arg(key).query_async(&mut connection).await.ok()?;
        let mut command = redis::cmd("CLUSTER");
        let rows: Vec<Vec<redis::Value>> = command.arg("SLOTS").query_async(&mut connection).await.ok()?;
        let port = rows.iter().find_map(|row| match row.as_slice() {
            [redis::Value::Int(first), redis::Value::Int(last), redis::Value::Array(master), ..]
                if (*first..=*last).contains(&slot) =>
            {
                match master.get(1) {
                    Some(redis::Value::Int(port)) => u16::try_from(*port).ok(),
                    _ => None,
                }
            }
            _ => None,
        })?;
        self.servers.iter().position(|server| server.port() == port)
    }

    /// Moves the slot of `key` from one master to another, with all that is in it. For `half` the slot is announced to
    /// move and its keys have not, and for as long again they have and the slot is not the other's yet.
    pub async fn move_slot_of(&self, key: &str, from: usize, to: usize, half: Duration) {
        let [mut source, mut target] = [self.servers[from].operator().await, self.servers[to].operator().await];
        let slot: u16 = run(&mut source, &["CLUSTER", "KEYSLOT", key]).await;
        let [source_id, target_id]: [String; 2] =
            [run(&mut source, &["CLUSTER", "MYID"]).await, run(&mut target, &["CLUSTER", "MYID"]).await];
        let slot = slot.to_string();
        let set = |what, node| ["CLUSTER", "SETSLOT", &slot, what, node];
        let () = run(&mut target, &set("IMPORTING", &source_id)).await;
        let () = run(&mut source, &set("MIGRATING", &target_id)).await;
        sleep(half).await;
        let keys: Vec<String> = run(&mut source, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
        let port = self.servers[to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "1000", "AUTH2", OPERATOR, OPERATOR, "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        let reply: String = run(&mut source, &words).await;
        assert_eq!(reply, "OK", "{keys:?}");
        sleep(half).await;
        let () = run(&mut target, &set("NODE", &target_id)).await;
        let () = run(&mut source, &set("NODE", &target_id)).await;
    }
}

/// The reply to a command.
async fn run<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(connection).await.unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

/// Runs `redis-cli --cluster` with these arguments.
fn operate(arguments: &[String]) {
    let mut command = Command::new("redis-cli");
    command.args(["--user", OPERATOR, "--pass", OPERATOR, "--no-auth-warning", "--cluster"]).args(arguments);
    let output = command.output().unwrap_or_else(|e| panic!("cannot run redis-cli: {e}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "redis-cli --cluster {arguments:?}: {text}");
}
