//! A weir-sync in a process of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_protocol::messages::{self, Message as _, Report};

/// Far above what anything takes here; reaching it fails the test.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// The binary with nothing of ours in its environment.
pub(crate) fn weir_sync(arguments: &[&str]) -> Command {
    program(BINARY, arguments)
}

/// Path of the binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_weir-sync");

/// A program with nothing of ours in its environment, but that a weir-sync stops without a delay.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_SYNC_") {
            command.env_remove(name);
        }
    }
    command.env("WEIR_SYNC_DRAIN_DELAY_MS", "0");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The binary under a limit, as the shell's `ulimit` sets it.
pub(crate) fn limited(limit: &str, arguments: &[&str]) -> Command {
    let script = format!(r#"ulimit {limit}; exec "$@""#);
    program("sh", &[&["-c", &script, "sh", BINARY], arguments].concat())
}

/// Output of a command, and its exit code.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) page: String,
    pub(crate) errors: String,
}

impl CommandOutput {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), page: text(output.stdout), errors: text(output.stderr) }
    }

    /// The page, if it ended so.
    pub(crate) fn page(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.page
    }

    /// Its JSON, if it ended with `code`.
    pub(crate) fn json(self, code: i32) -> Value {
        serde_json::from_str(&self.page(code)).unwrap()
    }

    /// Why it was of no use, if it ended so and printed nothing.
    pub(crate) fn wrong(self, code: i32) -> String {
        assert_eq!((self.code, self.page.as_str()), (Some(code), ""), "{self:?}");
        assert!(!self.errors.contains("/v1/"), "a command's error names no route: {self:?}");
        self.errors
    }
}

/// Runs a command of the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> CommandOutput {
    fed(arguments, "")
}

/// The same with a standard input.
pub(crate) fn fed(arguments: &[&str], stdin: &str) -> CommandOutput {
    let mut command = weir_sync(arguments).stdin(Stdio::piped()).spawn().unwrap();
    // It may end before it has read anything.
    let _ = command.stdin.take().unwrap().write_all(stdin.as_bytes());
    CommandOutput::of(command.wait_with_output().unwrap())
}

/// A started weir-sync and its address. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Mutex<BufReader<ChildStdout>>,
    pub(crate) address: String,
    logs: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::started(&mut weir_sync(&[&["--listen", "127.0.0.1:0"], arguments].concat()))
    }

    /// One that `command` starts.
    pub(crate) fn started(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("its first line: `{line}`")).to_owned();
        let logs = Arc::<Mutex<String>>::default();
        let (stderr, into) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&logs));
        let reader = thread::spawn(move || {
            for line in stderr.lines() {
                *into.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        Self { child, stdout: Mutex::new(stdout), address, logs, reader: Some(reader) }
    }

    /// The next line that it prints.
    pub(crate) fn next_line(&self) -> String {
        let mut line = String::new();
        self.stdout.lock().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Log so far.
    pub(crate) fn logs(&self) -> String {
        self.logs.lock().unwrap().clone()
    }

    /// Its memory by this row of its status, as in `VmRSS`, in KiB.
    pub(crate) fn memory_kib(&self, row: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let rest = status.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(':'));
        rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_else(|| panic!("{status}"))
    }

    /// Sends a signal.
    pub(crate) fn send(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// The status of a request with `token` and without a body.
    pub(crate) fn status(&self, line: &str, token: &str) -> u16 {
        self.ask(line, token, "", b"").0
    }

    /// The status and the rest of the answer to a request that carries `token`; `headers` each with their line end.
    pub(crate) fn ask(&self, line: &str, token: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(3 * DEADLINE)).unwrap();
        answer(stream, line, &format!("authorization: Bearer {token}\r\n{headers}"), body)
    }

    /// The status of a report of `pop` without content, and the body.
    pub(crate) fn report(&self, pop: &str, token: &str) -> (u16, String) {
        self.exchange(token, &report(pop))
    }

    /// The same of any report.
    pub(crate) fn exchange(&self, token: &str, report: &Report) -> (u16, String) {
        let headers = format!("content-type: {}\r\n", messages::CONTENT_TYPE);
        self.ask("POST /v1/report", token, &headers, &report.encode())
    }

    /// Reports that `pop` runs this version of the rule set.
    pub(crate) fn runs(&self, pop: &str, token: &str, version: u64) {
        let running = messages::RunningRules { version, refused: 0 };
        assert_eq!(self.exchange(token, &Report { running, ..report(pop) }).0, 200);
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
    pub(crate) fn signal(self, name: &str) -> (Option<i32>, String) {
        self.send(name);
        self.ended()
    }

    /// Waits until it has ended, and returns the exit code and what was logged.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let (sent_at, mut status) = (Instant::now(), None);
        while status.is_none() {
            assert!(sent_at.elapsed() < DEADLINE, "it does not end: {}", self.logs());
            thread::sleep(Duration::from_millis(5));
            status = self.child.try_wait().unwrap();
        }
        self.reader.take().unwrap().join().unwrap();
        (status.and_then(|status| status.code()), self.logs())
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
    let head =
        format!("{line} HTTP/1.1\r\nhost: weir\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok((answer[9..12].parse().unwrap(), answer))
}

/// A report without content of `pop`.
pub(crate) fn report(pop: &str) -> Report {
    Report { pop: pop.into(), worker: 1, sequence: 1, table: 1, ..Report::default() }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `what` is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
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
