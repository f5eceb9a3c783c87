//! A Redis Cluster: a [`Link`] to each master, and calls that go where their keys are.
//!
//! What goes to one master goes in one pipeline, and to all masters at once. A master that is out of reach fails its
//! own calls, at once while its link is down. Which slots are whose is asked every second, and whenever an answer shows
//! that it changed; a call whose key has moved is sent there.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use redis::{AsyncConnectionConfig, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::exchange::{Call, Manner, error_kind, exchange};
use super::script::Lua;
use super::slots::{Slots, slot_of};
use crate::store::StoreError;
use crate::store::address::Node;
use crate::store::dial::Dialer;
use crate::store::link::{Link, Open, Place, Tag};
use crate::store::trouble::explain;

/// How often a call is sent again that a server could not take.
const RETRIES: usize = 2;
/// How long to wait before that, in milliseconds: at least, and less than this.
const PAUSE_MS: Range<u32> = 20..100;
/// How often to ask which slots are whose.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two such questions.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How long a seed may take to answer, if no master is in reach.
const SEED_TIMEOUT: Duration = Duration::from_secs(2);

/// The masters of a cluster. The background work ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    dialer: Arc<Dialer>,
    response_timeout: Duration,
    scripts: Arc<[String]>,
    /// How long a replica may take to have what a call did; without this it is not waited for.
    wait: Option<Duration>,
    shards: Mutex<Shards>,
    /// Notified when an answer shows that slots have moved.
    stale: Notify,
}

#[derive(Debug)]
struct Shards {
    slots: Slots,
    links: BTreeMap<Node, Shard>,
    /// Why nothing is known of the slots.
    trouble: StoreError,
}

#[derive(Clone, Debug)]
struct Shard {
    link: Arc<Link>,
    tag: Arc<Tag>,
}

/// A call that has no answer yet.
struct Waiting {
    /// Its number among all.
    at: usize,
    call: Call,
    /// The node to send it to, if it is not that of its slot, and whether the key is only being moved there.
    redirected: Option<(Node, bool)>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cluster {
    /// Starts connecting; `scripts` are loaded on each new connection. Must run inside tokio.
    pub(super) fn new(
        dialer: Arc<Dialer>,
        response_timeout: Duration,
        scripts: Arc<[String]>,
        wait: Option<Duration>,
    ) -> Self {
        let shards =
            Shards { slots: Slots::default(), links: BTreeMap::new(), trouble: StoreError::Connecting };
        let shared = Shared {
            dialer,
            response_timeout,
            scripts,
            wait,
            shards: Mutex::new(shards),
            stale: Notify::new(),
        };
        let shared = Arc::new(shared);
        Self { task: tokio::spawn(Arc::clone(&shared).follow()), shared }
    }

    /// What each of `calls` of `script` gave.
    pub(super) async fn send(&self, calls: Vec<Call>, script: &Arc<Lua>) -> Vec<Result<Value, StoreError>> {
        let mut answers: Vec<Result<Value, StoreError>> = Vec::new();
        answers.resize_with(calls.len(), || Err(StoreError::Nonsense("no answer")));
        let calls = calls.into_iter().enumerate();
        let mut waiting: Vec<_> = calls.map(|(at, call)| Waiting { at, call, redirected: None }).collect();
        let until = Instant::now() + self.shared.limit() + self.shared.wait.unwrap_or_default();
        for retry in 0..=RETRIES {
            // The first try is bounded by the links' own limits.
            let within = (retry > 0).then(|| until.saturating_duration_since(Instant::now()));
            let sent = self.send_once(waiting, script, within).await;
            let is_last =
                retry == RETRIES || Instant::now() + Duration::from_millis(PAUSE_MS.end.into()) >= until;
            let mut is_pause_due = false;
            waiting = Vec::new();
            for (mut sent, answer) in sent {
                let next = answer.as_ref().map_or(Next::Take, next);
                if matches!(next, Next::Take) || is_last {
                    if let Some(place) = answers.get_mut(sent.at) {
                        *place = self.shared.settle(&sent, answer);
                    }
                    continue;
                }
                sent.redirected = match next {
                    Next::Go(node, is_asking) => Some((node, is_asking)),
                    Next::Take | Next::Pause => None,
                };
                is_pause_due |= sent.redirected.is_none();
                waiting.push(sent);
            }
            if waiting.is_empty() {
                break;
            }
            self.shared.stale.notify_one();
            if is_pause_due {
                sleep(pause()).await;
            }
        }
        answers
    }

    /// Sends each call once.
    async fn send_once(
        &self,
        waiting: Vec<Waiting>,
        script: &Arc<Lua>,
        within: Option<Duration>,
    ) -> Vec<(Waiting, Result<Value, StoreError>)> {
        let mut groups: HashMap<(Node, bool), Vec<Waiting>> = HashMap::new();
        let mut sent = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            match self.shared.place_of(&waiting) {
                Ok(place) => groups.entry(place).or_default().push(waiting),
                Err(reason) => sent.push((waiting, Err(reason))),
            }
        }
        let mut trips = JoinSet::new();
        for ((node, is_asking), group) in groups {
            let (shared, script) = (Arc::clone(&self.shared), Arc::clone(script));
            let manner = Manner { within, is_asking, wait: self.shared.wait };
            trips.spawn(async move {
                let answers = shared.trip(&node, &group, &script, manner).await;
                group.into_iter().zip(answers).collect::<Vec<_>>()
            });
        }
        while let Some(trip) = trips.join_next().await {
            // It cannot panic, and nobody aborts it.
            sent.extend(trip.unwrap_or_default());
        }
        sent
    }

