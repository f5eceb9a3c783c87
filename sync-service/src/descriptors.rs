//! File descriptors: each connection takes one, and what the system allows may be less than connections want.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for all else: the store, files that are read, connections to the pages' own address.
const OTHERS: u64 = 128;
/// Connections that there may be in any case.
const CONNECTIONS_MIN: usize = 16;

/// How many connections there may be: `wanted`, or as many as leave descriptors for all else. Asks the system for as many
/// descriptors as it grants without privileges; the usual limit is there for programs that cannot count beyond 1024.
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
