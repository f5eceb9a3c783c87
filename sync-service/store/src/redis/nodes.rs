//! Masters of a cluster: a [`Server`] each, and the map from keys to masters.
//!
//! All masters are asked for the map of slots every second, and whenever an answer shows that it changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::confirmer::patience;
use super::server::{Reach, Server};
use super::slots::{SlotMap, View, slot_of};
use crate::address::Node;
use crate::dial::connect;
use crate::link::OpenConnection;
use crate::trouble::{Episode, explain};
use crate::{Master, StoreError, lock};

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two reads.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Time for which a link to a node without slots is kept after its last call: slots may be on their way to it.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Time-out for an answer of a seed, if no master is in reach.
const SEED_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Nodes {
    reach: Reach,
    shards: Mutex<Shards>,
    /// Notified when an answer shows that slots have moved.
    stale: Notify,
}

#[derive(Debug)]
struct Shards {
    slots: SlotMap,
    links: BTreeMap<Node, Shard>,
    /// Reason why the map of slots is unknown.
    trouble: StoreError,
}

#[derive(Clone, Debug)]
struct Shard {
    server: Arc<Server>,
    used_at: Instant,
}

impl Nodes {
    pub(super) fn new(reach: Reach) -> Self {
        let shards = Shards { slots: SlotMap::default(), links: BTreeMap::new(), trouble: StoreError::Connecting };
        let shards = Mutex::new(shards);
        Self { reach, shards, stale: Notify::new() }
    }

