//! Servers of a store: one Redis, or the masters of a cluster.

use std::sync::Arc;

use redis::{FromRedisValue, Value};

use super::cluster::Cluster;
use super::exchange::RoutedCommand;
use super::script::Lua;
use super::server::{Reach, Server};
use crate::address::Discovery;
use crate::link::LinkTarget;
use crate::{Master, StoreError};

#[derive(Debug)]
pub(super) enum Servers {
    One(Server),
    Cluster(Cluster),
}

impl Servers {
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
        let count = calls.len();
        let answers = match self {
            Self::One(server) => match server.send(calls, script, None).await {
                Ok((open, values)) => values.into_iter().map(|value| server.given(value, &open)).collect(),
                Err(reason) => vec![Err(reason); count],
            },
            Self::Cluster(cluster) => cluster.send(calls, script).await,
        };
        let read = |value| T::from_redis_value(value).map_err(|_| StoreError::Invalid("another type"));
        answers.into_iter().map(|answer: Result<Value, _>| answer.and_then(read)).collect()
    }

    pub(super) fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => server.link.connection().map(|_| ()),
            Self::Cluster(cluster) => cluster.nodes.ping(),
        }
    }

    /// Masters in reach, with the result of their last confirmation by a replica, if acquires wait for one.
    pub(super) fn masters(&self) -> Vec<Master> {
        match self {
            Self::One(server) => server.master().into_iter().collect(),
            Self::Cluster(cluster) => cluster.nodes.masters(),
        }
    }
}
