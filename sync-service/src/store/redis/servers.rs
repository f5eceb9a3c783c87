//! Servers of a store: one Redis, or a cluster.

use std::sync::Arc;

use redis::{FromRedisValue, Value};

use super::cluster::Cluster;
use super::exchange::RoutedCommand;
use super::script::Lua;
use super::server::{Manner, Reach, Server};
use crate::store::address::Discovery;
use crate::store::keys::RedisKeys;
use crate::store::link::LinkTarget;
use crate::store::{Master, StoreError};

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Servers {
    One(Server),
    Cluster(Cluster),
}

impl Servers {
    /// Starts connecting. Must be called inside a tokio runtime.
    pub(super) fn new(reach: Reach) -> Self {
        if *reach.dialer.address().kind() == Discovery::Cluster {
            return Self::Cluster(Cluster::new(reach));
        }
        Self::One(reach.server(LinkTarget::Only(Arc::clone(&reach.dialer))))
    }

    /// Sends `calls` of `script`; returns their results in order.
    pub(super) async fn send<T: FromRedisValue>(
        &self,
        calls: Vec<RoutedCommand>,
        script: &Arc<Lua>,
    ) -> Vec<Result<T, StoreError>> {
        self.send_in(calls, script, Manner::default()).await
    }

    /// The same, but the results count only once a replica has the calls' effects, if the store waits for that.
    pub(super) async fn send_confirmed<T: FromRedisValue>(
        &self,
        calls: Vec<RoutedCommand>,
        script: &Arc<Lua>,
    ) -> Vec<Result<T, StoreError>> {
        self.send_in(calls, script, Manner { is_confirmed: true, ..Manner::default() }).await
    }

    async fn send_in<T: FromRedisValue>(
        &self,
        calls: Vec<RoutedCommand>,
        script: &Arc<Lua>,
        manner: Manner,
    ) -> Vec<Result<T, StoreError>> {
        match self {
            Self::One(server) => {
                let count = calls.len();
                match server.send(calls, script, manner).await {
                    Ok((open, values)) => {
                        values.into_iter().map(|value| read(server.given(value, &open))).collect()
                    }
                    Err(reason) => (0..count).map(|_| Err(reason.clone())).collect(),
                }
            }
            Self::Cluster(cluster) => {
                cluster.send(calls, script, manner).await.into_iter().map(read).collect()
            }
        }
    }

    /// Succeeds if a server is in reach.
    pub(super) fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => server.link.connection().map(|_| ()),
            Self::Cluster(cluster) => cluster.ping(),
        }
    }

    /// Masters in reach, with the result of their last confirmation by a replica, if acquires wait for one.
    pub(super) fn masters(&self) -> Vec<Master> {
        match self {
            Self::One(server) => server.master().into_iter().collect(),
            Self::Cluster(cluster) => cluster.masters(),
        }
    }
}

fn read<T: FromRedisValue>(answer: Result<Value, StoreError>) -> Result<T, StoreError> {
    T::from_redis_value(answer?).map_err(|_| StoreError::Invalid("another type"))
}

/// Calls of one script.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) servers: Arc<Servers>,
    pub(super) keys: RedisKeys,
    pub(super) script: Arc<Lua>,
}

impl Caller {
    /// Creates a call of the script on `names`, which are all in one slot.
    pub(super) fn call(&self, names: &[String]) -> RoutedCommand {
        RoutedCommand::of(&self.script, names)
    }

    /// Sends one call; returns its result.
    pub(super) async fn send<T: FromRedisValue>(&self, call: RoutedCommand) -> Result<T, StoreError> {
        let mut results = self.servers.send(vec![call], &self.script).await;
        results.pop().unwrap_or(Err(StoreError::Invalid("no answer")))
    }
}
