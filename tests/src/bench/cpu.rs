//! CPU time from the kernel, and which CPU who runs on.

use std::fs;
use std::process::{Command, Stdio};

use crate::wait::until;

/// The CPU of the proxy's first worker, and the one of everything else.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    /// For a worker thread, alone.
    pub worker: usize,
    /// For the load generator, the upstream, and every other thread.
    pub load: usize,
}

impl Cpus {
    /// Two of the CPUs that this process may use. An error where there is only one: a generator beside the
    /// worker would measure itself.
    pub fn choose() -> Result<Self, String> {
        let status = fs::read_to_string("/proc/self/status").map_err(|e| format!("/proc/self/status: {e}"))?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        match listed(list.unwrap_or_default().trim()).as_slice() {
            [worker, load, ..] => Ok(Self { worker: *worker, load: *load }),
            _ => Err("a benchmark needs two CPUs".into()),
        }
    }

    /// Puts this process, and so every process that it starts, on the load's CPU.
    pub fn settle(self) -> Result<(), String> {
        pin(self.load, std::process::id())
    }
}

/// The CPUs of a kernel's list: `0-2,5`.
fn listed(list: &str) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().ok();
    let ranges = list.split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(number(from)?..=number(to)?)
    });
    ranges.flatten().collect()
}

/// Moves one thread (or a process that has no other) to a CPU.
pub fn pin(cpu: usize, thread: u32) -> Result<(), String> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "--pid", &cpu.to_string(), &thread.to_string()]);
    let status = command.stdout(Stdio::null()).status().map_err(|e| format!("taskset (util-linux): {e}"))?;
    status.success().then_some(()).ok_or_else(|| format!("taskset cannot put {thread} on CPU {cpu}"))
}

/// The proxy's worker threads, in order, once it has all `count`.
pub async fn workers(process: u32, count: usize) -> Vec<u32> {
    until("Envoy's worker threads", async || {
        let mut found = vec![];
        for thread in threads(process) {
            let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
            if let Some(index) = name.trim().strip_prefix("wrk:worker_") {
                found.push((index.parse::<usize>().ok()?, thread));
            }
        }
        found.sort_unstable();
        (found.len() == count).then(|| found.into_iter().map(|(_, thread)| thread).collect())
    })
    .await
}

/// The processes and threads whose CPU time counts.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Process and thread.
    threads: Vec<(u32, u32)>,
    /// Processes, with all their threads.
    processes: Vec<u32>,
}

impl Meter {
    /// Of these threads of `process`.
    pub fn of_threads(process: u32, threads: &[u32]) -> Self {
        let threads = threads.iter().map(|thread| (process, *thread)).collect();
        Self { threads, processes: vec![] }
    }

    /// Of all threads of these processes.
    pub fn of(processes: &[u32]) -> Self {
        Self::default().and(processes)
    }

    /// And of all of these processes.
    pub fn and(mut self, processes: &[u32]) -> Self {
        self.processes.extend(processes);
        self
    }

    /// Nanoseconds so far. Exact for a thread that sleeps; a running one's last slice is not in it yet.
    pub fn read(&self) -> Result<u64, String> {
        let of_threads: u64 =
            self.threads.iter().map(|(process, thread)| run_time(*process, *thread)).sum::<Result<_, _>>()?;
        // A thread of a process that ended meanwhile is gone from the list, and its time with it.
        let whole = self.processes.iter().flat_map(|id| threads(*id).into_iter().map(|thread| (*id, thread)));
        Ok(of_threads + whole.filter_map(|(process, thread)| run_time(process, thread).ok()).sum::<u64>())
    }
}

/// A thread's time on a CPU: the first number of its schedstat.
fn run_time(process: u32, thread: u32) -> Result<u64, String> {
    let path = format!("/proc/{process}/task/{thread}/schedstat");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let first = text.split_whitespace().next().and_then(|number| number.parse().ok());
    first.ok_or_else(|| format!("{path}: expected numbers, found {text:?}"))
}

fn threads(process: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return vec![] };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
