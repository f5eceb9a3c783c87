//! The connection to Redis: opened, watched and reopened in the background.
//!
//! While Redis is out of reach, asking for the connection fails at once with the reason: a report
//! never waits for a reconnect. A connection counts as good once the scripts are loaded and a write
//! went through, so a replica, a full or a loading Redis counts as out of reach.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::StoreError;

/// The first pause before connecting again.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest pause before connecting again.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How often an idle connection is tried.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How much longer than one answer opening a connection may take: name look-up, TLS, password.
const OPEN_TIMEOUT_FACTOR: u32 = 4;
/// What a probe writes; it expires by itself.
const PROBE_KEY: &str = "weir:probe";

/// A connection that mends itself; the background work ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    state: Arc<watch::Sender<State>>,
    failed: Arc<Notify>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
enum State {
    Up(MultiplexedConnection),
    Down(String),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up(_) => f.write_str("Up"),
            Self::Down(reason) => f.debug_tuple("Down").field(reason).finish(),
        }
    }
}

impl Link {
    /// Starts connecting; `scripts` are loaded on every new connection. Must run inside tokio.
    pub fn new(client: Client, response_timeout: Duration, scripts: Vec<String>) -> Self {
        let state = Arc::new(watch::Sender::new(State::Down("not connected yet".into())));
        let failed = Arc::new(Notify::new());
        let keeper = Keeper {
            client,
            response_timeout,
            scripts,
            failed: Arc::clone(&failed),
            state: Arc::clone(&state),
        };
        Self { state, failed, task: tokio::spawn(keeper.run()) }
    }

    /// The connection, or at once why there is none.
    pub fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        match &*self.state.borrow() {
            State::Up(connection) => Ok(connection.clone()),
            State::Down(reason) => Err(StoreError::Unreachable(reason.clone())),
        }
    }

    /// Tells that the connection failed: it counts as gone until it has answered a probe, and is
    /// replaced if it does not. So one report pays for finding out, and the others do not wait.
    pub fn failed(&self) {
        self.state.send_replace(State::Down("an exchange with it just failed".into()));
        self.failed.notify_one();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What runs in the background.
struct Keeper {
    client: Client,
    response_timeout: Duration,
    scripts: Vec<String>,
    failed: Arc<Notify>,
    state: Arc<watch::Sender<State>>,
}

impl Keeper {
    async fn run(self) {
        let mut backoff = BACKOFF_MIN;
        loop {
            let reason = match self.open().await {
                Ok(connection) => {
                    tracing::info!("connected to the store");
                    let opened = Instant::now();
                    self.state.send_replace(State::Up(connection.clone()));
                    let reason = self.watch(connection).await;
                    if opened.elapsed() > BACKOFF_MAX {
                        backoff = BACKOFF_MIN;
                    }
                    reason
                }
                Err(reason) => reason,
            };
            self.fall(reason);
            sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Says so once per reason, not once per try.
    fn fall(&self, reason: String) {
        let news = !matches!(&*self.state.borrow(), State::Down(known) if *known == reason);
        if news {
            tracing::warn!(reason, "the store is out of reach");
        }
        self.state.send_replace(State::Down(reason));
    }

    /// A connection that works, or why there is none.
    async fn open(&self) -> Result<MultiplexedConnection, String> {
        let limit = self.response_timeout * OPEN_TIMEOUT_FACTOR;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(self.response_timeout));
        let work = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            for script in &self.scripts {
                redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async::<String>(&mut connection).await?;
            }
            probe(&mut connection).await?;
            Ok(connection)
        };
        match timeout(limit, work).await {
            Ok(result) => result.map_err(|error: redis::RedisError| error.to_string()),
            Err(_) => Err(format!("no connection within {} ms", limit.as_millis())),
        }
    }

    /// Returns why the connection is no longer good.
    async fn watch(&self, mut connection: MultiplexedConnection) -> String {
        loop {
            let told = tokio::select! {
                () = self.failed.notified() => true,
                () = sleep(PROBE_INTERVAL) => false,
            };
            let probe = timeout(self.response_timeout, probe(&mut connection));
            match probe.await {
                Ok(Ok(())) if told => self.state.send_replace(State::Up(connection.clone())),
                Ok(Ok(())) => continue,
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return format!("no answer within {} ms", self.response_timeout.as_millis()),
            };
        }
    }
}

/// Writes something, which a replica, a loading and a full Redis all refuse.
async fn probe(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    redis::cmd("SET").arg(PROBE_KEY).arg(1).arg("PX").arg(1_000).query_async(connection).await
}