    /// Whether a master is in reach; an error says why none is.
    pub(super) fn ping(&self) -> Result<(), StoreError> {
        let shards = self.shared.shards();
        let mut reason = shards.trouble.clone();
        for shard in shards.links.values() {
            match shard.link.connection() {
                Ok(_) => return Ok(()),
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }
}

/// What to do about an answer.
enum Next {
    Take,
    /// The key is at this node, or is being moved there.
    Go(Node, bool),
    /// Somebody is about to take over: send it again a little later, to whoever has the slot then.
    Pause,
}

fn next(answer: &Value) -> Next {
    use ServerErrorKind as Kind;
    let Some(ErrorKind::Server(kind)) = error_kind(answer) else { return Next::Take };
    let node = match answer {
        Value::ServerError(error) => {
            let error = RedisError::from(error.clone());
            error.redirect_node().and_then(|(node, _)| Node::read(node))
        }
        _ => None,
    };
    match (kind, node) {
        (Kind::Moved, Some(node)) => Next::Go(node, false),
        (Kind::Ask, Some(node)) => Next::Go(node, true),
        (
            Kind::Moved
            | Kind::Ask
            | Kind::TryAgain
            | Kind::ClusterDown
            | Kind::MasterDown
            | Kind::ReadOnly
            | Kind::BusyLoading,
            _,
        ) => Next::Pause,
        _ => Next::Take,
    }
}

fn pause() -> Duration {
    // Calls that failed together need not come back together.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let more_ms = now.subsec_micros() % (PAUSE_MS.end - PAUSE_MS.start);
    Duration::from_millis((PAUSE_MS.start + more_ms).into())
}

impl Shared {
    fn shards(&self) -> MutexGuard<'_, Shards> {
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the slots up to date.
    async fn follow(self: Arc<Self>) {
        loop {
            match self.look().await {
                Ok(slots) => self.take(slots),
                Err(reason) => self.note(reason),
            }
            sleep(LOOK_PAUSE).await;
            // A timeout is a look that is due.
            let _ = timeout(LOOK_INTERVAL, self.stale.notified()).await;
        }
    }

    /// Logs a reason once, not once per look.
    fn note(&self, reason: StoreError) {
        let mut shards = self.shards();
        if shards.trouble != reason {
            tracing::warn!(
                kind = reason.kind(),
                "which node of the cluster serves which keys is not known: {reason}"
            );
            shards.trouble = reason;
        }
    }

    /// Which slots are whose, as a master says; or a seed, if no master is in reach.
    async fn look(&self) -> Result<Slots, StoreError> {
        let links: Vec<_> =
            self.shards().links.iter().map(|(node, shard)| (node.clone(), Arc::clone(&shard.link))).collect();
        for (node, link) in links {
            let Ok(open) = link.connection() else { continue };
            match ask_slots(&open, &node.host).await {
                Ok(slots) => return Ok(slots),
                Err(reason) => link.failed(&open, reason),
            }
        }
        let mut reason = StoreError::Connecting;
        for seed in self.dialer.address().nodes() {
            match self.ask_seed(seed).await {
                Ok(slots) => return Ok(slots),
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }

    async fn ask_seed(&self, seed: &Node) -> Result<Slots, StoreError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let client = self.dialer.client_of(seed)?;
        let asking = async {
            let connection = client.get_multiplexed_async_connection_with_config(&config).await;
            let connection = connection.map_err(|error| explain(&error, SEED_TIMEOUT))?;
            ask_slots(&Open::new(connection, SEED_TIMEOUT), &seed.host).await
        };
        let slow =
            || StoreError::Unreachable(format!("{seed} takes no connection, or does not answer on it"));
        timeout(SEED_TIMEOUT, asking).await.unwrap_or_else(|_| Err(slow()))
    }

    /// Goes by `slots` from now on: new masters are connected to, old ones left.
    fn take(&self, slots: Slots) {
        let mut shards = self.shards();
        if shards.slots == slots {
            return;
        }
        shards.links.retain(|node, _| slots.nodes().any(|master| master == node));
        for node in slots.nodes() {
            let tag = slots.tag_of(node);
            shards.links.entry(node.clone()).or_insert_with(|| self.connect(node, &tag)).tag.set(tag);
        }
        (shards.slots, shards.trouble) = (slots, StoreError::Connecting);
    }

    fn connect(&self, node: &Node, tag: &str) -> Shard {
        let tag = Arc::new(Tag::new(tag));
        let place = Place::Node(Arc::clone(&self.dialer), node.clone(), Arc::clone(&tag));
        Shard { link: Arc::new(Link::new(place, self.response_timeout, Arc::clone(&self.scripts))), tag }
    }

    /// The most that calls may take together.
    fn limit(&self) -> Duration {
        let shards = self.shards();
        let limits =
            shards.links.values().filter_map(|shard| shard.link.connection().ok()).map(|open| open.limit);
        limits.max().unwrap_or(self.response_timeout)
    }

    /// The node that a call goes to, and whether its key is only being moved there.
    fn place_of(&self, Waiting { call, redirected, .. }: &Waiting) -> Result<(Node, bool), StoreError> {
        if let Some(redirected) = redirected {
            return Ok(redirected.clone());
        }
        let shards = self.shards();
        match shards.slots.node_of(slot_of(&call.key)) {
            Some(node) => Ok((node.clone(), false)),
            None if shards.links.is_empty() => Err(shards.trouble.clone()),
            None => Err(StoreError::Unreachable("no node of the cluster serves this key".into())),
        }
    }

    /// Sends a group of calls to `node`.
    async fn trip(
        &self,
        node: &Node,
        group: &[Waiting],
        script: &Lua,
        manner: Manner,
    ) -> Vec<Result<Value, StoreError>> {
        let link = {
            let mut shards = self.shards();
            // A node that took over is known by its answers before anybody says that slots are its own.
            Arc::clone(&shards.links.entry(node.clone()).or_insert_with(|| self.connect(node, "probe")).link)
        };
        let calls = group.iter().map(|waiting| waiting.call.command.clone()).collect();
        let opened = link.opened(manner.within.unwrap_or(self.response_timeout)).await;
        let answer = match opened {
            Ok(_) => exchange(&link, calls, script, manner).await,
            Err(reason) => Err(reason),
        };
        match answer {
            Ok((_, values)) => values.into_iter().map(Ok).collect(),
            Err(reason) => {
                self.stale.notify_one();
                vec![Err(reason); group.len()]
            }
        }
    }

    /// The last answer to a call; the link hears of a refusal.
    fn settle(&self, sent: &Waiting, answer: Result<Value, StoreError>) -> Result<Value, StoreError> {
        let error = match answer? {
            Value::ServerError(error) => error,
            value => return Ok(value),
        };
        let reason = explain(&RedisError::from(error), self.response_timeout);
        if let Ok((node, _)) = self.place_of(sent) {
            let link = self.shards().links.get(&node).map(|shard| Arc::clone(&shard.link));
            if let Some((link, open)) =
                link.and_then(|link| Some((Arc::clone(&link), link.connection().ok()?)))
            {
                link.failed(&open, reason.clone());
            }
        }
        Err(reason)
    }
}

async fn ask_slots(open: &Open, host: &str) -> Result<Slots, StoreError> {
    let mut command = redis::cmd("CLUSTER");
    let mut connection = open.connection.clone();
    let asking = command.arg("SLOTS").query_async::<Value>(&mut connection);
    let answer = match timeout(open.limit, asking).await {
        Ok(answer) => answer.map_err(|error| explain(&error, open.limit))?,
        Err(_) => return Err(StoreError::Slow(open.limit.as_millis())),
    };
    Slots::read(&answer, host)
        .ok_or_else(|| StoreError::Unreachable("it is no node of a cluster that serves any keys".into()))
}
