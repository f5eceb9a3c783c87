//! The services that are compared, each as its users run it, with one limit for each address.

use std::env;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::bench::service;
use crate::operator::Operator;
use crate::port;
use crate::process::Process;
use crate::redis::Redis;
use crate::wait::until;
use crate::weir_sync::WeirSync;

/// Names limitador's binary.
const LIMITADOR: &str = "WEIR_LIMITADOR";
/// The region of the gateways.
const REGION: &str = "bench";

/// A service with its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// As small as one can be: one round trip to Redis for each check, fixed windows.
    Minimal,
    /// The gateway, a strict rule.
    Strict,
    /// The gateway, a rule that is not strict.
    Plain,
    /// limitador with `redis`: each check asks Redis.
    Limitador,
}

impl Contender {
    /// Each of them.
    pub(super) const ALL: [Self; 4] = [Self::Minimal, Self::Strict, Self::Plain, Self::Limitador];

    /// Its cluster in Envoy.
    pub(super) fn cluster(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Strict => "strict",
            Self::Plain => "plain",
            Self::Limitador => "limitador",
        }
    }

    /// Its database in Redis.
    fn store(self, redis: &Redis) -> String {
        let database = Self::ALL.iter().position(|known| *known == self).unwrap_or_default();
        format!("{}/{database}", redis.url())
    }
}

/// Its name on the page.
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Minimal => "minimal service",
            Self::Strict => "Weir, strict",
            Self::Plain => "Weir, not strict",
            Self::Limitador => "limitador, `redis`",
        })
    }
}

/// A running service. Dropping it ends it.
pub(super) struct Service {
    contender: Contender,
    address: SocketAddr,
    running: Running,
}

enum Running {
    Minimal(service::Service),
    Weir(WeirSync),
    Limitador { process: Process, _folder: TempDir },
}

impl Service {
    /// The service itself.
    pub(super) fn contender(&self) -> Contender {
        self.contender
    }

    /// Its address for gRPC.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        match &self.running {
            Running::Minimal(service) => service.id(),
            Running::Weir(weir_sync) => weir_sync.id(),
            Running::Limitador { process, .. } => process.id(),
        }
    }
}

/// Those that can be started here. Says how to get the others.
pub(super) fn there() -> Vec<Contender> {
    if limitador().is_some() {
        return Contender::ALL.to_vec();
    }
    eprintln!(
        "bench-gateway: no rows of limitador: {LIMITADOR} names no file. Build it from \
         github.com/Kuadrant/limitador at v2.4.0 (`cargo build --release`; of Debian's packages it needs \
         protobuf-compiler, cmake, clang, perl and make), and set {LIMITADOR} to target/release/limitador-server"
    );
    vec![Contender::Minimal, Contender::Strict, Contender::Plain]
}

fn limitador() -> Option<PathBuf> {
    env::var_os(LIMITADOR).map(PathBuf::from).filter(|file| file.is_file())
}

/// Starts each, where an address may have `limit` requests in a second.
pub(super) async fn start(contenders: &[Contender], redis: &Redis, limit: u32) -> Result<Vec<Service>, String> {
    let mut services = vec![];
    for contender in contenders {
        let store = contender.store(redis);
        let (running, address) = match contender {
            Contender::Minimal => minimal(&store, limit).await?,
            Contender::Strict => gateway(&store, &rules(limit, true)).await,
            Contender::Plain => gateway(&store, &rules(limit, false)).await,
            Contender::Limitador => limited(&store, limit).await?,
        };
        services.push(Service { contender: *contender, address, running });
    }
    Ok(services)
}

async fn minimal(store: &str, limit: u32) -> Result<(Running, SocketAddr), String> {
    let service = service::Service::start(store, limit).await?;
    let address = service.address();
    Ok((Running::Minimal(service), address))
}

/// A gateway with these rules in force.
async fn gateway(store: &str, rules: &Value) -> (Running, SocketAddr) {
    let address = listens();
    let listen = address.to_string();
    let mut weir_sync = WeirSync::start_with(REGION, store, &["--gateway", "on", "--grpc-listen", &listen]).await;
    weir_sync.answers("/readyz", 200).await;
    let mut operator = Operator::of(&weir_sync);
    let version = operator.put_good(rules).await;
    until("the gateway to run the rules", async || {
        let (_, fleet) = operator.fleet().await;
        fleet.iter().any(|(_, runs)| *runs == version).then_some(())
    })
    .await;
    (Running::Weir(weir_sync), address)
}

/// A token bucket for each address.
fn rules(limit: u32, strict: bool) -> Value {
    json!({"rules": [{
        "name": "per-address", "key": ["client_address"], "rate": format!("{limit}/s"), "burst": limit,
        "strict": strict,
    }]})
}

async fn limited(store: &str, limit: u32) -> Result<(Running, SocketAddr), String> {
    let binary = limitador().ok_or("limitador has gone")?;
    let folder = tempfile::Builder::new().prefix("weir-bench-limitador-").tempdir();
    let folder = folder.map_err(|e| format!("no temporary folder: {e}"))?;
    let limits = folder.path().join("limits.yaml");
    let text = format!(
        "- namespace: bench\n  max_value: {limit}\n  seconds: 1\n  conditions: []\n  \
         variables: [\"descriptors[0].remote_address\"]\n"
    );
    fs::write(&limits, text).map_err(|e| format!("{}: {e}", limits.display()))?;
    let (address, http) = (listens(), listens());
    let mut command = Command::new(binary);
    command.args(["--rls-ip", "127.0.0.1", "--rls-port", &address.port().to_string()]);
    command.args(["--http-ip", "127.0.0.1", "--http-port", &http.port().to_string()]);
    command.arg(&limits).args(["redis", store]);
    let mut process = Process::spawn("limitador", command, &folder.path().join("limitador.log"));
    until("limitador", async || {
        process.assert_alive();
        TcpStream::connect(address).await.ok()
    })
    .await;
    Ok((Running::Limitador { process, _folder: folder }, address))
}

fn listens() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()))
}
