//! Sink that writes lines to a file or to the standard output.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;
use weir_store::stream::EventLine;

use crate::config::AuditFile;

/// Mode of new files. They are not readable by others, because they name clients.
const MODE: u32 = 0o640;

/// Writes lines in a blocking thread, so that a disk or a reader that hangs delays nothing else.
#[derive(Debug)]
pub struct FileSink {
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
    pub fn new(to: AuditFile) -> Self {
        Self { to, open: Arc::default() }
    }

    /// Opens the file again, because the open one may have been moved away.
    pub async fn reopen(&self) -> io::Result<()> {
        let (to, open) = (self.to.clone(), Arc::clone(&self.open));
        let reopen = move || {
            let AuditFile::File(path) = &to else { return Ok(()) };
            let opened = Open::at(path)?;
            *open.lock().unwrap_or_else(PoisonError::into_inner) = opened;
            Ok(())
        };
        spawn_blocking(reopen).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Writes `lines`. The error states how many were written.
    pub async fn write(&self, lines: Vec<EventLine>) -> Result<(), SinkError> {
        let (to, open) = (self.to.clone(), Arc::clone(&self.open));
        let write = move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            match &to {
                AuditFile::Stdout => {
                    let mut stdout = io::stdout().lock();
                    write_lines(&mut stdout, &mut open.is_torn, &lines)
                }
                AuditFile::File(path) => {
                    if open.file.is_none() {
                        *open = Open::at(path).map_err(|error| SinkError::new(0, &error))?;
                    }
                    let Open { file, is_torn } = &mut *open;
                    file.as_mut().map_or(Ok(()), |file| write_lines(file, is_torn, &lines))
                }
            }
        };
        spawn_blocking(write).await.unwrap_or_else(|error| Err(SinkError::new(0, &error)))
    }
}

impl Open {
    /// Opens the file at `path` for appending, and creates it if necessary. Its last line may be incomplete if
    /// a disk was full or a machine stopped.
    fn at(path: &str) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        let about = file.metadata()?;
        // A pipe has no end to inspect.
        let is_torn = about.is_file() && about.len() > 0 && !ends_a_line(path).unwrap_or(true);
        Ok(Self { file: Some(file), is_torn })
    }
}

/// True if the last byte of the file at `path` is a line break. Fails if the file may only be written.
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
        to.write_all(whole.as_bytes()).and_then(|()| to.flush()).map_err(|error| SinkError::new(written, &error))?;
        *is_torn = false;
    }
    Ok(())
}

/// Failure to write lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkError {
    /// Number of lines that were written before the failure.
    pub written: usize,
    /// Reason for the failure.
    pub reason: String,
}

impl SinkError {
    /// Failure after `written` lines.
    pub fn new(written: usize, reason: &impl Display) -> Self {
        Self { written, reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let lines = ["{\"a\":1}", "{\"b\":2}"].map(|json| EventLine { kind: "change", json: json.into() });
        let (mut disk, mut is_torn) = (Disk(Vec::new(), 11), false);
        let fault = write_lines(&mut disk, &mut is_torn, &lines).unwrap_err();
        assert_eq!(fault.written, 1);
        disk.1 = 1_000;
        write_lines(&mut disk, &mut is_torn, &lines[1..]).unwrap();
        assert_eq!(String::from_utf8(disk.0).unwrap(), "{\"a\":1}\n{\"b\n{\"b\":2}\n");
    }

    #[tokio::test]
    async fn a_file_with_a_broken_last_line_continues_on_a_new_line() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let line = |json: &str| vec![EventLine { kind: "change", json: json.into() }];
        std::fs::write(&path, "{\"a\":1}\n{\"b").unwrap();
        let sink = FileSink::new(AuditFile::File(path.to_str().unwrap().to_owned()));
        sink.write(line("1")).await.unwrap();
        sink.write(line("2")).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\n1\n2\n");
        std::fs::write(&path, "3").unwrap();
        sink.reopen().await.unwrap();
        sink.write(line("4")).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n4\n");
        sink.reopen().await.unwrap();
        sink.write(line("5")).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n4\n5\n");
    }
}
