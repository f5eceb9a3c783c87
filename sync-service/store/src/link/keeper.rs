//! Background task of a link: opens a connection, probes it, and opens another when it fails.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{LinkState, LinkTarget, OpenConnection};
use crate::StoreError;
use crate::address::Node;
use crate::dial::connect;
use crate::trouble::{Episode, explain};

/// The first pause before connecting again.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Longest pause for an address that may lead to another server each time: one may have taken over.
const BACKOFF_MAX_ASKING: Duration = Duration::from_millis(250);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Initial time-out for opening a connection, as a multiple of an answer's: name look-up, TLS, password.
pub(super) const OPEN_TIMEOUT_FACTOR: u32 = 4;
/// Finding the server may take this fraction of that time-out.
pub(super) const FIND_PART: u32 = 2;
/// Longest time-out for opening a connection. After a time-out the next try gets twice the time.
const OPEN_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Reason for a connection that could not be opened in time. It leaves out the time, which differs from try to try.
pub(super) const NOT_TAKEN: &str = "it takes no connection, or does not answer on it";
/// Longest round trip that is added to an answer's time-out; beyond it, the server is slow and not far away.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);

pub(super) struct Keeper {
    pub(super) target: LinkTarget,
    pub(super) response_timeout: Duration,
    pub(super) scripts: Arc<[Script]>,
    /// Notified of failures that are found elsewhere.
    pub(super) failed: Arc<Notify>,
    pub(super) state: Arc<watch::Sender<LinkState>>,
    pub(super) server: String,
    pub(super) episode: Episode,
    pub(super) round_trips: RoundTrips,
    pub(super) generation: u64,
}

impl Keeper {
    /// Keeps the connection open until the task is aborted.
    pub(super) async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        let (mut patience, mut is_memory_seen) = (self.patience(), false);
        let has_sentinels = self.target.dialer.address.has_sentinels();
        loop {
            let tried_at = Instant::now();
            let reason = match self.open(patience).await {
                Ok((connection, round_trip, named)) => {
                    if self.generation == 0 && !self.episode.is_on() {
                        let round_trip_ms = round_trip.as_millis();
                        tracing::info!(round_trip_ms, server = self.server, "connected to the store");
                    }
                    let opened = Instant::now();
                    self.generation += 1;
                    self.round_trips.record(round_trip, opened);
                    self.rise(&connection);
                    is_memory_seen = is_memory_seen || warn_of_eviction(&connection, self.limit()).await;
                    let reason = self.watch(connection, named).await;
                    patience = self.patience();
                    if opened.elapsed() > BACKOFF_MAX {
                        backoff = BACKOFF_MIN;
                    }
                    reason
                }
                Err(reason) => {
                    // Next time, sentinels may return another server, which answers sooner.
                    if tried_at.elapsed() >= patience && !has_sentinels {
                        patience = (patience * 2).min(self.patience_max());
                    }
                    reason
                }
            };
            self.log(&reason);
            self.state.send_replace(LinkState::Down(reason));
            sleep(backoff).await;
            let backoff_max = if has_sentinels { BACKOFF_MAX_ASKING } else { BACKOFF_MAX };
            backoff = (backoff * 2).min(backoff_max);
        }
    }

    fn limit(&self) -> Duration {
        self.response_timeout + self.round_trips.shortest().min(ROUND_TRIP_MAX)
    }

    fn patience(&self) -> Duration {
        (self.limit() * OPEN_TIMEOUT_FACTOR).min(self.patience_max())
    }

    fn patience_max(&self) -> Duration {
        OPEN_TIMEOUT_MAX.max(self.response_timeout)
    }

    fn rise(&self, connection: &MultiplexedConnection) {
        let (limit, generation) = (self.limit(), self.generation);
        let open = OpenConnection { connection: connection.clone(), limit, generation };
        self.state.send_replace(LinkState::Up { open, refused: None });
    }

    fn log(&mut self, reason: &StoreError) {
        if self.episode.is_news(reason) {
            tracing::warn!(kind = reason.kind(), server = self.server, "{reason}");
        }
    }

    /// Opens a connection and checks that it works. Returns it, its round trip, and the server that sentinels named.
    async fn open(&mut self, limit: Duration) -> Result<(MultiplexedConnection, Duration, Option<Node>), StoreError> {
        self.server = self.target.to_string();
        let work = async {
            let found = self.target.find(limit / FIND_PART).await?;
            self.server = found.server;
            let mut connection = connect(&found.client, limit).await?;
            let sent_at = Instant::now();
            // Sent in one pipeline, as Redis may be far away.
            let mut greeting = self.target.probe();
            for script in &*self.scripts {
                greeting.load_script(script).ignore();
            }
            let greeted = greeting.exec_async(&mut connection).await;
            greeted.or_else(|error| self.target.check_error(&error, limit))?;
            Ok((connection, sent_at.elapsed(), found.named))
        };
        match timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Unreachable(NOT_TAKEN.into())),
        }
    }

    async fn watch(&mut self, mut connection: MultiplexedConnection, named: Option<Node>) -> StoreError {
        let (dialer, limit) = (Arc::clone(&self.target.dialer), self.patience() / FIND_PART);
        let mut replaced = pin!(dialer.replaced(named, limit));
        loop {
            let is_failure = tokio::select! {
                () = self.failed.notified() => true,
                () = sleep(PROBE_INTERVAL) => false,
                reason = &mut replaced => return reason,
            };
            let refused = match &*self.state.borrow() {
                LinkState::Up { refused, .. } => refused.clone(),
                LinkState::Opening | LinkState::Down(_) => None,
            };
            let is_refused = refused.is_some();
            if let Some(reason) = refused {
                // The probe does not find this refusal, so nothing else would log it.
                self.log(&reason);
            }
            let (sent_at, limit) = (Instant::now(), self.limit());
            let answer = match timeout(limit, self.target.probe().exec_async(&mut connection)).await {
                Ok(answer) => answer.or_else(|error| self.target.check_error(&error, limit)),
                Err(_) => Err(StoreError::Slow(limit.as_millis())),
            };
            match answer {
                Ok(()) => self.round_trips.record(sent_at.elapsed(), sent_at),
                Err(reason) => return reason,
            }
            if !is_refused && self.episode.is_over(Instant::now()) {
                tracing::info!(server = self.server, "the store answers again as it should");
            }
            // A connection that failed during this probe waits for the next one.
            if is_failure || matches!(&*self.state.borrow(), LinkState::Up { .. }) {
                self.rise(&connection);
            }
        }
    }
}

