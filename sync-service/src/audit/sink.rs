//! Sinks of the audit log: a file or a Redis stream, each with a queue and a writer. The queue is bounded, so that a
//! slow or missing sink neither blocks the recorder nor fills memory. The writer retries until the sink accepts lines.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use weir_store::stream::{EventLine, StreamWriter};

use super::event::{AuditEvent, Stamp};
use crate::config::AuditFile;
use crate::lock;

/// Pause before a sink that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Failure to write lines: the number that were written before it, and its reason.
type SinkError = (usize, String);

#[derive(Debug)]
pub(crate) enum Sink {
    File(FileSink),
    Redis(Box<StreamWriter>),
}

impl Sink {
    async fn write(&mut self, lines: Vec<EventLine>) -> Result<(), SinkError> {
        match self {
            Self::File(file) => file.write(lines).await,
            Self::Redis(stream) => stream.append(&lines).await.map_err(|error| (0, error.to_string())),
        }
    }
}

#[derive(Debug)]
pub struct Writer {
    pub(crate) name: &'static str,
    pub(crate) queue: Arc<Queue>,
    pub(crate) sink: Sink,
    pub(crate) stamp: Arc<Stamp>,
    pub(crate) written: Counter,
    pub(crate) errors: Counter,
    /// Changes when files must be opened again.
    pub(crate) reread: watch::Receiver<u64>,
}

