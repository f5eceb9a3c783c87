//! File descriptors: each connection takes one, and the system's limit may be lower than the wanted number of
//! connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for other uses: the store, files, connections to the server's own address.
const OTHERS: u64 = 128;
/// Minimum number of connections.
const CONNECTIONS_MIN: usize = 16;

/// Returns the number of connections: `wanted`, or as many as leave descriptors for other uses. Raises the
/// process's limit as far as possible without privileges; the usual limit is there for programs that cannot
/// handle more than 1024.
pub fn connections_max(wanted: usize) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let descriptors = if raised.is_ok() { limit.maximum } else { limit.current };
    let left = descriptors.map_or(u64::MAX, |descriptors| descriptors.saturating_sub(OTHERS));
    let fitting = usize::try_from(left).unwrap_or(usize::MAX).max(CONNECTIONS_MIN);
    if fitting < wanted {
        tracing::warn!(
            connections_max = wanted,
            now = fitting,
            descriptors,
            "fewer connections at a time than connections_max says: the system allows too few file descriptors (raise \
             `ulimit -n`, or LimitNOFILE of systemd)"
        );
    }
    u32::try_from(wanted.min(fitting)).unwrap_or(u32::MAX)
}
