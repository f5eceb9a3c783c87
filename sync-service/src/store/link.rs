//! The connection to Redis: opened, watched and reopened in the background.
//!
//! While a server is out of reach, asking for the connection fails at once with the reason: a report never waits for a
//! reconnect. A connection counts as good once the scripts are loaded and the probe, which calls the same commands,
//! went through. So a replica, a full or loading Redis, a user with too few rights and a cluster's node are found out,
//! with the reason.
//!
//! Redis may be far away: what can be sent together is. An answer's time-out comes on top of the shortest round trip of
//! late: that is the distance, and only what goes beyond it is Redis being slow.

mod eviction;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, Script, ServerErrorKind};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::StoreError;
use super::address::Node;
use super::dial::Dialer;
use super::trouble::explain;

/// The first pause before connecting again.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest pause before connecting again.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// The same where the server may be another one each time: somebody else may have taken over.
const BACKOFF_MAX_ASKING: Duration = Duration::from_millis(250);
/// How often an idle connection is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How much longer than one answer opening a connection may take at first: name look-up, TLS, password.
const OPEN_TIMEOUT_FACTOR: u32 = 4;
/// The longest that opening a connection may take. What takes too long is tried again with twice the time.
const OPEN_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// The longest round trip that is added to an answer's time-out; what takes longer is no distance.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);
/// For how long the shortest round trip counts as the distance: for so long a store that moved away may seem slow.
const ROUND_TRIP_KEPT: Duration = Duration::from_mins(1);
/// What a probe writes; it expires by itself. A node of a cluster refuses one or the other.
const PROBE_KEYS: [&str; 2] = ["weir:probe", "weir:{probe}:set"];

/// Where a link leads.
#[derive(Clone, Debug)]
pub enum Place {
    /// To the one server that there is.
    Only(Arc<Dialer>),
    /// To a node of a cluster.
    Node(Arc<Dialer>, Node, Arc<Tag>),
}

/// A hash tag of the slots that a node of a cluster serves: what its probes write goes there.
#[derive(Debug)]
pub struct Tag(Mutex<String>);

impl Tag {
    /// This one at first.
    pub fn new(tag: &str) -> Self {
        Self(Mutex::new(tag.to_owned()))
    }

    /// Another one from now on.
    pub fn set(&self, tag: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tag;
    }
}

impl Place {
    /// A client of the server, and where it is.
    async fn find(&self) -> Result<(Client, String), StoreError> {
        match self {
            Self::Only(dialer) => dialer.find().await,
            Self::Node(dialer, node, _) => Ok((dialer.client_of(node)?, node.to_string())),
        }
    }

    /// Whether it may be another server each time.
    fn is_asking(&self) -> bool {
        matches!(self, Self::Only(dialer) if dialer.is_asking())
    }

    fn probe_keys(&self) -> [String; 2] {
        match self {
            Self::Only(_) => PROBE_KEYS.map(str::to_owned),
            Self::Node(_, _, tag) => {
                let tag = tag.0.lock().unwrap_or_else(PoisonError::into_inner);
                ["", ":set"].map(|end| format!("weir:{{{tag}}}{end}"))
            }
        }
    }

    /// What an error of a probe means. A slot that has just moved to another node is no trouble of this one.
    fn judge(&self, error: &RedisError, limit: Duration) -> Result<(), StoreError> {
        let has_moved = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain)
        );
        if has_moved && matches!(self, Self::Node(..)) { Ok(()) } else { Err(explain(error, limit)) }
    }
}

/// A connection that mends itself; the background work ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    state: Arc<watch::Sender<State>>,
    failed: Arc<Notify>,
    task: JoinHandle<()>,
}

/// A good connection.
#[derive(Clone)]
pub struct Open {
    /// The connection itself.
    pub connection: MultiplexedConnection,
    /// How long an answer may take: the store's time-out and the way there and back.
    pub limit: Duration,
    /// The connection's number.
    generation: u64,
}

impl Open {
    /// A connection that no link has.
    pub fn new(connection: MultiplexedConnection, limit: Duration) -> Self {
        Self { connection, limit, generation: 0 }
    }
}

#[derive(Clone)]
enum State {
    Opening,
    Up { open: Open, refused: Option<StoreError> },
    Down(StoreError),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Opening => f.write_str("Opening"),
            Self::Up { .. } => f.write_str("Up"),
            Self::Down(reason) => f.debug_tuple("Down").field(reason).finish(),
        }
    }
}

impl Link {
    /// Starts connecting; `scripts` are loaded on every new connection. An answer may take `response_timeout` beside
    /// the round trip. Must run inside tokio.
    pub fn new(place: Place, response_timeout: Duration, scripts: Arc<[String]>) -> Self {
        let state = Arc::new(watch::Sender::new(State::Opening));
        let failed = Arc::new(Notify::new());
        let keeper = Keeper {
            place,
            response_timeout,
            scripts,
            failed: Arc::clone(&failed),
            state: Arc::clone(&state),
            said: None,
            round_trips: RoundTrips::default(),
            generation: 0,
        };
        Self { state, failed, task: tokio::spawn(keeper.run()) }
    }

