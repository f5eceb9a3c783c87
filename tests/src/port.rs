//! Ports for servers that must be told theirs before they start.
//!
//! Envoy picks its own (port 0, then asked). What is killed and started again at the same address
//! cannot: it gets one from below the range that the system takes for outgoing connections, where
//! nothing else takes it in between.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// A port on 127.0.0.1 that nothing listens on, given out once per test process.
pub fn free() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Test processes side by side start at different places.
    let start = process::id().wrapping_mul(101);
    (0..COUNT)
        .map(|_| start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % u32::from(COUNT))
        .filter_map(|offset| u16::try_from(offset).ok())
        .map(|offset| FIRST + offset)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("no free port from {FIRST} on"))
}
