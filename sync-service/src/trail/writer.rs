//! What takes lines out of a queue and gives them to a sink, again and again until the sink takes them.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::sleep;

use super::event::{Event, Line, Stamp};
use super::fault::Fault;
use super::file::FileSink;
use super::queue::{Batch, Queue};
use crate::store::stream::Stream;

/// How long to wait before a sink that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Where lines go.
#[derive(Debug)]
pub enum Sink {
    /// Into a file, or to the standard output.
    File(FileSink),
    /// Into a stream of Redis.
    Redis(Box<Stream>),
}

impl Sink {
    async fn write(&mut self, lines: Vec<Line>) -> Result<(), Fault> {
        match self {
            Self::File(file) => file.write(lines).await,
            Self::Redis(stream) => stream.append(&lines).await.map_err(|error| Fault::new(0, &error)),
        }
    }
}

/// Writes what waits in a queue.
#[derive(Debug)]
pub struct Writer {
    /// What the sink is called.
    pub name: &'static str,
    /// What waits for it.
    pub queue: Arc<Queue>,
    /// Where it goes.
    pub sink: Sink,
    /// What a line that tells of losses begins with.
    pub stamp: Arc<Stamp>,
    /// Counts the lines that were written, ...
    pub written: Counter,
    /// ... and how often they could not be.
    pub errors: Counter,
    /// Changes when files are to be opened again.
    pub reread: watch::Receiver<u64>,
}

impl Writer {
    /// Writes until it is aborted.
    pub async fn run(mut self) {
        let mut is_failing = false;
        loop {
            let queue = Arc::clone(&self.queue);
            let batch = tokio::select! {
                batch = queue.take() => batch,
                Ok(()) = self.reread.changed() => {
                    self.reopen().await;
                    continue;
                }
            };
            let is_written = self.write(batch, is_failing).await;
            if !is_written {
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    Ok(()) = self.reread.changed() => self.reopen().await,
                }
            }
            if is_failing && is_written {
                tracing::info!(sink = self.name, "the trail is written again");
            }
            is_failing = !is_written;
        }
    }

    /// Writes a batch, with a line in front that tells of what was lost before it. Returns whether all of it was written.
    async fn write(&mut self, batch: Batch, was_failing: bool) -> bool {
        let has_losses = batch.untold > 0;
        let told = has_losses.then(|| self.stamp.line(&Event::Lost { count: batch.untold }));
        let lines: Vec<_> = told.into_iter().chain(batch.lines.iter().cloned()).collect();
        let all = lines.len();
        let (written, reason) = match self.sink.write(lines).await {
            Ok(()) => (all, None),
            Err(Fault { written, reason }) => (written, Some(reason)),
        };
        self.written.inc_by(written as u64);
        let is_told = has_losses && written > 0;
        self.queue.give_back(batch, written - usize::from(is_told), is_told);
        if let Some(reason) = &reason {
            self.errors.inc();
            if !was_failing {
                tracing::warn!(
                    sink = self.name,
                    "the trail cannot be written, and is tried again once a second: {reason}"
                );
            }
        }
        reason.is_none()
    }

    /// Opens the file again, if it is one.
    async fn reopen(&self) {
        let Sink::File(file) = &self.sink else { return };
        match file.reopen().await {
            Ok(()) => tracing::info!(sink = self.name, "the trail's file is opened again"),
            // What is open stays open: its lines are not lost.
            Err(error) => {
                tracing::warn!(sink = self.name, "the trail's file cannot be opened again: {error}");
            }
        }
    }
}