    /// The connection, or at once why there is none.
    pub fn connection(&self) -> Result<Open, StoreError> {
        match &*self.state.borrow() {
            State::Up { open, .. } => Ok(open.clone()),
            State::Down(reason) => Err(reason.clone()),
            State::Opening => Err(StoreError::Connecting),
        }
    }

    /// The connection, once it was tried to open one; `limit` is how long to wait for that.
    pub async fn opened(&self, limit: Duration) -> Result<Open, StoreError> {
        let mut states = self.state.subscribe();
        // Either the link's own state says why there is none, or it is still being opened.
        let _ = timeout(limit, states.wait_for(|state| !matches!(state, State::Opening))).await;
        self.connection()
    }

    /// Tells that an exchange over the connection `used` failed, and why. If Redis was out of reach or slow, the
    /// connection counts as gone until it has answered a probe, and is replaced if it does not: so one report pays for
    /// finding out, and the others do not wait. A refusal may be of one exchange; the probe finds one of all.
    pub fn failed(&self, used: &Open, reason: StoreError) {
        let is_gone = matches!(reason, StoreError::Unreachable(_) | StoreError::Slow(_));
        let is_down = self.state.send_if_modified(|state| match state {
            State::Up { open, refused } if open.generation == used.generation => {
                if is_gone {
                    *state = State::Down(reason);
                } else {
                    *refused = Some(reason);
                }
                is_gone
            }
            // An earlier connection failed, or it is known already.
            _ => false,
        });
        if is_down {
            self.failed.notify_one();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What runs in the background.
struct Keeper {
    place: Place,
    response_timeout: Duration,
    scripts: Arc<[String]>,
    failed: Arc<Notify>,
    state: Arc<watch::Sender<State>>,
    /// What was last logged; nothing since the connection was last good.
    said: Option<StoreError>,
    round_trips: RoundTrips,
    /// The number of the latest connection.
    generation: u64,
}

impl Keeper {
    async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        let (mut patience, mut is_memory_seen) = (self.patience(), false);
        loop {
            let tried_at = Instant::now();
            let reason = match self.open(patience).await {
                Ok((connection, round_trip, server)) => {
                    tracing::info!(round_trip_ms = round_trip.as_millis(), server, "connected to the store");
                    self.said = None;
                    let opened = Instant::now();
                    self.generation += 1;
                    self.round_trips.note(round_trip, opened);
                    self.rise(&connection);
                    is_memory_seen = is_memory_seen || eviction::look(&connection, self.limit()).await;
                    let reason = self.watch(connection).await;
                    patience = self.patience();
                    if opened.elapsed() > BACKOFF_MAX {
                        backoff = BACKOFF_MIN;
                    }
                    reason
                }
                Err(reason) => {
                    // Another server may be found next time, which answers sooner.
                    if tried_at.elapsed() >= patience && !self.place.is_asking() {
                        patience = (patience * 2).min(self.patience_max());
                    }
                    reason
                }
            };
            self.say(&reason);
            self.state.send_replace(State::Down(reason));
            sleep(backoff).await;
            let backoff_max = if self.place.is_asking() { BACKOFF_MAX_ASKING } else { BACKOFF_MAX };
            backoff = (backoff * 2).min(backoff_max);
        }
    }

    /// How long an answer may take: its time, and the way there and back.
    fn limit(&self) -> Duration {
        self.response_timeout + self.round_trips.shortest().min(ROUND_TRIP_MAX)
    }

    /// How long opening a connection may take.
    fn patience(&self) -> Duration {
        (self.limit() * OPEN_TIMEOUT_FACTOR).min(self.patience_max())
    }

    fn patience_max(&self) -> Duration {
        OPEN_TIMEOUT_MAX.max(self.response_timeout)
    }

    fn rise(&self, connection: &MultiplexedConnection) {
        let (limit, generation) = (self.limit(), self.generation);
        let open = Open { connection: connection.clone(), limit, generation };
        self.state.send_replace(State::Up { open, refused: None });
    }

    /// Logs a reason once, not once per try.
    fn say(&mut self, reason: &StoreError) {
        if self.said.as_ref() != Some(reason) {
            tracing::warn!(kind = reason.kind(), "{reason}");
            self.said = Some(reason.clone());
        }
    }

    /// A connection that works, and how long the way there and back takes; or why there is none.
    async fn open(&self, limit: Duration) -> Result<(MultiplexedConnection, Duration, String), StoreError> {
        // The limit of it all is below; exchanges have theirs where their answers are awaited.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let work = async {
            let (client, server) = self.place.find().await?;
            let connection = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut connection = connection.map_err(|error| explain(&error, limit))?;
            let sent_at = Instant::now();
            let greeted = self.greeting().exec_async(&mut connection).await;
            greeted.or_else(|error| self.place.judge(&error, limit))?;
            Ok((connection, sent_at.elapsed(), server))
        };
        match timeout(limit, work).await {
            Ok(result) => result,
            // Without the limit, which changes from try to try.
            Err(_) => Err(StoreError::Unreachable("it takes no connection, or does not answer on it".into())),
        }
    }

    /// Calls what the scripts call: a replica, a full or loading Redis and a user's lack of rights show.
    fn probe(&self) -> Pipeline {
        let (text, keys) = (include_str!("probe.lua"), self.place.probe_keys());
        let mut pipeline = Pipeline::new();
        pipeline.cmd("SCRIPT").arg("LOAD").arg(text).ignore();
        pipeline.cmd("EVALSHA").arg(Script::new(text).get_hash()).arg(keys.len()).arg(&keys).ignore();
        pipeline
    }

    /// All that a new connection begins with, in one go: Redis may be far away.
    fn greeting(&self) -> Pipeline {
        let mut pipeline = self.probe();
        for script in &*self.scripts {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script).ignore();
        }
        pipeline
    }

