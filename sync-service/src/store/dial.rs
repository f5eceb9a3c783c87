//! Opening connections: to one server, to the one that sentinels name, to each of a cluster.
//!
//! The files with the password and the certificates are read for each connection. So what is put in their place is used
//! from the next connection on.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionInfo, ErrorKind, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates,
};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::StoreError;
use super::address::{Address, Kind, Node, NodeMap};

/// How long a sentinel may take to answer.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);

/// The files that a connection takes.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The password, instead of one in the URL.
    pub password: Option<String>,
    /// Certificates (PEM) to trust, instead of the system's.
    pub ca: Option<String>,
    /// The client's certificate (PEM), ...
    pub client_cert: Option<String>,
    /// ... and its private key (PEM).
    pub client_key: Option<String>,
}

/// Why no connection can ever be opened.
#[derive(Debug, Error)]
pub enum DialError {
    /// The address cannot be used.
    #[error("store: {0}")]
    Address(String),
    /// A file cannot be read.
    #[error("{0}: cannot read {1}: {2}")]
    File(&'static str, String, io::Error),
    /// A file holds something else.
    #[error("{0}: expected {2} in {1}")]
    Content(&'static str, String, &'static str),
    /// The client refuses the settings.
    #[error("store: {0}")]
    Client(#[from] RedisError),
}

/// Opens connections.
#[derive(Debug)]
pub struct Dialer {
    address: Address,
    files: Files,
    map: NodeMap,
}

impl Dialer {
    /// Fails if the URL or a file cannot be used.
    pub fn new(url: &str, files: Files, map: NodeMap) -> Result<Self, DialError> {
        let address = Address::read(url).map_err(DialError::Address)?;
        let dialer = Self { address, files, map };
        dialer.client(dialer.address.info().clone())?;
        Ok(dialer)
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// A client of one of a cluster's nodes.
    pub(super) fn client_of(&self, node: &Node) -> Result<Client, DialError> {
        let mapped = self.map.get(node).unwrap_or(node);
        self.client(self.address.info_of(mapped))
    }

    /// Whether the one server may be another each time.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.address.kind(), Kind::Sentinel(_))
    }

    /// A client of the one server there is, and where it is.
    pub(super) async fn find(&self) -> Result<(Client, String), StoreError> {
        if let Kind::Sentinel(master) = self.address.kind() {
            let node = self.ask_sentinels(master).await?;
            return Ok((self.client_of(&node)?, node.to_string()));
        }
        Ok((self.client(self.address.info().clone())?, self.address.to_string()))
    }

    /// A client that gives the user and the password of `info`, or the password of the file.
    fn client(&self, info: ConnectionInfo) -> Result<Client, DialError> {
        let Some(path) = &self.files.password else { return self.secured(info) };
        let text = String::from_utf8(read("store_password_file", path)?).unwrap_or_default();
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            return Err(DialError::Content("store_password_file", path.clone(), "a password"));
        }
        let settings = info.redis_settings().clone().set_password(password);
        self.secured(info.set_redis_settings(settings))
    }

    fn secured(&self, info: ConnectionInfo) -> Result<Client, DialError> {
        let Files { ca, client_cert, client_key, .. } = &self.files;
        let certificates = "certificates (PEM)";
        let root_cert = ca
            .as_ref()
            .map(|path| read_pem("store_ca_file", path, "CERTIFICATE", certificates))
            .transpose()?;
        let client_tls = match (client_cert, client_key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig {
                client_cert: read_pem("store_client_cert_file", cert, "CERTIFICATE", certificates)?,
                client_key: read_pem("store_client_key_file", key, "PRIVATE KEY", "a private key (PEM)")?,
            }),
            _ => None,
        };
        if root_cert.is_none() && client_tls.is_none() {
            return Ok(Client::open(info)?);
        }
        Ok(Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })?)
    }

    /// The master that most sentinels name. All are asked at once: one that is cut off may name that of long ago.
    async fn ask_sentinels(&self, master: &str) -> Result<Node, StoreError> {
        let sentinels = self.address.nodes();
        let mut asked = JoinSet::new();
        for sentinel in sentinels {
            let info = self.address.info_of(sentinel);
            let settings = info.redis_settings().clone().set_db(0);
            let stranger = self.secured(info.clone().set_redis_settings(RedisConnectionInfo::default()))?;
            let known = self.client(info.set_redis_settings(settings))?;
            asked.spawn(ask_sentinel(stranger, known, sentinel.clone(), master.to_owned()));
        }
        let (mut named, mut reason) = (HashMap::<Node, usize>::new(), String::new());
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(node)) => {
                    let times = named.entry(node.clone()).or_default();
                    *times += 1;
                    if *times > sentinels.len() / 2 {
                        return Ok(node);
                    }
                }
                Ok(Err(why)) => reason = why,
                // It cannot panic, and nobody aborts it.
                Err(_) => {}
            }
        }
        let most = named.into_iter().max_by_key(|(_, times)| *times);
        most.map(|(node, _)| node).ok_or(StoreError::Unreachable(reason))
    }
}

impl From<DialError> for StoreError {
    fn from(error: DialError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// The master as one sentinel names it, or why it does not. Most sentinels have no password; one that asks for it gets
/// the servers'.
async fn ask_sentinel(
    stranger: Client,
    known: Client,
    sentinel: Node,
    master: String,
) -> Result<Node, String> {
    let asking = async {
        match ask(&stranger, &master).await {
            Err(error) if error.kind() != ErrorKind::Io => ask(&known, &master).await,
            answer => answer,
        }
    };
    match timeout(SENTINEL_TIMEOUT, asking).await {
        Ok(Ok(Some((host, port)))) => Ok(Node::new(host, port)),
        Ok(Ok(None)) => Err(format!("the sentinel {sentinel} knows no master `{master}`")),
        Ok(Err(error)) => Err(format!("the sentinel {sentinel}: {error}")),
        Err(_) => Err(format!("the sentinel {sentinel} does not answer")),
    }
}

async fn ask(sentinel: &Client, master: &str) -> RedisResult<Option<(String, u16)>> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = sentinel.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).query_async(&mut connection).await
}

fn read(setting: &'static str, path: &str) -> Result<Vec<u8>, DialError> {
    fs::read(path).map_err(|error| DialError::File(setting, path.to_owned(), error))
}

/// A file that has `label` in it; the client would take one without for one of no certificates.
fn read_pem(
    setting: &'static str,
    path: &str,
    label: &str,
    expected: &'static str,
) -> Result<Vec<u8>, DialError> {
    let text = read(setting, path)?;
    let has_label = text.windows(label.len()).any(|part| part == label.as_bytes());
    has_label.then_some(text).ok_or_else(|| DialError::Content(setting, path.to_owned(), expected))
}
