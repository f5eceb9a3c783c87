//! Acquires that count only once replicas have them.
//!
//! `WAIT` blocks its connection until replicas have everything that was sent over it before. So these acquires
//! have a connection of their own. Acquires that arrive while it is blocked are collected, and go as one pipeline
//! with one `WAIT` at its end. After a second without acquires a probe is sent instead, so that a missing replica
//! is found before an acquire needs it.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Wait;
use super::exchange::{RoutedCommand, add_wait, confirmed, exchange};
use super::script::Lua;
use crate::link::{Link, OpenConnection};
use crate::trouble::Episode;
use crate::{Master, StoreError};

/// Maximum number of reports whose acquires wait to be sent.
const ASKED_MAX: usize = 256;
/// A pipeline with this number of acquires takes no more reports: a server executes it in a small part of its
/// time-out. If all acquires after an outage were sent at once, all of them might be late.
const CALLS_MAX: usize = 2_000;
/// Time without acquires after which a probe is sent.
const IDLE: Duration = Duration::from_secs(1);
/// Time by which Redis may exceed the time of a `WAIT`: it checks ten times a second which ones have ended.
const LATE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(50);

/// Results of one report's calls, or the reason why there are none.
type Came = Result<Vec<Value>, StoreError>;

/// Sends acquires to one server. The background task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Confirmer {
    pub(super) wait: Wait,
    asked: mpsc::Sender<Asked>,
    master: watch::Receiver<Master>,
    _task: JoinSet<()>,
}

struct Asked {
    calls: Vec<RoutedCommand>,
    answer: oneshot::Sender<Came>,
}

impl Confirmer {
    pub(super) fn new(link: Arc<Link>, script: Arc<Lua>, wait: Wait) -> Self {
        let (asked, asking) = mpsc::channel(ASKED_MAX);
        let (updates, master) =
            watch::channel(Master { server: link.target.to_string(), confirms: Err(StoreError::Connecting) });
        let work =
            Work { link, script, wait, asked: asking, updates, own: None, beside: 0, episode: Episode::default() };
        Self { wait, asked, master, _task: JoinSet::from_iter([work.run()]) }
    }

    pub(super) async fn send(&self, calls: Vec<RoutedCommand>) -> Came {
        let (answer, answered) = oneshot::channel();
        // The receiver lives as long as this sender.
        let _ = self.asked.send(Asked { calls, answer }).await;
        answered.await.unwrap_or(Err(StoreError::Connecting))
    }

    /// Last known state of the server's replicas.
    pub(super) fn master(&self) -> Master {
        self.master.borrow().clone()
    }
}

/// Additional time of calls that wait for replicas: the `WAIT` of the exchange before theirs, and their own.
pub(super) fn patience(wait: Wait) -> Duration {
    (wait.limit + LATE) * 2
}

struct Work {
    link: Arc<Link>,
    script: Arc<Lua>,
    wait: Wait,
    asked: mpsc::Receiver<Asked>,
    updates: watch::Sender<Master>,
    /// Connection that `WAIT` blocks.
    own: Option<MultiplexedConnection>,
    /// Number of the link's connection at the time when `own` was opened.
    beside: u64,
    episode: Episode,
}

impl Work {
    async fn run(mut self) {
        loop {
            let mut asked = self.gather().await;
            let calls: Vec<_> = asked.iter_mut().map(|asked| take(&mut asked.calls)).collect();
            let counts: Vec<_> = calls.iter().map(Vec::len).collect();
            let came = self.trip(calls.into_iter().flatten().collect()).await;
            self.observe(came.as_ref().err());
            let mut rest = came.map(Vec::into_iter);
            for (asked, count) in asked.into_iter().zip(counts) {
                let its_own = rest.as_mut().map(|rest| rest.take(count).collect());
                // The report may have timed out meanwhile.
                let _ = asked.answer.send(its_own.map_err(|reason| reason.clone()));
            }
            if self.own.is_none() {
                sleep(PAUSE).await;
            }
        }
    }

    /// Collects the acquires that are sent together now. Returns none of them if a probe is due.
    async fn gather(&mut self) -> Vec<Asked> {
        let mut next = tokio::select! {
            next = self.asked.recv() => next,
            () = sleep(IDLE) => None,
            () = self.link.is_newer_than(self.beside) => self.asked.try_recv().ok(),
        };
        let (mut gathered, mut count) = (Vec::new(), 0);
        while let Some(asked) = next {
            // The report may have timed out meanwhile.
            if !asked.answer.is_closed() {
                count += asked.calls.len();
                gathered.push(asked);
            }
            next = if count < CALLS_MAX { self.asked.try_recv().ok() } else { None };
        }
        gathered
    }

    async fn trip(&mut self, calls: Vec<RoutedCommand>) -> Came {
        let open = self.open().await?;
        let limit = open.limit + self.wait.limit + LATE;
        let sent = async {
            if calls.is_empty() {
                return self.probe(&open).await;
            }
            exchange(&self.link, &open, &calls, &self.script, Some(self.wait)).await
        };
        let came = timeout(limit, sent).await.unwrap_or(Err(StoreError::Slow(limit.as_millis())));
        if let Err(StoreError::Unreachable(_) | StoreError::Slow(_)) = came {
            self.own = None;
            // The server itself may have failed.
            self.link.probe_soon();
        }
        came
    }

    async fn probe(&self, open: &OpenConnection) -> Came {
        let mut probe = self.link.target.probe();
        add_wait(&mut probe, self.wait);
        match probe.query_async(&mut open.connection.clone()).await {
            Ok(values) => confirmed(values, open, self.wait),
            // A slot that moves is no failure of replicas.
            Err(error) => self.link.target.check_error(&error, open.limit).map(|()| Vec::new()),
        }
    }

    /// Connection that `WAIT` blocks, opened anew for each new connection of the link.
    async fn open(&mut self) -> Result<OpenConnection, StoreError> {
        let open = self.link.connection()?;
        if self.beside != open.generation {
            (self.beside, self.own) = (open.generation, None);
        }
        let own = match self.own.clone() {
            Some(own) => own,
            None => self.open_anew(&open).await?,
        };
        Ok(OpenConnection { connection: own, ..open })
    }

    async fn open_anew(&mut self, beside: &OpenConnection) -> Result<MultiplexedConnection, StoreError> {
        let (server, connection) = self.link.another(beside).await?;
        self.updates.send_modify(|master| master.server = server);
        Ok(self.own.insert(connection).clone())
    }

    /// Records the result of an exchange with a replica; `failed` is its error.
    fn observe(&mut self, failed: Option<&StoreError>) {
        let server = self.updates.borrow().server.clone();
        match failed {
            None if self.episode.is_over(Instant::now()) => {
                tracing::info!(server, "replicas of the store confirm acquired tokens again");
            }
            // A failure of the server itself is logged by its link.
            Some(reason) if self.link.connection().is_ok() && self.episode.is_news(reason) => {
                tracing::warn!(kind = reason.kind(), server, "strict rules get nothing: {reason}");
            }
            _ => {}
        }
        self.updates.send_modify(|master| master.confirms = failed.map_or(Ok(()), |reason| Err(reason.clone())));
    }
}
