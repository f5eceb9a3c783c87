//! One Redis, or a cluster of them: where calls go, and what they give.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, RedisError, Value};

use super::cluster::Cluster;
use super::exchange::{Call, Manner, exchange};
use super::script::Lua;
use crate::store::StoreError;
use crate::store::address::Kind;
use crate::store::dial::Dialer;
use crate::store::link::{Link, Open, Place};
use crate::store::trouble::explain;

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Servers {
    One(Link, Manner),
    Cluster(Cluster),
}

impl Servers {
    /// Starts connecting; `scripts` are loaded on each new connection. Each call waits for a replica if there is a `wait`.
    pub(super) fn new(
        dialer: Arc<Dialer>,
        response_timeout: Duration,
        scripts: Arc<[String]>,
        wait: Option<Duration>,
    ) -> Self {
        match dialer.address().kind() {
            Kind::Cluster => Self::Cluster(Cluster::new(dialer, response_timeout, scripts, wait)),
            _ => Self::One(
                Link::new(Place::Only(dialer), response_timeout, scripts),
                Manner { wait, ..Manner::default() },
            ),
        }
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
                    Ok((open, values)) => values.into_iter().map(|value| given(value, link, &open)).collect(),
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

/// An answer of `link`, which hears of a refusal.
fn given<T: FromRedisValue>(value: Value, link: &Link, open: &Open) -> Result<T, StoreError> {
    let value = match value {
        Value::ServerError(error) => {
            let reason = explain(&RedisError::from(error), open.limit);
            link.failed(open, reason.clone());
            Err(reason)
        }
        value => Ok(value),
    };
    read(value)
}

fn read<T: FromRedisValue>(answer: Result<Value, StoreError>) -> Result<T, StoreError> {
    T::from_redis_value(answer?).map_err(|_| StoreError::Nonsense("another type"))
}
