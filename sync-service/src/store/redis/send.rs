//! Sending calls of a script to Redis, and sending the script with them where Redis has lost it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, FromRedisValue, Pipeline, ServerErrorKind};
use tokio::time::timeout;

use super::script::Lua;
use crate::store::StoreError;
use crate::store::link::Link;
use crate::store::trouble::explain;

/// Why there is no answer.
enum Failed {
    NoScript,
    Other(StoreError),
}

/// Sends `calls` of `script`; if Redis has lost the script, sends them once more behind it, which is harmless.
pub(super) async fn send<T: FromRedisValue>(
    link: &Link,
    calls: &Pipeline,
    script: &Lua,
) -> Result<T, StoreError> {
    let open = link.connection()?;
    let (mut connection, limit) = (open.connection.clone(), open.limit);
    let asking = async {
        match ask(calls, &mut connection, limit).await {
            Err(Failed::NoScript) => ask(&script.before(calls), &mut connection, limit).await,
            answer => answer,
        }
    };
    // One limit for both tries: a report waits no longer because Redis was restarted.
    let answer = timeout(limit, asking).await;
    answer.unwrap_or_else(|_| Err(Failed::Other(StoreError::Slow(limit.as_millis())))).map_err(|failed| {
        let reason = match failed {
            Failed::NoScript => StoreError::Nonsense("a script that it was sent is not there"),
            Failed::Other(reason) => reason,
        };
        link.failed(&open, reason.clone());
        reason
    })
}

async fn ask<T: FromRedisValue>(
    calls: &Pipeline,
    connection: &mut MultiplexedConnection,
    limit: Duration,
) -> Result<T, Failed> {
    match calls.query_async(connection).await {
        Ok(answer) => Ok(answer),
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => Err(Failed::NoScript),
        Err(error) => Err(Failed::Other(explain(&error, limit))),
    }
}
