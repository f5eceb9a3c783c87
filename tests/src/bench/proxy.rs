//! The Envoy that is measured: one process, a listener for each case.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::artefact;
use crate::bench::case::Case;
use crate::bench::cpu::{Cpus, Meter, pin, workers};
use crate::bench::filters::{Filters, SERVICE, WEIR_SYNC};
use crate::envoy::{FAULTS, cluster, find_module, tcp};
use crate::port;
use crate::process::Process;
use crate::wait::until;

/// Connections are made before anything is measured.
const CONNECT_TIMEOUT: &str = "1s";

/// What it forwards to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behind {
    /// The upstream; without one Envoy answers 200 itself.
    pub upstream: Option<SocketAddr>,
    /// The central service, where a case needs it.
    pub service: Option<SocketAddr>,
    /// The weir-sync that filters report to.
    pub weir_sync: Option<SocketAddr>,
}

/// A running Envoy. Dropping it ends it.
pub struct Proxy {
    process: Process,
    workers: Vec<u32>,
    listeners: BTreeMap<Case, SocketAddr>,
    // After the process: it ends first.
    _folder: TempDir,
}

impl Proxy {
    /// Starts it with so many workers, the first alone on its CPU, and waits until every listener takes
    /// connections.
    pub async fn start(cases: &[Case], workers: usize, behind: Behind, cpus: Cpus) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir();
        let folder = folder.map_err(|e| format!("no temporary folder: {e}"))?;
        let at = |case: &Case| (*case, SocketAddr::from((Ipv4Addr::LOCALHOST, port::free())));
        let listeners: BTreeMap<Case, SocketAddr> = cases.iter().map(at).collect();
        let file = folder.path().join("bootstrap.json");
        fs::write(&file, bootstrap(&listeners, behind).to_string())
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        let mut command = Command::new(artefact::envoy());
        command.arg("--config-path").arg(file).args(["--concurrency", &workers.to_string()]);
        command.args(["--disable-hot-restart", "--log-level", "warning"]);
        find_module(&mut command);
        let process = Process::spawn("Envoy", command, &folder.path().join("envoy.log"));
        let mut proxy = Self { process, workers: vec![], listeners, _folder: folder };
        proxy.up().await;
        proxy.workers = self::workers(proxy.process.id(), workers).await;
        for (worker, cpu) in proxy.workers.iter().zip([cpus.worker, cpus.load]) {
            pin(cpu, *worker)?;
        }
        Ok(proxy)
    }

    /// Where a case listens.
    pub fn address(&self, case: Case) -> Result<SocketAddr, String> {
        self.listeners.get(&case).copied().ok_or_else(|| format!("no listener for: {case}"))
    }

    /// The CPU time of its first worker, which has its CPU for itself.
    pub fn meter(&self) -> Meter {
        Meter::of_threads(self.process.id(), self.workers.get(..1).unwrap_or_default())
    }

    /// Its resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.process.resident_kib()
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

    async fn up(&mut self) {
        for address in self.listeners.values() {
            until("Envoy's listeners", async || {
                self.process.assert_alive();
                tokio::net::TcpStream::connect(address).await.ok()
            })
            .await;
        }
    }
}

fn bootstrap(listeners: &BTreeMap<Case, SocketAddr>, behind: Behind) -> Value {
    let has_upstream = behind.upstream.is_some();
    let listeners: Vec<Value> =
        listeners.iter().map(|(case, address)| listener(&case.filters(), *address, has_upstream)).collect();
    let mut clusters = vec![];
    clusters.extend(behind.upstream.map(|address| cluster("upstream", address, CONNECT_TIMEOUT)));
    clusters.extend(behind.weir_sync.map(|address| cluster(WEIR_SYNC, address, CONNECT_TIMEOUT)));
    clusters.extend(behind.service.map(|address| central(SERVICE, &[address])));
    json!({
        "node": {"id": "bench", "cluster": "weir-bench"},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    })
}

/// The cluster of a service that answers gRPC: requests go to its replicas in turn.
pub fn central(name: &str, replicas: &[SocketAddr]) -> Value {
    let endpoints: Vec<Value> =
        replicas.iter().map(|address| json!({"endpoint": {"address": tcp(*address)}})).collect();
    json!({
        "name": name,
        "connect_timeout": CONNECT_TIMEOUT,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }},
    })
}

/// The listener at `address` with `before` in front of the cluster `upstream`, or of an answer of Envoy's own.
pub fn listener(before: &Filters, address: SocketAddr, has_upstream: bool) -> Value {
    let mut filters = before.filters.clone();
    filters.push(json!({
        "name": "router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    }));
    let mut route = json!({"match": {"prefix": "/"}});
    if has_upstream {
        route["route"] = json!({"cluster": "upstream"});
        if let Some(rate_limits) = &before.rate_limits {
            route["route"]["rate_limits"] = rate_limits.clone();
        }
    } else {
        route["direct_response"] = json!({"status": 200});
    }
    json!({
        "name": format!("port-{}", address.port()),
        "address": tcp(address),
        // So that each of two workers has as many connections.
        "connection_balance_config": {"exact_balance": {}},
        "filter_chains": [{"filters": [{
            "name": "http",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "edge",
                "use_remote_address": true,
                "xff_num_trusted_hops": 1,
                "http_filters": filters,
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            },
        }]}],
    })
}
