//! Opens connections: to a single server, to the master that sentinels name, and to each node of a cluster.
//!
//! Files with passwords and certificates are read for each connection, so the next one uses a replaced file.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionInfo, ErrorKind, RedisConnectionInfo, RedisError,
    RedisResult, TlsCertificates,
};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::StoreError;
use super::address::{Address, Discovery, Node, NodeMap};
use super::trouble::explain;

/// Interval at which sentinels are asked for the master.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of threads that read files: on a disk that hangs, no time-out ends the reading.
const READERS_MAX: usize = 2;

/// Paths of the files for a connection's login and TLS.
#[derive(Clone, Debug, Default)]
pub struct LoginFiles {
    pub password: Option<String>,
    /// Password file for the sentinels, if their password differs.
    pub sentinel_password: Option<String>,
    /// User name at the sentinels, itself and not a file; their default user if there is none.
    pub sentinel_user: Option<String>,
    /// Trusted certificates (PEM), instead of the system's.
    pub ca: Option<String>,
    pub client_cert: Option<String>,
    pub client_key: Option<String>,
}

/// Reason why no connection can ever be opened.
#[derive(Debug, Error)]
pub enum DialError {
    #[error("store: {0}")]
    Address(String),
    #[error("{0}: cannot read {1}: {2}")]
    File(&'static str, String, io::Error),
    #[error("{0}: expected {2} in {1}")]
    Content(&'static str, String, &'static str),
    #[error("store: {0}")]
    Client(#[from] RedisError),
    #[error("store: weir-sync is stopping")]
    Stopping,
}

#[derive(Debug)]
pub struct Dialer {
    pub(super) address: Address,
    files: LoginFiles,
    map: NodeMap,
    /// One permit for each thread that may read files.
    readers: Arc<Semaphore>,
}

#[derive(Debug)]
pub(super) struct FoundServer {
    pub(super) client: Client,
    pub(super) server: String,
    pub(super) named: Option<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    /// No login: most sentinels have no passwords.
    Nobody,
    Server,
    /// The sentinels' own login; the servers' if there is none.
    Sentinel,
}

impl Dialer {
    pub fn new(url: &str, files: LoginFiles, map: NodeMap) -> Result<Self, DialError> {
        let address = Address::read(url).map_err(DialError::Address)?;
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        let dialer = Self { address, files, map, readers };
        for login in [Login::Server, Login::Sentinel] {
            dialer.open(dialer.address.info.clone(), login)?;
        }
        Ok(dialer)
    }

    pub(super) async fn client_of(self: &Arc<Self>, node: &Node) -> Result<Client, DialError> {
        let mapped = self.map.0.get(node).unwrap_or(node);
        self.client(self.address.info_of(mapped), Login::Server).await
    }

    /// Finds the server; sentinels may take `limit` to name it.
    pub(super) async fn find(self: &Arc<Self>, limit: Duration) -> Result<FoundServer, StoreError> {
        if let Discovery::Sentinel(master) = &self.address.kind {
            let (node, _) = self.ask_sentinels(master, limit).await?;
            let client = self.client_of(&node).await?;
            return Ok(FoundServer { client, server: node.to_string(), named: Some(node) });
        }
        let client = self.client(self.address.info.clone(), Login::Server).await?;
        Ok(FoundServer { client, server: self.address.to_string(), named: None })
    }

    /// Waits until a majority of the sentinels names a master other than `named`, and returns an error with it: the old
    /// master may be cut off from them, and still answer here. Each query takes at most `limit`. Waits for ever
    /// without sentinels.
    pub(super) async fn replaced(self: &Arc<Self>, named: Option<Node>, limit: Duration) -> StoreError {
        let (Discovery::Sentinel(master), Some(named)) = (&self.address.kind, named) else { return pending().await };
        loop {
            sleep(ASK_INTERVAL).await;
            match self.ask_sentinels(master, limit).await {
                Ok((node, true)) if node != named => {
                    return StoreError::Unreachable(format!("the sentinels' master is {node}, and no longer {named}"));
                }
                // A minority of sentinels may be cut off themselves.
                _ => {}
            }
        }
    }

    /// Creates a client on a thread where reading files blocks no task.
    async fn client(self: &Arc<Self>, info: ConnectionInfo, login: Login) -> Result<Client, DialError> {
        let dialer = Arc::clone(self);
        // The semaphore is never closed.
        let reader = Arc::clone(&self.readers).acquire_owned().await.map_err(|_| DialError::Stopping)?;
        let making = move || {
            // Held until the files are read, even after the caller's time-out.
            let _reader = reader;
            dialer.open(info, login)
        };
        let made = spawn_blocking(making).await;
        made.unwrap_or(Err(DialError::Stopping))
    }

    fn open(&self, info: ConnectionInfo, login: Login) -> Result<Client, DialError> {
        let settings = match (login, &self.files.password, &self.files.sentinel_password) {
            (Login::Nobody, ..) => RedisConnectionInfo::default(),
            (Login::Sentinel, _, Some(path)) => {
                let own = RedisConnectionInfo::default();
                let own = match &self.files.sentinel_user {
                    Some(user) => own.set_username(user),
                    None => own,
                };
                own.set_password(read_password("store_sentinel_password_file", path)?)
            }
            (_, Some(path), _) => {
                info.redis_settings().clone().set_password(read_password("store_password_file", path)?)
            }
            _ => info.redis_settings().clone(),
        };
        // Sentinels have no databases.
        let settings = if login == Login::Server { settings } else { settings.set_db(0) };
        self.secured(info.set_redis_settings(settings))
    }

    fn secured(&self, info: ConnectionInfo) -> Result<Client, DialError> {
        let LoginFiles { ca, client_cert, client_key, .. } = &self.files;
        let certificates = "certificates (PEM)";
        let root_cert =
            ca.as_ref().map(|path| read_pem("store_ca_file", path, "CERTIFICATE", certificates)).transpose()?;
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

    /// Returns the master that most sentinels name within `limit`, and true if they are a majority of all. All
    /// are asked at once, since one that is cut off may name a former master.
    async fn ask_sentinels(self: &Arc<Self>, master: &str, limit: Duration) -> Result<(Node, bool), StoreError> {
        let sentinels = &self.address.nodes;
        let ask = |(at, sentinel)| async move {
            let answer = timeout(limit, self.ask_sentinel(sentinel, master)).await;
            let slow = format!("the sentinel {sentinel} does not answer");
            (at, answer.unwrap_or(Err(StoreError::Unreachable(slow))))
        };
        let mut asked: FuturesUnordered<_> = sentinels.iter().enumerate().map(ask).collect();
        let (mut named, mut reasons) = (Vec::new(), Vec::new());
        while let Some((at, answer)) = asked.next().await {
            match answer {
                Ok(node) => named.push((at, node)),
                Err(reason) => reasons.push((at, reason)),
            }
            if let Some((node, times)) = most(&named)
                && times > sentinels.len() / 2
            {
                return Ok((node.clone(), true));
            }
        }
        // The first sentinel's reason, so that the reason does not change from try to try.
        reasons.sort_by_key(|(at, _)| *at);
        let reason = reasons.into_iter().next().map_or(StoreError::Connecting, |(_, reason)| reason);
        most(&named).map(|(node, _)| (node.clone(), false)).ok_or(reason)
    }

    /// Returns the master that one sentinel names. Without a password of the sentinels' own, the first try has
    /// no login; a sentinel that refuses that gets the servers' login.
    async fn ask_sentinel(self: &Arc<Self>, sentinel: &Node, master: &str) -> Result<Node, StoreError> {
        let info = self.address.info_of(sentinel);
        let with = async |login| {
            let client = self.client(info.clone(), login).await?;
            Ok::<_, DialError>(ask(&client, master).await)
        };
        let answer = match self.files.sentinel_password {
            Some(_) => with(Login::Sentinel).await?,
            None => match with(Login::Nobody).await? {
                Err(error) if error.kind() != ErrorKind::Io => with(Login::Sentinel).await?,
                answer => answer,
            },
        };
        match answer {
            Ok(Some((host, port))) => Ok(Node::new(host, port)),
            Ok(None) => Err(StoreError::Unreachable(format!("the sentinel {sentinel} knows no master `{master}`"))),
            Err(error) => Err(match explain(&error, Duration::ZERO) {
                StoreError::Refused(text) => StoreError::Refused(format!(
                    "the sentinel {sentinel}: {text}; store_sentinel_password_file is for sentinels with a password of \
                     their own"
                )),
                StoreError::Unreachable(text) => StoreError::Unreachable(format!("the sentinel {sentinel}: {text}")),
                other => other,
            }),
        }
    }
}

/// The node named most often, and its number of votes; on a tie, the vote of the sentinel listed first wins.
fn most(named: &[(usize, Node)]) -> Option<(&Node, usize)> {
    let times = |node: &Node| named.iter().filter(|(_, other)| other == node).count();
    let rank = |(at, node): &&(usize, Node)| (times(node), std::cmp::Reverse(*at));
    named.iter().max_by_key(rank).map(|(_, node)| (node, times(node)))
}

impl From<DialError> for StoreError {
    fn from(error: DialError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// Opens a connection. `limit` is only used in the error: the caller limits the time.
pub(super) async fn connect(client: &Client, limit: Duration) -> Result<MultiplexedConnection, StoreError> {
    unlimited(client).await.map_err(|error| explain(&error, limit))
}

/// Opens a connection without time-outs: its callers have their own.
async fn unlimited(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn ask(sentinel: &Client, master: &str) -> RedisResult<Option<(String, u16)>> {
    let mut connection = unlimited(sentinel).await?;
    redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).query_async(&mut connection).await
}

fn read(setting: &'static str, path: &str) -> Result<Vec<u8>, DialError> {
    fs::read(path).map_err(|error| DialError::File(setting, path.to_owned(), error))
}

fn read_password(setting: &'static str, path: &str) -> Result<String, DialError> {
    let other = |expected| DialError::Content(setting, path.to_owned(), expected);
    let text = String::from_utf8(read(setting, path)?).map_err(|_| other("UTF-8"))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() { Err(other("a password")) } else { Ok(password.to_owned()) }
}

/// Reads a file that must contain `label`, since the client library takes any other for an empty list of certificates.
fn read_pem(setting: &'static str, path: &str, label: &str, expected: &'static str) -> Result<Vec<u8>, DialError> {
    let text = read(setting, path)?;
    let has_label = text.windows(label.len()).any(|part| part == label.as_bytes());
    has_label.then_some(text).ok_or_else(|| DialError::Content(setting, path.to_owned(), expected))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn evenly_split_sentinels_count_in_list_order() {
        let node = |port| Node::new("a", port);
        let named = [(2, node(1)), (0, node(2)), (3, node(2)), (1, node(1))];
        assert_eq!(most(&named), Some((&node(2), 2)));
        let named = [(2, node(1)), (0, node(2)), (1, node(1))];
        assert_eq!(most(&named), Some((&node(1), 2)));
        assert_eq!(most(&[]), None);
    }

    #[test]
    fn endless_files_take_two_threads_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let [password, fifo] = ["password", "fifo"].map(|name| folder.path().join(name));
        fs::write(&password, "correct-horse").unwrap();
        let files = LoginFiles { password: Some(password.to_str().unwrap().into()), ..LoginFiles::default() };
        let dialer = Arc::new(Dialer::new("redis://127.0.0.1", files, NodeMap::default()).unwrap());
        // Reading a FIFO waits for a writer, as reading a file on a server that is gone waits for that.
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fs::remove_file(&password).unwrap();
        fs::hard_link(&fifo, &password).unwrap();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(READERS_MAX + 1).build().unwrap();
        let client = || dialer.client(dialer.address.info.clone(), Login::Server);
        let (tried, others, again) = runtime.block_on(async {
            let mut tried = Vec::new();
            for _ in 0..READERS_MAX * 2 {
                tried.push(timeout(Duration::from_millis(50), client()).await.is_ok());
            }
            let others = timeout(Duration::from_secs(5), spawn_blocking(|| {})).await.is_ok();
            fs::remove_file(&password).unwrap();
            fs::write(&password, "correct-horse").unwrap();
            // Ends the reading, and waits for no reader.
            drop(fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap());
            let again = timeout(Duration::from_secs(5), client()).await;
            (tried, others, again.is_ok_and(|client| client.is_ok()))
        });
        runtime.shutdown_background();
        assert!(!tried.contains(&true), "nothing was written yet: {tried:?}");
        assert!(others, "a thread is left for others");
        assert!(again, "files are read again");
    }
}
