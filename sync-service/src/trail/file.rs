//! Lines into a file, or to the standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

use super::event::Line;
use super::fault::Fault;
use crate::config::TrailFile;

/// Who may read a file that is made: it names clients.
const MODE: u32 = 0o640;

/// Writes lines. A disk, or a reader, that does not answer holds up a thread of its own.
#[derive(Debug)]
pub struct FileSink {
    to: TrailFile,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    file: Option<File>,
    /// A line broke off, so the next one begins after a line's end.
    is_torn: bool,
}

impl FileSink {
    /// To this file; it is opened with the first lines.
    pub fn new(to: TrailFile) -> Self {
        Self { to, open: Arc::default() }
    }

    /// Opens the file again: what was there may have been moved away.
    pub async fn reopen(&self) -> io::Result<()> {
        let (to, open) = (self.to.clone(), Arc::clone(&self.open));
        let reopen = move || {
            let TrailFile::File(path) = &to else { return Ok(()) };
            let file = open_file(path)?;
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            *open = Open { file: Some(file), is_torn: false };
            Ok(())
        };
        spawn_blocking(reopen).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Writes `lines`, or says how many of them were written before it failed.
    pub async fn write(&self, lines: Vec<Line>) -> Result<(), Fault> {
        let (to, open) = (self.to.clone(), Arc::clone(&self.open));
        let write = move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            match &to {
                TrailFile::Stdout => {
                    let mut stdout = io::stdout().lock();
                    write_lines(&mut stdout, &mut open.is_torn, &lines)
                }
                TrailFile::File(path) => {
                    let Open { file, is_torn } = &mut *open;
                    let file = match file {
                        Some(file) => file,
                        None => file.insert(open_file(path).map_err(|error| Fault::new(0, &error))?),
                    };
                    write_lines(file, is_torn, &lines)
                }
            }
        };
        spawn_blocking(write).await.unwrap_or_else(|error| Err(Fault::new(0, &error)))
    }
}

/// Opens the file at `path` to write at its end; it is made if it is not there.
fn open_file(path: &str) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

fn write_lines(to: &mut impl Write, is_torn: &mut bool, lines: &[Line]) -> Result<(), Fault> {
    for (written, line) in lines.iter().enumerate() {
        let begin = if *is_torn { "\n" } else { "" };
        // Set while it is not known that the whole line is there.
        *is_torn = true;
        let whole = format!("{begin}{}\n", line.json);
        to.write_all(whole.as_bytes())
            .and_then(|()| to.flush())
            .map_err(|error| Fault::new(written, &error))?;
        *is_torn = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has room for so many bytes.
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
        let lines = ["{\"a\":1}", "{\"b\":2}"].map(|json| Line { kind: "change", json: json.into() });
        let (mut disk, mut is_torn) = (Disk(Vec::new(), 11), false);
        let fault = write_lines(&mut disk, &mut is_torn, &lines).unwrap_err();
        assert_eq!(fault.written, 1);
        disk.1 = 1_000;
        write_lines(&mut disk, &mut is_torn, &lines[1..]).unwrap();
        assert_eq!(String::from_utf8(disk.0).unwrap(), "{\"a\":1}\n{\"b\n{\"b\":2}\n");
    }
}
