//! Draws that count once a replica has them, too.
//!
//! `WAIT` holds its connection up until a replica has all that went over it before. So these draws have one of their own.
//! Those that come while it is held up are gathered, and go as one pipeline with one `WAIT` at its end. After a second
//! without draws a probe goes in their place: it is known that no replica answers before a draw is in need of one.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::exchange::{Call, add_wait, confirmed, exchange};
use super::script::Lua;
use crate::store::link::{Episode, Link, Open};
use crate::store::{Master, StoreError};

/// The most reports whose draws wait to be sent.
const ASKED_MAX: usize = 256;
/// With so many draws no more reports' go together: what a server does in a small part of its time. If all were sent at
/// once that come after an outage, none might be in time.
const CALLS_MAX: usize = 2_000;
/// After so long without draws a probe goes in their place.
const IDLE: Duration = Duration::from_secs(1);
/// How much longer than it was told Redis may wait: it looks for what has waited long enough ten times a second.
const LATE: Duration = Duration::from_millis(100);
/// How long to wait before a connection is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// What the calls of one report gave, or why nothing did.
type Came = Result<Vec<Value>, StoreError>;

/// Sends draws to one server. The background work ends when this is dropped.
#[derive(Debug)]
pub(super) struct Confirmer {
    wait: Duration,
    asked: mpsc::Sender<Asked>,
    master: watch::Receiver<Master>,
    task: JoinHandle<()>,
}

/// The draws of one report.
struct Asked {
    calls: Vec<Call>,
    answer: oneshot::Sender<Came>,
}

impl Drop for Confirmer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Confirmer {
    /// Sends calls of `script` to where `link` leads; a replica may take `wait`. Must run inside tokio.
    pub(super) fn new(link: Arc<Link>, script: Arc<Lua>, wait: Duration) -> Self {
        let (asked, asking) = mpsc::channel(ASKED_MAX);
        let (said, master) =
            watch::channel(Master { server: link.to_string(), confirms: Err(StoreError::Connecting) });
        let work = Work {
            link,
            script,
            wait,
            asked: asking,
            said,
            own: None,
            beside: 0,
            episode: Episode::default(),
        };
        Self { wait, asked, master, task: tokio::spawn(work.run()) }
    }

    /// What each of `calls` gave, once a replica has it.
    pub(super) async fn send(&self, calls: Vec<Call>) -> Came {
        let (answer, answered) = oneshot::channel();
        // The other end is there for as long as this is.
        let _ = self.asked.send(Asked { calls, answer }).await;
        answered.await.unwrap_or(Err(StoreError::Connecting))
    }

    /// How much longer than others these calls may take.
    pub(super) fn patience(&self) -> Duration {
        patience(self.wait)
    }

    /// What was heard last of the server's replicas.
    pub(super) fn master(&self) -> Master {
        self.master.borrow().clone()
    }
}

/// How much longer than others calls may take for which a replica may take `wait`: as long as the trip before theirs
/// waits, and theirs.
pub(super) fn patience(wait: Duration) -> Duration {
    (wait + LATE) * 2
}

/// What runs in the background of a [`Confirmer`].
struct Work {
    link: Arc<Link>,
    script: Arc<Lua>,
    wait: Duration,
    asked: mpsc::Receiver<Asked>,
    said: watch::Sender<Master>,
    /// The connection that waits.
    own: Option<MultiplexedConnection>,
    /// The number of the link's connection that it was opened beside.
    beside: u64,
    episode: Episode,
}

impl Work {
    /// Takes what comes until it is aborted.
    async fn run(mut self) {
        loop {
            let mut asked = self.gather().await;
            let calls: Vec<_> = asked.iter_mut().map(|asked| take(&mut asked.calls)).collect();
            let counts: Vec<_> = calls.iter().map(Vec::len).collect();
            let came = self.trip(calls.into_iter().flatten().collect()).await;
            self.hear(came.as_ref().err());
            let mut rest = came.map(Vec::into_iter);
            for (asked, count) in asked.into_iter().zip(counts) {
                let its_own = rest.as_mut().map(|rest| rest.take(count).collect());
                // Its report may have given up meanwhile.
                let _ = asked.answer.send(its_own.map_err(|reason| reason.clone()));
            }
            if self.own.is_none() {
                sleep(PAUSE).await;
            }
        }
    }

    /// What is to go together now; nothing if a probe is due.
    async fn gather(&mut self) -> Vec<Asked> {
        let mut next = tokio::select! {
            next = self.asked.recv() => next,
            () = sleep(IDLE) => None,
            () = self.link.is_newer_than(self.beside) => self.asked.try_recv().ok(),
        };
        let (mut gathered, mut count) = (Vec::new(), 0);
        while let Some(asked) = next {
            // Its report may have given up meanwhile.
            if !asked.answer.is_closed() {
                count += asked.calls.len();
                gathered.push(asked);
            }
            next = if count < CALLS_MAX { self.asked.try_recv().ok() } else { None };
        }
        gathered
    }

    /// Sends `calls` together, or a probe if there are none.
    async fn trip(&mut self, calls: Vec<Call>) -> Came {
        let open = self.open().await?;
        let limit = open.limit + self.wait + LATE;
        let sent = async {
            if calls.is_empty() {
                return self.probe(&open).await;
            }
            exchange(&self.link, &open, calls, &self.script, Some(self.wait)).await
        };
        let came = timeout(limit, sent).await.unwrap_or(Err(StoreError::Slow(limit.as_millis())));
        if let Err(StoreError::Unreachable(_) | StoreError::Slow(_)) = came {
            self.own = None;
            // It may be the server.
            self.link.probe_soon();
        }
        came
    }

    /// Sends a probe, for a replica to have what it writes.
    async fn probe(&self, open: &Open) -> Came {
        let mut probe = self.link.probe();
        add_wait(&mut probe, self.wait);
        match probe.query_async(&mut open.connection.clone()).await {
            Ok(values) => confirmed(values, open, self.wait),
            // That a slot moves says nothing of replicas.
            Err(error) => self.link.judge(&error, open.limit).map(|()| Vec::new()),
        }
    }

    /// The connection that waits, opened anew beside each one of the link.
    async fn open(&mut self) -> Result<Open, StoreError> {
        let open = self.link.connection()?;
        if self.beside != open.generation {
            (self.beside, self.own) = (open.generation, None);
        }
        let own = match self.own.clone() {
            Some(own) => own,
            None => self.open_anew(&open).await?,
        };
        Ok(Open { connection: own, ..open })
    }

    async fn open_anew(&mut self, beside: &Open) -> Result<MultiplexedConnection, StoreError> {
        let (server, connection) = self.link.another(beside).await?;
        self.said.send_modify(|master| master.server = server);
        Ok(self.own.insert(connection).clone())
    }

    /// Notes whether a replica answered; `failed` is why not.
    fn hear(&mut self, failed: Option<&StoreError>) {
        let server = self.said.borrow().server.clone();
        match failed {
            None if self.episode.is_over(Instant::now()) => {
                tracing::info!(server, "a replica of the store confirms draws again");
            }
            // What is wrong with the server itself its link says.
            Some(reason) if self.link.connection().is_ok() && self.episode.is_news(reason) => {
                tracing::warn!(kind = reason.kind(), server, "strict rules get nothing: {reason}");
            }
            _ => {}
        }
        self.said.send_modify(|master| master.confirms = failed.map_or(Ok(()), |reason| Err(reason.clone())));
    }
}
