//! Task that moves lines from a queue to a sink, and retries until the sink accepts them.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::sleep;

use super::event::{AuditEvent, EventLine, Stamp};
use super::fault::SinkError;
use super::file::FileSink;
use super::queue::{LineBatch, Queue};
use crate::store::stream::StreamWriter;

/// Pause before a sink that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Destination of lines.
#[derive(Debug)]
pub enum Sink {
    /// A file or the standard output.
    File(FileSink),
    /// A Redis stream.
    Redis(Box<StreamWriter>),
}

impl Sink {
    async fn write(&mut self, lines: Vec<EventLine>) -> Result<(), SinkError> {
        match self {
            Self::File(file) => file.write(lines).await,
            Self::Redis(stream) => stream.append(&lines).await.map_err(|error| SinkError::new(0, &error)),
        }
    }
}

/// Writer of one sink.
#[derive(Debug)]
pub struct Writer {
    /// Name of the sink.
    pub name: &'static str,
    /// Lines that wait for the sink.
    pub queue: Arc<Queue>,
    /// The sink.
    pub sink: Sink,
    /// Stamp for lines about losses.
    pub stamp: Arc<Stamp>,
    /// Number of lines written.
    pub written: Counter,
    /// Number of failed attempts.
    pub errors: Counter,
    /// Changes when files must be opened again.
    pub reread: watch::Receiver<u64>,
}

impl Writer {
    /// Writes lines until the task is aborted.
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
                tracing::info!(sink = self.name, "the audit log is written again");
            }
            is_failing = !is_written;
        }
    }

    /// Writes a batch, preceded by a line on losses if there were any. Returns true if all lines were written.
    async fn write(&mut self, batch: LineBatch, was_failing: bool) -> bool {
        let has_losses = batch.untold > 0;
        let told = has_losses.then(|| self.stamp.line(&AuditEvent::Lost { count: batch.untold }));
        let lines: Vec<_> = told.into_iter().chain(batch.lines.iter().cloned()).collect();
        let all = lines.len();
        let (written, reason) = match self.sink.write(lines).await {
            Ok(()) => (all, None),
            Err(SinkError { written, reason }) => (written, Some(reason)),
        };
        self.written.inc_by(written as u64);
        let is_told = has_losses && written > 0;
        self.queue.give_back(batch, written - usize::from(is_told), is_told);
        if let Some(reason) = &reason {
            self.errors.inc();
            if !was_failing {
                tracing::warn!(
                    sink = self.name,
                    "the audit log cannot be written, and is tried again once a second: {reason}"
                );
            }
        }
        reason.is_none()
    }

    /// Opens the file again, if the sink is one.
    async fn reopen(&self) {
        let Sink::File(file) = &self.sink else { return };
        match file.reopen().await {
            Ok(()) => tracing::info!(sink = self.name, "the audit log's file is opened again"),
            // The open file stays open, so no lines are lost.
            Err(error) => {
                tracing::warn!(sink = self.name, "the audit log's file cannot be opened again: {error}");
            }
        }
    }
}
