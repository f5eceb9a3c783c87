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
/// The names of a service's replicas.
const REPLICAS: [&str; 2] = ["a", "b"];

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
    /// limitador with `redis_cached`: Redis hears of checks later.
    LimitadorCached,
}

impl Contender {
    /// Each of them.
    pub(super) const ALL: [Self; 5] =
        [Self::Minimal, Self::Strict, Self::Plain, Self::Limitador, Self::LimitadorCached];

    /// Its cluster in Envoy.
    pub(super) fn cluster(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Strict => "strict",
            Self::Plain => "plain",
            Self::Limitador => "limitador",
            Self::LimitadorCached => "limitador-cached",
        }
    }

    /// Its database in Redis.
    fn store(self, redis: &Redis) -> String {
        let database = Self::ALL.iter().position(|known| *known == self).unwrap_or_default();
        format!("{}/{database}", redis.url())
    }
}

/// What the page calls it.
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Minimal => "minimal service",
            Self::Strict => "Weir, strict",
            Self::Plain => "Weir, not strict",
            Self::Limitador => "limitador, `redis`",
            Self::LimitadorCached => "limitador, `redis_cached`",
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
    /// What it is.
    pub(super) fn contender(&self) -> Contender {
        self.contender
    }

    /// Where it answers gRPC.
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
        "bench-gateway: no rows of limitador: {LIMITADOR} names no file. Build it from github.com/Kuadrant/limitador at v2.4.0 \
         (`cargo build --release`; of Debian's packages it needs protobuf-compiler, cmake, clang, perl and make), and set \
         {LIMITADOR} to target/release/limitador-server"
    );
    vec![Contender::Minimal, Contender::Strict, Contender::Plain]
}

fn limitador() -> Option<PathBuf> {
    env::var_os(LIMITADOR).map(PathBuf::from).filter(|file| file.is_file())
}

/// Starts so many replicas of each, where an address may have `limit` requests in a second.
pub(super) async fn start(
    contenders: &[Contender],
    redis: &Redis,
    limit: u32,
    replicas: usize,
) -> Result<Vec<Service>, String> {
    let mut services = vec![];
    for contender in contenders {
        let store = contender.store(redis);
        for replica in REPLICAS.into_iter().take(replicas) {
            let (running, address) = match contender {
                Contender::Minimal => minimal(&store, limit).await?,
                Contender::Strict | Contender::Plain => gateway(&store, replica).await,
                Contender::Limitador => limited(&store, "redis", limit).await?,
                Contender::LimitadorCached => limited(&store, "redis_cached", limit).await?,
            };
            services.push(Service { contender: *contender, address, running });
        }
        if let Contender::Strict | Contender::Plain = contender {
            put_rules(&services, *contender, limit).await;
        }
    }
    Ok(services)
}

async fn minimal(store: &str, limit: u32) -> Result<(Running, SocketAddr), String> {
    let service = service::Service::start(store, limit).await?;
    let address = service.address();
    Ok((Running::Minimal(service), address))
}

async fn gateway(store: &str, replica: &str) -> (Running, SocketAddr) {
    let address = listens();
    let listen = address.to_string();
    let arguments = ["--gateway", "on", "--grpc-listen", &listen, "--replica", replica];
    let mut weir_sync = WeirSync::start_with(REGION, store, &arguments).await;
    weir_sync.answers("/readyz", 200).await;
    (Running::Weir(weir_sync), address)
}

/// Puts the one rule in force at all gateways of `contender`.
async fn put_rules(services: &[Service], contender: Contender, limit: u32) {
    let gateways = services.iter().filter(|service| service.contender == contender);
    let gateways: Vec<&WeirSync> = gateways
        .filter_map(
            |service| if let Running::Weir(weir_sync) = &service.running { Some(weir_sync) } else { None },
        )
        .collect();
    let Some(first) = gateways.first() else { return };
    let mut operator = Operator::of(first);
    operator.put_good(&rules(limit, contender == Contender::Strict)).await;
    until("the gateways to run the rules", async || {
        let (current, fleet) = operator.fleet().await;
        let run = fleet.iter().filter(|(_, version)| *version == current).count();
        (current > 0 && run == gateways.len()).then_some(())
    })
    .await;
}

/// A token bucket for each address.
fn rules(limit: u32, strict: bool) -> Value {
    json!({"rules": [{
        "name": "per-address", "key": ["client_address"], "rate": format!("{limit}/s"), "burst": limit, "strict": strict,
    }]})
}

async fn limited(store: &str, storage: &str, limit: u32) -> Result<(Running, SocketAddr), String> {
    let binary = limitador().ok_or("limitador has gone")?;
    let folder = tempfile::Builder::new().prefix("weir-bench-limitador-").tempdir();
    let folder = folder.map_err(|e| format!("no temporary folder: {e}"))?;
    let limits = folder.path().join("limits.yaml");
    let text = format!(
        "- namespace: bench\n  max_value: {limit}\n  seconds: 1\n  conditions: []\n  variables: [\"descriptors[0].remote_address\"]\n"
    );
    fs::write(&limits, text).map_err(|e| format!("{}: {e}", limits.display()))?;
    let (address, http) = (listens(), listens());
    let mut command = Command::new(binary);
    command.args(["--rls-ip", "127.0.0.1", "--rls-port", &address.port().to_string()]);
    command.args(["--http-ip", "127.0.0.1", "--http-port", &http.port().to_string()]);
    command.arg(&limits).args([storage, store]);
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
