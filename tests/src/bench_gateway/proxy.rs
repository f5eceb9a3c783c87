//! The Envoy in front: a listener and a cluster for each service, one worker.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::artefact;
use crate::bench::cpu::{Cpus, pin, workers};
use crate::bench::filters;
use crate::bench::proxy::{central, listener};
use crate::envoy::cluster;
use crate::port;
use crate::process::Process;
use crate::wait::until;

use super::contender::{Contender, Service};
use super::of;

/// Connections are made before anything is measured.
const CONNECT_TIMEOUT: &str = "1s";

/// A running Envoy. Dropping it ends it.
pub(super) struct Proxy {
    process: Process,
    listeners: BTreeMap<Contender, SocketAddr>,
    // After the process: it ends first.
    _folder: TempDir,
}

impl Proxy {
    /// Starts it with one worker, alone on its CPU, and waits until every listener takes connections.
    pub(super) async fn start(
        services: &[Service],
        upstream: SocketAddr,
        cpus: Cpus,
    ) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir();
        let folder = folder.map_err(|e| format!("no temporary folder: {e}"))?;
        let at =
            |service: &Service| (service.contender(), SocketAddr::from((Ipv4Addr::LOCALHOST, port::free())));
        let listeners: BTreeMap<Contender, SocketAddr> = services.iter().map(at).collect();
        let file = folder.path().join("bootstrap.json");
        fs::write(&file, bootstrap(services, &listeners, upstream).to_string())
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        let mut command = Command::new(artefact::envoy());
        command.arg("--config-path").arg(file).args(["--concurrency", "1"]);
        command.args(["--disable-hot-restart", "--log-level", "warning"]);
        let mut process = Process::spawn("Envoy", command, &folder.path().join("envoy.log"));
        for address in listeners.values() {
            until("Envoy's listeners", async || {
                process.assert_alive();
                TcpStream::connect(address).await.ok()
            })
            .await;
        }
        for worker in workers(process.id(), 1).await {
            pin(cpus.worker, worker)?;
        }
        Ok(Self { process, listeners, _folder: folder })
    }

    /// Where requests are that this service is asked about.
    pub(super) fn address(&self, contender: Contender) -> Result<SocketAddr, String> {
        self.listeners.get(&contender).copied().ok_or_else(|| format!("no listener for {}", contender.name()))
    }

    /// An error if it has ended.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let ended = self.process.exited();
        ended.map_or(Ok(()), |status| Err(format!("Envoy ended ({status}): {}", self.process.log())))
    }
}

fn bootstrap(
    services: &[Service],
    listeners: &BTreeMap<Contender, SocketAddr>,
    upstream: SocketAddr,
) -> Value {
    let mut clusters = vec![cluster("upstream", upstream, CONNECT_TIMEOUT)];
    for contender in listeners.keys() {
        let replicas: Vec<SocketAddr> = of(services, *contender).map(Service::address).collect();
        clusters.push(central(contender.cluster(), &replicas));
    }
    let listener = |(contender, address): (&Contender, &SocketAddr)| {
        listener(&filters::central(contender.cluster()), *address, true)
    };
    let listeners: Vec<Value> = listeners.iter().map(listener).collect();
    json!({
        "node": {"id": "bench", "cluster": "weir-bench"},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    })
}