/// Logs a warning if Redis may evict Weir's keys. Returns true if Redis answered, even with a refusal.
async fn warn_of_eviction(connection: &MultiplexedConnection, limit: Duration) -> bool {
    let mut connection = connection.clone();
    let mut command = redis::cmd("INFO");
    let answer = match timeout(limit, command.arg("memory").query_async::<String>(&mut connection)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return matches!(explain(&error, limit), StoreError::Refused(_)),
        Err(_) => return false,
    };
    if let Some(policy) = dropping(&answer) {
        let what = if policy.starts_with("allkeys") { "the rule set and budgets" } else { "budgets" };
        tracing::warn!(
            policy,
            "when its memory is full, the store may drop {what}: a dropped budget forgives its debt. Set \
             maxmemory-policy to noeviction, and give it memory enough"
        );
    }
    true
}

/// Eviction policy, if it can evict keys.
fn dropping(info: &str) -> Option<&str> {
    let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let is_bounded = value("maxmemory").is_some_and(|bytes| bytes != "0");
    value("maxmemory_policy").filter(|policy| is_bounded && *policy != "noeviction")
}

/// Time for which the shortest round trip counts as the distance.
const KEPT: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(super) struct RoundTrips(VecDeque<(Instant, Duration)>);

impl RoundTrips {
    fn record(&mut self, took: Duration, at: Instant) {
        while self.0.back().is_some_and(|(_, known)| *known >= took) {
            self.0.pop_back();
        }
        self.0.push_back((at, took));
        while self.0.front().is_some_and(|(recorded_at, _)| at.duration_since(*recorded_at) > KEPT) {
            self.0.pop_front();
        }
    }

    fn shortest(&self) -> Duration {
        self.0.front().map_or(Duration::ZERO, |(_, took)| *took)
    }
}
