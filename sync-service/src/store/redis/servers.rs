//! One Redis, or a cluster of them: where calls go, and what they give.

use std::sync::Arc;

use redis::{FromRedisValue, Value};

use super::cluster::Cluster;
use super::exchange::{Call, Manner, exchange, given};
use super::reach::Reach;
use super::script::Lua;
use crate::store::StoreError;
use crate::store::address::Kind;
use crate::store::link::{Link, Place};

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Servers {
    One(Link, Manner),
    Cluster(Cluster),
}

impl Servers {
    /// Starts connecting. Must run inside tokio.
    pub(super) fn new(reach: Reach) -> Self {
        if *reach.dialer.address().kind() == Kind::Cluster {
            return Self::Cluster(Cluster::new(reach));
        }
        let manner = Manner { wait: reach.wait, ..Manner::default() };
        Self::One(reach.link(Place::Only(Arc::clone(&reach.dialer))), manner)
    }

    /// What each of `calls` of `script` gave.
    pub(super) async fn send<T: FromRedisValue>(
        &self,
        calls: Vec<Call>,
        script: &Arc<Lua>,
    ) -> Vec<Result<T, StoreError>> {
        match self {
            Self::One(link, manner) => {
                let (count, commands) = (calls.len(), calls.into_iter().map(|call| call.command).collect());
                match exchange(link, commands, script, *manner).await {
                    Ok((open, values)) => {
                        values.into_iter().map(|value| read(given(value, link, &open))).collect()
                    }
                    Err(reason) => (0..count).map(|_| Err(reason.clone())).collect(),
                }
            }
            Self::Cluster(cluster) => cluster.send(calls, script).await.into_iter().map(read).collect(),
        }
    }

    /// What the one call gave.
    pub(super) async fn send_one<T: FromRedisValue>(
        &self,
        call: Call,
        script: &Arc<Lua>,
    ) -> Result<T, StoreError> {
        self.send(vec![call], script).await.pop().unwrap_or(Err(StoreError::Nonsense("no answer")))
    }

    /// Whether a server is in reach; an error says why not.
    pub(super) fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::One(link, _) => link.connection().map(|_| ()),
            Self::Cluster(cluster) => cluster.ping(),
        }
    }
}

fn read<T: FromRedisValue>(answer: Result<Value, StoreError>) -> Result<T, StoreError> {
    T::from_redis_value(answer?).map_err(|_| StoreError::Nonsense("another type"))
}
