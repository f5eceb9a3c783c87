//! The Envoy that is measured: one process, a listener for each candidate.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::artefact;
use crate::envoy;
use crate::envoy::{CONNECTION_MANAGER, FAULTS, cluster, find_module, protocol, router, tcp};
use crate::port;
use crate::process::Process;
use crate::wait::until;

use super::cpu::{Cpus, Meter, pin, workers};
use super::filters::Filters;

/// Connections are made before anything is measured.
const CONNECT_TIMEOUT: &str = "1s";

/// A running Envoy. Dropping it ends it.
pub struct Proxy<K> {
    process: Process,
    workers: Vec<u32>,
    listeners: BTreeMap<K, SocketAddr>,
    // After the process: it ends first.
    _folder: TempDir,
}

impl<K: Copy + Display + Ord> Proxy<K> {
    /// Starts it with a listener for each of these, and workers, the first alone on its CPU, and these clusters;
    /// waits until every listener takes connections. Without a cluster `upstream` it answers 200 itself.
    pub async fn start(
        listeners: impl IntoIterator<Item = (K, Filters)>,
        workers: usize,
        clusters: Vec<Value>,
        cpus: Cpus,
    ) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir();
        let folder = folder.map_err(|e| format!("no temporary folder: {e}"))?;
        let has_upstream = clusters.iter().any(|cluster| cluster["name"] == "upstream");
        let (mut addresses, mut shown) = (BTreeMap::new(), vec![]);
        for (key, filters) in listeners {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
            shown.push(listener(&filters, address, has_upstream));
            addresses.insert(key, address);
        }
        let bootstrap = json!({
            "node": {"id": "bench", "cluster": "weir-bench"},
            "static_resources": {"listeners": shown, "clusters": clusters},
        });
        let file = folder.path().join("bootstrap.json");
        fs::write(&file, bootstrap.to_string()).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        let mut command = Command::new(artefact::envoy());
        command.arg("--config-path").arg(file).args(["--concurrency", &workers.to_string()]);
        command.args(["--disable-hot-restart", "--log-level", "warning"]);
        find_module(&mut command);
        let mut process = Process::spawn("Envoy", command, &folder.path().join("envoy.log"));
        for address in addresses.values() {
            until("Envoy's listeners", async || {
                process.assert_alive();
                tokio::net::TcpStream::connect(address).await.ok()
            })
            .await;
        }
        let workers = self::workers(process.id(), workers).await;
        for (worker, cpu) in workers.iter().zip([cpus.worker, cpus.load]) {
            pin(cpu, *worker)?;
        }
        Ok(Self { process, workers, listeners: addresses, _folder: folder })
    }

    /// The address of a listener.
    pub fn address(&self, of: K) -> Result<SocketAddr, String> {
        self.listeners.get(&of).copied().ok_or_else(|| format!("no listener for: {of}"))
    }

    /// The CPU time of its first worker, which has its CPU for itself.
    pub fn meter(&self) -> Meter {
        Meter::of_threads(self.process.id(), self.workers.get(..1).unwrap_or_default())
    }

    /// An error if it has ended, or if a VM in it died.
    pub fn check(&mut self) -> Result<(), String> {
        if let Some(status) = self.process.exited() {
            return Err(format!("Envoy ended ({status}): {}", self.process.log()));
        }
        let log = self.process.log();
        match log.lines().find(|line| FAULTS.iter().any(|fault| line.contains(fault))) {
            Some(line) => Err(format!("a VM died: {line}")),
            None => Ok(()),
        }
    }
}

/// The cluster of one server that answers HTTP/1.
pub fn http(name: &str, address: SocketAddr) -> Value {
    cluster(name, address, CONNECT_TIMEOUT)
}

/// The cluster of a service that answers gRPC.
pub fn central(name: &str, address: SocketAddr) -> Value {
    let mut cluster = http(name, address);
    cluster["typed_extension_protocol_options"] = protocol("http2_protocol_options");
    cluster
}

/// The listener at `address` with `before` in front of the cluster `upstream`, or of an answer of Envoy's own.
fn listener(before: &Filters, address: SocketAddr, has_upstream: bool) -> Value {
    let mut filters = before.filters.clone();
    filters.push(router());
    let mut route = json!({"match": {"prefix": "/"}});
    if has_upstream {
        route["route"] = json!({"cluster": "upstream"});
        if let Some(rate_limits) = &before.rate_limits {
            route["route"]["rate_limits"] = rate_limits.clone();
        }
    } else {
        route["direct_response"] = json!({"status": 200});
    }
    let manager = json!({
        "@type": CONNECTION_MANAGER,
        "stat_prefix": "edge",
        "use_remote_address": true,
        "xff_num_trusted_hops": 1,
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    });
    envoy::listener(&format!("port-{}", address.port()), &tcp(address), &manager)
}
