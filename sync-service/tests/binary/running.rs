//! A weir-sync in a process of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_wire::messages::{self, Message as _, Report};

/// The binary with nothing of ours in its environment.
pub(crate) fn weir_sync(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-sync"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_SYNC_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    weir_sync(arguments).output().unwrap()
}

/// A started weir-sync and its address. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: String,
    logs: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = weir_sync(&[&["--listen", "127.0.0.1:0"], arguments].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("said `{line}`")).to_owned();
        let logs = Arc::<Mutex<String>>::default();
        let (stderr, into) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&logs));
        let reader = thread::spawn(move || {
            for line in stderr.lines() {
                *into.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        Self { child, address, logs, reader: Some(reader) }
    }

    /// What was logged so far.
    pub(crate) fn logs(&self) -> String {
        self.logs.lock().unwrap().clone()
    }

    /// Sends a signal.
    pub(crate) fn send(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// The status of a request that carries `token` and says nothing.
    pub(crate) fn status(&self, line: &str, token: &str) -> u16 {
        self.ask(line, token, "", b"").0
    }

    /// The status and the rest of the answer to a request that carries `token`; `headers` each with their line end.
    pub(crate) fn ask(&self, line: &str, token: &str, headers: &str, body: &[u8]) -> (u16, String) {
        answer(
            TcpStream::connect(&self.address).unwrap(),
            line,
            &format!("authorization: Bearer {token}\r\n{headers}"),
            body,
        )
    }

    /// The status of a report of `pop`, and what it says.
    pub(crate) fn report(&self, pop: &str, token: &str) -> (u16, String) {
        let headers = format!("content-type: {}\r\n", messages::CONTENT_TYPE);
        self.ask("POST /v1/report", token, &headers, &report(pop))
    }

    /// The value of a row of the metrics, 0 if there is none.
    pub(crate) fn metric(&self, row: &str) -> u64 {
        let page = self.ask("GET /metrics", "", "", b"").1;
        page.lines().find_map(|line| line.strip_prefix(row)?.trim().parse().ok()).unwrap_or(0)
    }

    pub(crate) fn takes_reports_with(&self, token: &str) -> bool {
        self.status("POST /v1/report", token) != 401
    }

    /// Sends a signal that ends it and returns the exit code and what was logged.
    pub(crate) fn signal(mut self, name: &str) -> (Option<i32>, String) {
        self.send(name);
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status.code(), self.logs())
    }
}

/// The status and the rest of the answer to a request on a connection of its own.
pub(crate) fn answer(stream: impl Read + Write, line: &str, headers: &str, body: &[u8]) -> (u16, String) {
    try_answer(stream, line, headers, body).unwrap()
}

/// The same, or why there is none.
pub(crate) fn try_answer(
    mut stream: impl Read + Write,
    line: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<(u16, String)> {
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: weir\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok((answer[9..12].parse().unwrap(), answer))
}

/// A report that only says that `pop` is there.
pub(crate) fn report(pop: &str) -> Vec<u8> {
    Report { pop: pop.into(), worker: 1, sequence: 1, table: 1, ..Report::default() }.encode()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `what` is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A file with `text`, and its path.
pub(crate) fn file(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}
