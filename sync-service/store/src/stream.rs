//! Redis Stream to which lines are appended, over a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind, RedisError, ServerErrorKind};
use tokio::time::timeout;

use super::StoreError;
use super::address::{Node, NodeMap};
use super::dial::{DialError, Dialer, LoginFiles, connect};
use super::trouble::explain;

/// Time-out for opening a connection, as a multiple of an answer's: name look-up, TLS, password.
const OPEN_TIMES: u32 = 4;
/// Maximum number of redirects between nodes of a cluster.
const REDIRECTS_MAX: usize = 5;

#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Address of Redis, in the form of a store's.
    pub url: String,
    pub key: String,
    pub files: LoginFiles,
    pub nodes: NodeMap,
    pub response_timeout: Duration,
    pub entries_max: usize,
}

#[derive(Clone, Debug)]
pub struct EventLine {
    pub kind: &'static str,
    /// JSON without a line break.
    pub json: Arc<str>,
}

#[derive(Debug)]
pub struct StreamWriter {
    dialer: Arc<Dialer>,
    key: String,
    limit: Duration,
    entries_max: usize,
    connection: Option<MultiplexedConnection>,
    /// Node of a cluster that serves the key, from its redirect.
    node: Option<Node>,
}

impl StreamWriter {
    /// Creates a writer without connecting. Fails if the address or a file cannot be used.
    pub fn new(settings: StreamSettings) -> Result<Self, DialError> {
        let StreamSettings { url, key, files, nodes, response_timeout, entries_max } = settings;
        let dialer = Arc::new(Dialer::new(&url, files, nodes)?);
        Ok(Self { dialer, key, limit: response_timeout, entries_max, connection: None, node: None })
    }

    /// Appends `lines`. If it fails, some of them may have been appended.
    pub async fn append(&mut self, lines: &[EventLine]) -> Result<(), StoreError> {
        for _ in 0..REDIRECTS_MAX {
            let appended = self.try_append(lines).await;
            if matches!(appended, Ok(None)) {
                return Ok(());
            }
            // Another node has the key, or after an error another server may have taken over.
            self.connection = None;
            self.node = appended.as_ref().ok().cloned().flatten();
            appended?;
        }
        Err(StoreError::Refused("the cluster's nodes disagree about who has the stream".into()))
    }

    /// Appends `lines`, or returns the node of a cluster that serves the key.
    async fn try_append(&mut self, lines: &[EventLine]) -> Result<Option<Node>, StoreError> {
        let limit = self.limit;
        if self.connection.is_none() {
            self.connection = Some(self.open().await?);
        }
        let Some(connection) = &mut self.connection else { return Err(StoreError::Connecting) };
        let mut pipeline = redis::pipe();
        for line in lines {
            let command = pipeline.cmd("XADD").arg(&self.key).arg("MAXLEN").arg("~").arg(self.entries_max).arg("*");
            command.arg("event").arg(line.kind).arg("json").arg(&*line.json).ignore();
        }
        let answer = timeout(limit, pipeline.query_async::<()>(connection)).await;
        match answer {
            Err(_) => Err(StoreError::Slow(limit.as_millis())),
            Ok(Ok(())) => Ok(None),
            Ok(Err(error)) => moved(&error).map(Some).ok_or_else(|| explain(&error, limit)),
        }
    }

    async fn open(&self) -> Result<MultiplexedConnection, StoreError> {
        let limit = self.limit * OPEN_TIMES;
        let opening = async {
            let client: Client = match &self.node {
                Some(node) => self.dialer.client_of(node).await?,
                None => self.dialer.find(limit).await?.client,
            };
            connect(&client, limit).await
        };
        timeout(limit, opening).await.unwrap_or(Err(StoreError::Slow(limit.as_millis())))
    }
}

/// The node that serves the key, if the error is a redirect.
fn moved(error: &RedisError) -> Option<Node> {
    let error = match error.clone().into_server_errors().as_deref() {
        Some([(_, first), ..]) => RedisError::from(first.clone()),
        _ => error.clone(),
    };
    let is_moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
    error.redirect_node().filter(|_| is_moved).and_then(|(node, _)| Node::read(node))
}
