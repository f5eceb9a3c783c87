//! Ports for servers that need one before they start.
//!
//! Envoy picks its own (port 0, then asked). What is killed and started again at the same address, or cut and
//! healed, cannot: it gets one from below the range that the system takes for outgoing connections.

use std::net::Ipv4Addr;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// A port on 127.0.0.1 that is this process's until it ends, whether or not something listens there meanwhile. Who
/// binds it has to allow that its address is in use (`SO_REUSEADDR`), as servers do that may be started again.
pub fn free() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    static HELD: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    // Test processes side by side start at different places.
    let start = process::id().wrapping_mul(101);
    let mut ports = (0..COUNT)
        .map(|_| start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % u32::from(COUNT))
        .filter_map(|offset| u16::try_from(offset).ok())
        .map(|offset| FIRST + offset);
    let (port, socket) =
        ports.find_map(|port| Some((port, hold(port)?))).unwrap_or_else(|| panic!("no free port from {FIRST} on"));
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    port
}

/// Binds the port alone and never listens; none where another socket is bound to it. A server may then bind it, too,
/// and nobody else who asks here.
fn hold(port: u16) -> Option<TcpSocket> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into()).ok()?;
    socket.set_reuseaddr(true).ok()?;
    Some(socket)
}
