//! CPU time of a process, from the kernel.

use std::fs;
use std::time::Duration;

/// What the threads of `pid` that still run were given of a CPU. In nanoseconds, unlike `/proc/<pid>/stat`.
pub(super) fn time(pid: u32) -> Duration {
    let folder = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&folder).unwrap_or_else(|e| panic!("cannot read {folder}: {e}"));
    let of_thread = |entry: std::io::Result<fs::DirEntry>| {
        // A thread may end meanwhile.
        let text = fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(of_thread).sum())
}
