//! Envoy's admin page.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Ask, Client};
use crate::process::Process;
use crate::wait::until;

/// Time that a page may take where nobody can await it.
const BLOCKING_DEADLINE: Duration = Duration::from_secs(10);

/// The admin page of one Envoy.
pub(super) struct Admin(SocketAddr);

impl Admin {
    /// Waits until `process` has written the page's address into `file`.
    pub(super) async fn at(file: &Path, process: &mut Process) -> Self {
        let address = until("Envoy's admin page", async || {
            process.assert_alive();
            fs::read_to_string(file).ok()?.trim().parse().ok()
        });
        Self(address.await)
    }

    /// The address of the listener "edge", once it listens.
    pub(super) async fn listener(&self) -> Option<SocketAddr> {
        if !self.listening().await {
            return None;
        }
        self.listeners().await?.into_iter().find_map(|(name, address)| (name == "edge").then_some(address))
    }

    /// The listeners that listen, and where.
    pub(super) async fn listeners(&self) -> Option<Vec<(String, SocketAddr)>> {
        let page: Value = serde_json::from_str(&self.page("/listeners?format=json").await?).ok()?;
        let of = |listener: &Value| {
            let address = &listener["local_address"]["socket_address"];
            let port = u16::try_from(address["port_value"].as_u64()?).ok().filter(|port| *port != 0)?;
            let address = SocketAddr::new(address["address"].as_str()?.parse().ok()?, port);
            Some((listener["name"].as_str()?.to_owned(), address))
        };
        Some(page["listener_statuses"].as_array()?.iter().filter_map(of).collect())
    }

    /// True if Envoy is live and its workers accept connections.
    pub(super) async fn listening(&self) -> bool {
        let live = self.page("/ready").await.is_some_and(|state| state.trim() == "LIVE");
        live && self.stat("listener_manager.workers_started").await == Some(1)
            && self.stat("listener_manager.total_listeners_active").await.is_some_and(|count| count > 0)
    }

    /// A counter or gauge.
    pub(super) async fn stat(&self, name: &str) -> Option<u64> {
        let page = self.page("/stats").await?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        line.trim().parse().ok()
    }

    /// The stats whose names match `filter`, a line each. Blocks; for where nothing can be awaited.
    pub(super) fn stats_blocking(&self, filter: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.0, BLOCKING_DEADLINE)?;
        stream.set_read_timeout(Some(BLOCKING_DEADLINE))?;
        stream.set_write_timeout(Some(BLOCKING_DEADLINE))?;
        write!(stream, "GET /stats?filter={filter} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }

    /// A page's text, if it is there.
    pub(super) async fn page(&self, path: &str) -> Option<String> {
        let answer = Client::new(self.0).try_send(&Ask::get(path)).await.ok()?;
        (answer.status == 200).then(|| answer.text())
    }
}