    pub(super) fn ping(&self) -> Result<(), StoreError> {
        let shards = lock(&self.shards);
        let mut reason = shards.trouble.clone();
        for shard in shards.links.values() {
            match shard.server.link.connection() {
                Ok(_) => return Ok(()),
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }

    pub(super) fn masters(&self) -> Vec<Master> {
        let shards = lock(&self.shards);
        let masters = shards.slots.nodes();
        let served = shards.links.iter().filter(|(node, _)| masters.contains(node));
        served.filter_map(|(_, shard)| shard.server.master()).collect()
    }

    pub(super) fn master_of(&self, key: &str) -> Result<Node, StoreError> {
        let shards = lock(&self.shards);
        match shards.slots.node_of(slot_of(key)) {
            Some(node) => Ok(node.clone()),
            None if shards.links.is_empty() => Err(shards.trouble.clone()),
            None => Err(StoreError::Unreachable("no node of the cluster serves this key".into())),
        }
    }

    /// The server at `node`. A redirect may lead to a node that took over before it is in the map of slots.
    pub(super) fn server_at(&self, node: &Node) -> Arc<Server> {
        let mut shards = lock(&self.shards);
        let shard = shards.links.entry(node.clone()).or_insert_with(|| self.connect(node, "probe".into()));
        shard.used_at = Instant::now();
        Arc::clone(&shard.server)
    }

    /// Requests an early read of the map of slots.
    pub(super) fn look_soon(&self) {
        self.stale.notify_one();
    }

    /// Keeps the map of slots up to date.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut episode = Episode::default();
        loop {
            match self.look().await {
                Ok(view) => {
                    let now = Instant::now();
                    self.adopt(view, now);
                    // Failures of the nodes themselves are logged by their links.
                    episode.is_over(now);
                }
                Err(reason) => {
                    if episode.is_news(&reason) {
                        let (kind, server) = (reason.kind(), self.reach.dialer.address.to_string());
                        tracing::warn!(
                            kind,
                            server,
                            "which node of the cluster serves which keys is not known: {reason}"
                        );
                    }
                    lock(&self.shards).trouble = reason;
                }
            }
            sleep(LOOK_PAUSE).await;
            // A time-out means that the next read is due.
            let _ = timeout(LOOK_INTERVAL, self.stale.notified()).await;
        }
    }

    /// Reads the map of slots from the masters in reach, and from the seeds if none of these serves keys.
    async fn look(&self) -> Result<View, StoreError> {
        let known = |(node, shard): (&Node, &Shard)| (node.clone(), Arc::clone(&shard.server.link));
        let links: Vec<_> = lock(&self.shards).links.iter().map(known).collect();
        let open = links.into_iter().filter_map(|(node, link)| Some((link.connection().ok()?, node, link)));
        let answers = join_all(open.map(|(open, node, link)| async move {
            let view = ask_view(&open, &node.host).await;
            view.inspect_err(|reason| link.failed(&open, reason.clone()))
        }));
        let (mut views, mut reason) = (Vec::new(), StoreError::Connecting);
        let mut apply = |answers: Vec<Result<View, StoreError>>| {
            for answer in answers {
                match answer {
                    Ok(view) => views.push(view),
                    Err(why) => reason = why,
                }
            }
            views.iter().any(|view| view.is_ok)
        };
        if !apply(answers.await) {
            let seeds = self.reach.dialer.address.nodes.iter();
            apply(join_all(seeds.map(|seed| self.ask_seed(seed))).await);
        }
        View::best(&views).cloned().ok_or(reason)
    }

    async fn ask_seed(&self, seed: &Node) -> Result<View, StoreError> {
        let asking = async {
            let client = self.reach.dialer.client_of(seed).await?;
            let connection = connect(&client, SEED_TIMEOUT).await?;
            ask_view(&OpenConnection { connection, limit: SEED_TIMEOUT, generation: 0 }, &seed.host).await
        };
        let slow = || StoreError::Unreachable(format!("{seed} takes no connection, or does not answer on it"));
        timeout(SEED_TIMEOUT, asking).await.unwrap_or_else(|_| Err(slow()))
    }

    /// Connects to new masters of `view` and drops old ones. Ignores a node that serves no keys, if others are known.
    fn adopt(&self, View { is_ok, slots, .. }: View, now: Instant) {
        let mut shards = lock(&self.shards);
        let is_news = shards.slots != slots && (is_ok || shards.links.is_empty());
        if is_ok {
            // Even without a change: a call that was on its way may have connected to an old master again.
            let masters = slots.nodes();
            shards.links.retain(|node, shard| {
                let is_used = now.duration_since(shard.used_at) < IDLE_MAX;
                masters.contains(node) || (!is_news && is_used)
            });
        }
        if !is_news {
            return;
        }
        for node in slots.nodes() {
            shards.links.entry(node.clone()).or_insert_with(|| self.connect(node, slots.tag_of(node)));
        }
        (shards.slots, shards.trouble) = (slots, StoreError::Connecting);
    }

    /// Connects to `node`. Probes have the hash tag `tag`: a server that no longer serves its slot answers `MOVED`.
    fn connect(&self, node: &Node, tag: String) -> Shard {
        let server = Arc::new(Server::new(&self.reach, Some((node.clone(), tag))));
        Shard { server, used_at: Instant::now() }
    }

    /// Maximum time that calls may take together. Confirmed calls also wait for a replica.
    pub(super) fn limit(&self, is_confirmed: bool) -> Duration {
        let shards = lock(&self.shards);
        let limits =
            shards.links.values().filter_map(|shard| shard.server.link.connection().ok()).map(|open| open.limit);
        let confirmed = self.reach.confirmed.as_ref().filter(|_| is_confirmed);
        let wait = confirmed.map(|(_, wait)| patience(*wait)).unwrap_or_default();
        limits.max().unwrap_or(self.reach.response_timeout) + wait
    }
}

async fn ask_view(open: &OpenConnection, host: &str) -> Result<View, StoreError> {
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let mut connection = open.connection.clone();
    let (info, slots): (String, Value) = match timeout(open.limit, questions.query_async(&mut connection)).await {
        Ok(answer) => answer.map_err(|error| explain(&error, open.limit))?,
        Err(_) => return Err(StoreError::Slow(open.limit.as_millis())),
    };
    View::read(&info, &slots, host)
        .ok_or_else(|| StoreError::Unreachable("it is no node of a cluster that serves any keys".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::NodeMap;
    use crate::clock::Clocks;
    use crate::dial::{Dialer, LoginFiles};

    #[tokio::test]
    async fn a_master_can_be_left_a_second_time() {
        // Nobody listens there.
        let dialer = Dialer::new("redis+cluster://127.0.0.1:1", LoginFiles::default(), NodeMap::default());
        let nodes = Nodes::new(Reach {
            keys: crate::keys::RedisKeys::new("weir"),
            dialer: Arc::new(dialer.unwrap()),
            response_timeout: SEED_TIMEOUT,
            scripts: Arc::from([]),
            confirmed: None,
            clocks: Arc::new(Clocks::new()),
        });
        let view = |port, is_ok| {
            let master = Value::Array(vec![Value::BulkString("127.0.0.1".into()), Value::Int(port)]);
            let row = Value::Array(vec![Value::Int(0), Value::Int(16_383), master]);
            let info = "cluster_state:ok\r\ncluster_current_epoch:1\r\n";
            let view = View::read(info, &Value::Array(vec![row]), "").unwrap();
            View { is_ok, ..view }
        };
        let known = || lock(&nodes.shards).links.keys().map(|node| node.port).collect::<Vec<_>>();
        let begin = Instant::now();
        nodes.adopt(view(1, true), begin);
        let old = nodes.master_of("a key").unwrap();
        nodes.adopt(view(2, true), begin);
        assert_eq!(known(), [2]);
        // The call that goes to the old master was on its way.
        drop(nodes.server_at(&old));
        nodes.adopt(view(2, true), Instant::now());
        assert_eq!(known(), [1, 2], "it may be the one that slots are moved to");
        let later = Instant::now() + IDLE_MAX;
        nodes.adopt(view(2, false), later);
        assert_eq!(known(), [1, 2], "who serves nothing knows nothing");
        nodes.adopt(view(2, true), later);
        assert_eq!(known(), [2]);
    }
}