impl Writer {
    /// Writes lines until the task is aborted.
    pub async fn run(mut self) {
        let mut is_failing = false;
        loop {
            let queue = Arc::clone(&self.queue);
            let (lines, lost) = tokio::select! {
                oldest = queue.oldest() => oldest,
                Ok(()) = self.reread.changed() => {
                    self.reopen().await;
                    continue;
                }
            };
            let is_written = self.write(lines, lost, is_failing).await;
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

    /// Writes lines, preceded by one that states the number `lost`, if any. Returns true if all were written.
    async fn write(&mut self, mut lines: Vec<EventLine>, lost: u64, was_failing: bool) -> bool {
        let has_losses = usize::from(lost > 0);
        if lost > 0 {
            lines.insert(0, self.stamp.line(&AuditEvent::Lost { count: lost }));
        }
        let all = lines.len();
        let (written, reason) = match self.sink.write(lines).await {
            Ok(()) => (all, None),
            Err((written, reason)) => (written, Some(reason)),
        };
        self.written.inc_by(written as u64);
        self.queue.remove(written.saturating_sub(has_losses), if written > 0 { lost } else { 0 });
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

const BYTES_MAX: usize = 16 << 20;
const BATCH_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Queue {
    lines_max: usize,
    state: Mutex<State>,
    news: Notify,
    lost: Counter,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<EventLine>,
    bytes: usize,
    /// Number of lost lines that the sink has not recorded yet.
    unrecorded: u64,
    /// Number of the oldest lines that the sink is writing.
    in_hand: usize,
}

impl Queue {
    /// Queue for at most `lines_max` lines. Lost lines are counted in `lost`.
    pub(crate) fn new(lines_max: usize, lost: Counter) -> Self {
        Self { lines_max, state: Mutex::default(), news: Notify::new(), lost }
    }

    /// Appends a line. If there is no room, the oldest lines are lost. Never waits.
    pub(crate) fn push(&self, line: EventLine) {
        let mut state = lock(&self.state);
        state.bytes += line.json.len();
        state.lines.push_back(line);
        self.shrink(&mut state);
        drop(state);
        self.news.notify_one();
    }

    /// Waits until there are lines. Returns the oldest ones, and the number of lines lost before them.
    async fn oldest(&self) -> (Vec<EventLine>, u64) {
        loop {
            if let Some(oldest) = self.try_oldest() {
                return oldest;
            }
            self.news.notified().await;
        }
    }

    fn try_oldest(&self) -> Option<(Vec<EventLine>, u64)> {
        let mut state = lock(&self.state);
        state.in_hand = state.lines.len().min(BATCH_MAX);
        let lines: Vec<_> = state.lines.iter().take(state.in_hand).cloned().collect();
        (!lines.is_empty()).then_some((lines, state.unrecorded))
    }

    /// Removes the oldest `lines`, which were written, and the `losses` that were recorded.
    fn remove(&self, lines: usize, losses: u64) {
        let mut state = lock(&self.state);
        state.in_hand = 0;
        state.unrecorded -= losses;
        let bytes: usize = state.lines.drain(..lines).map(|line| line.json.len()).sum();
        state.bytes -= bytes;
        self.shrink(&mut state);
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).lines.is_empty()
    }

    fn shrink(&self, state: &mut State) {
        while state.lines.len() > state.in_hand + self.lines_max || state.bytes > BYTES_MAX {
            let Some(oldest) = state.lines.remove(state.in_hand) else { return };
            state.bytes -= oldest.json.len();
            state.unrecorded += 1;
            self.lost.inc();
        }
    }
}

/// Mode of new files: not readable by others, because the audit log names clients.
const MODE: u32 = 0o640;

/// Writes lines in a blocking thread, so that a disk or a reader that hangs delays nothing else.
#[derive(Debug)]
pub(crate) struct FileSink {
    to: AuditFile,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    file: Option<File>,
    /// True if the last line is incomplete, so that the next one must begin with a line break.
    is_torn: bool,
}

impl FileSink {
    /// Sink for this destination. A file is opened with the first lines.
    pub(crate) fn new(to: AuditFile) -> Self {
        Self { to, open: Arc::default() }
    }

    /// Opens the file again, because the open one may have been moved away.
    pub(crate) async fn reopen(&self) -> io::Result<()> {
        let (to, open) = (self.to.clone(), Arc::clone(&self.open));
        let reopen = move || {
            if to != AuditFile::Stdout {
                *lock(&open) = Open::at(&to)?;
            }
            Ok(())
        };
        spawn_blocking(reopen).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Writes `lines`. The error states how many were written.
    async fn write(&self, lines: Vec<EventLine>) -> Result<(), SinkError> {
        let (to, open) = (self.to.clone(), Arc::clone(&self.open));
        let write = move || {
            let mut open = lock(&open);
            if open.file.is_none() {
                *open = Open::at(&to).map_err(|error| (0, error.to_string()))?;
            }
            let Open { file, is_torn } = &mut *open;
            file.as_mut().map_or(Ok(()), |file| write_lines(file, is_torn, &lines))
        };
        spawn_blocking(write).await.unwrap_or_else(|error| Err((0, error.to_string())))
    }
}

impl Open {
    /// Opens the destination for appending, and creates the file if necessary. Its last line may be incomplete.
    fn at(to: &AuditFile) -> io::Result<Self> {
        let AuditFile::File(path) = to else {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            return Ok(Self { file: Some(stdout.into()), is_torn: false });
        };
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        let about = file.metadata()?;
        // A pipe has no end to inspect.
        let is_torn = about.is_file() && about.len() > 0 && !ends_a_line(path).unwrap_or(true);
        Ok(Self { file: Some(file), is_torn })
    }
}

/// True if the last byte of the file at `path` is a line break. Fails if the file cannot be read.
fn ends_a_line(path: &str) -> io::Result<bool> {
    let (mut file, mut last) = (File::open(path)?, [0]);
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn write_lines(to: &mut impl Write, is_torn: &mut bool, lines: &[EventLine]) -> Result<(), SinkError> {
    for (written, line) in lines.iter().enumerate() {
        let begin = if *is_torn { "\n" } else { "" };
        // Set until the whole line is known to be written.
        *is_torn = true;
        let whole = format!("{begin}{}\n", line.json);
        to.write_all(whole.as_bytes()).and_then(|()| to.flush()).map_err(|error| (written, error.to_string()))?;
        *is_torn = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> EventLine {
        EventLine { kind: "change", json: text.into() }
    }

    #[tokio::test]
    async fn bytes_are_bounded_too() {
        let lost = Counter::default();
        let queue = Queue::new(1_000, lost.clone());
        let large = "x".repeat(BYTES_MAX / 4);
        for _ in 0..6 {
            queue.push(line(&large));
        }
        assert_eq!((lost.get(), queue.oldest().await.0.len()), (2, 4));
        queue.push(line(&"x".repeat(BYTES_MAX + 1)));
        assert_eq!(lost.get(), 3, "one that has no room at all is lost itself");
    }

    /// A disk with room for this number of bytes.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = (self.1 - self.0.len()).min(bytes.len());
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_broke_off_does_not_spoil_the_next() {
        let lines = ["{\"a\":1}", "{\"b\":2}"].map(line);
        let (mut disk, mut is_torn) = (Disk(Vec::new(), 11), false);
        let fault = write_lines(&mut disk, &mut is_torn, &lines).unwrap_err();
        assert_eq!(fault.0, 1);
        disk.1 = 1_000;
        write_lines(&mut disk, &mut is_torn, &lines[1..]).unwrap();
        assert_eq!(String::from_utf8(disk.0).unwrap(), "{\"a\":1}\n{\"b\n{\"b\":2}\n");
    }

    #[tokio::test]
    async fn a_file_with_a_broken_last_line_continues_on_a_new_line() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, "{\"a\":1}\n{\"b").unwrap();
        let sink = FileSink::new(AuditFile::File(path.to_str().unwrap().to_owned()));
        sink.write(vec![line("1")]).await.unwrap();
        sink.write(vec![line("2")]).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\n1\n2\n");
        std::fs::write(&path, "3").unwrap();
        sink.reopen().await.unwrap();
        sink.write(vec![line("4")]).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n4\n");
        sink.reopen().await.unwrap();
        sink.write(vec![line("5")]).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n4\n5\n");
    }
}