    /// Returns why the connection is no longer good.
    async fn watch(&mut self, mut connection: MultiplexedConnection) -> StoreError {
        loop {
            let told = tokio::select! {
                () = self.failed.notified() => true,
                () = sleep(PROBE_INTERVAL) => false,
            };
            let refused = match &*self.state.borrow() {
                State::Up { refused, .. } => refused.clone(),
                State::Opening | State::Down(_) => None,
            };
            if let Some(reason) = refused {
                // Nobody else would hear of what the probe does not find.
                self.say(&reason);
            }
            let (sent_at, limit) = (Instant::now(), self.limit());
            let answer = match timeout(limit, self.probe().exec_async(&mut connection)).await {
                Ok(answer) => answer.or_else(|error| self.place.judge(&error, limit)),
                Err(_) => Err(StoreError::Slow(limit.as_millis())),
            };
            match answer {
                Ok(()) => self.round_trips.note(sent_at.elapsed(), sent_at),
                Err(reason) => return reason,
            }
            // A connection that failed during this probe waits for the next.
            if told || matches!(&*self.state.borrow(), State::Up { .. }) {
                self.rise(&connection);
            }
        }
    }
}

/// Recent round trips that no later one was as short as: the first is the shortest.
#[derive(Default)]
struct RoundTrips(VecDeque<(Instant, Duration)>);

impl RoundTrips {
    fn note(&mut self, took: Duration, at: Instant) {
        while self.0.back().is_some_and(|(_, known)| *known >= took) {
            self.0.pop_back();
        }
        self.0.push_back((at, took));
        while self.0.front().is_some_and(|(noted, _)| at.duration_since(*noted) > ROUND_TRIP_KEPT) {
            self.0.pop_front();
        }
    }

    /// Zero while none is known.
    fn shortest(&self) -> Duration {
        self.0.front().map_or(Duration::ZERO, |(_, took)| *took)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{ROUND_TRIP_KEPT, RoundTrips};

    #[test]
    fn a_slow_redis_is_no_distant_one() {
        let (mut trips, begin) = (RoundTrips::default(), Instant::now());
        let ms = Duration::from_millis;
        assert_eq!(trips.shortest(), Duration::ZERO);
        for (at_s, took_ms, shortest_ms) in
            [(0, 80, 80), (1, 20, 20), (2, 1_500, 20), (30, 900, 20), (40, 1_500, 20), (61, 1_500, 20)]
        {
            trips.note(ms(took_ms), begin + Duration::from_secs(at_s));
            assert_eq!(trips.shortest(), ms(shortest_ms), "at {at_s} s");
        }
        // A store that has moved away for good is a distant one.
        trips.note(ms(1_500), begin + ROUND_TRIP_KEPT + Duration::from_secs(2));
        assert_eq!(trips.shortest(), ms(900));
        assert!(trips.0.len() <= 3);
    }

    /// The commands that a script calls.
    fn called(script: &str) -> BTreeSet<&str> {
        let calls = script.split("call('").skip(1).chain(script.split("call, '").skip(1));
        calls.filter_map(|rest| rest.split('\'').next()).collect()
    }

    #[test]
    fn the_probe_calls_what_the_scripts_call() {
        let scripts = [
            include_str!("charge.lua"),
            include_str!("draw.lua"),
            include_str!("register.lua"),
            include_str!("hot.lua"),
            include_str!("bans.lua"),
            include_str!("rules.lua"),
            include_str!("fleet.lua"),
        ];
        let needed: BTreeSet<_> = scripts.into_iter().flat_map(called).collect();
        assert!(needed.len() > 15, "{needed:?}");
        let probe = include_str!("probe.lua");
        let tried: BTreeSet<_> =
            probe.split("try('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
        assert_eq!(tried, needed);
    }
}
