//! A child process: its log in a file, its end by process id, its last words when a test fails.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

use crate::wait::until;

/// Lines of a log that a failing test shows.
const TAIL_LINES: usize = 40;

/// A running child process. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints is appended to the file `log`. `name` is what messages call it.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log);
        let file = file.unwrap_or_else(|e| panic!("cannot write {}: {e}", log.display()));
        let copy = file.try_clone().unwrap_or_else(|e| panic!("cannot share {}: {e}", log.display()));
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {name} ({}): {e}", command.get_program().display()));
        Self { name: name.into(), child, log: log.into() }
    }

    /// The same, once it takes connections at `address`.
    pub async fn listening(name: &str, command: Command, log: &Path, address: SocketAddr) -> Self {
        let mut process = Self::spawn(name, command, log);
        until(name, async || {
            process.assert_alive();
            TcpStream::connect(address).await.ok()
        })
        .await;
        process
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, once it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Panics with the end of the log if the process has ended.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.exited() {
            panic!("{} ended ({status}):\n{}", self.name, self.tail());
        }
    }

    /// Ends it at once (SIGKILL), as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only where the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends it a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.id());
        let status = Command::new("sh").args(["-c", &command]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot run `{command}`");
    }

    /// Stops it while its connections stay open, as a machine that gets no processor would, and waits until it
    /// stands still: its threads run on until one of them has taken the signal.
    pub async fn freeze(&self) {
        self.signal("STOP");
        until("every thread of a process to stop", async || self.is_stopped().then_some(())).await;
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.id())).expect("a process that runs");
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // A thread that ended meanwhile has none. What stands in brackets is its name.
            stat.is_empty() || stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T "))
        })
    }

    /// Ends it as an operator would (SIGTERM), and waits until it is gone.
    pub async fn end(&mut self) {
        self.signal("TERM");
        until("a process to end", async || self.exited()).await;
    }

    /// Everything it has printed.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Its resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let status = fs::read_to_string(&path).unwrap_or_else(|e| panic!("cannot read {path}: {e}"));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let value = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no VmRSS in {path}"))
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// Waits for SIGINT or SIGTERM, and returns a message about it.
pub async fn ended_by_signal() -> String {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return "no signals".into() };
    let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return "no signals".into() };
    tokio::select! {
        _ = terminate.recv() => "ended by SIGTERM".into(),
        _ = interrupt.recv() => "ended by SIGINT".into(),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- the end of the output of {} ---\n{}", self.name, self.tail());
        }
    }
}
