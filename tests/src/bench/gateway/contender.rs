//! The services that are compared, each as its users run it, with one limit for each address.

use std::any::Any;
use std::env;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

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
    pub(super) contender: Contender,
    /// Its address for gRPC.
    pub(super) address: SocketAddr,
    /// Its process.
    pub(super) id: u32,
    _running: Box<dyn Any>,
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
    for contender in contenders.iter().copied() {
        let store = contender.store(redis);
        services.push(match contender {
            Contender::Minimal => {
                let service = service::Service::start(&store, limit).await?;
                let (address, id) = (service.address(), service.id());
                Service { contender, address, id, _running: Box::new(service) }
            }
            Contender::Strict | Contender::Plain => gateway(contender, &store, limit).await,
            Contender::Limitador => limited(&store, limit).await?,
        });
    }
    Ok(services)
}

/// A gateway with a token bucket for each address in force.
async fn gateway(contender: Contender, store: &str, limit: u32) -> Service {
    let strict = contender == Contender::Strict;
    let rules = json!({"rules": [{
        "name": "per-address", "key": ["client_address"], "rate": format!("{limit}/s"), "burst": limit,
        "strict": strict,
    }]});
    let address = listens();
    let listen = address.to_string();
    let mut weir_sync = WeirSync::start_with(REGION, store, &["--gateway", "on", "--grpc-listen", &listen]).await;
    weir_sync.answers("/readyz", 200).await;
    let mut operator = Operator::of(&weir_sync);
    let version = operator.put_good(&rules).await;
    until("the gateway to run the rules", async || {
        let (_, fleet) = operator.fleet().await;
        fleet.iter().any(|(_, runs)| *runs == version).then_some(())
    })
    .await;
    Service { contender, address, id: weir_sync.id(), _running: Box::new(weir_sync) }
}

async fn limited(store: &str, limit: u32) -> Result<Service, String> {
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
    let process = Process::listening("limitador", command, &folder.path().join("limitador.log"), address).await;
    // The process ends first.
    let (contender, id) = (Contender::Limitador, process.id());
    Ok(Service { contender, address, id, _running: Box::new((process, folder)) })
}

fn listens() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()))
}
