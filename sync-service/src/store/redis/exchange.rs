//! One trip over one link: calls of a script, each with its own answer.

use std::time::Duration;

use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, ToRedisArgs, Value};
use tokio::time::{Instant, timeout};

use super::script::Lua;
use crate::store::StoreError;
use crate::store::clock::late_us;
use crate::store::link::{Link, Open};
use crate::store::trouble::explain;

/// A command, and the key that says which server of a cluster it is for.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) key: String,
    pub(super) command: Cmd,
}

impl Call {
    /// A command for the server of `key`.
    pub(super) fn new(name: &str, key: &str) -> Self {
        Self { key: key.to_owned(), command: redis::cmd(name) }
    }

    /// Runs a script on `keys`, which are all of one slot.
    pub(super) fn of(script: &Lua, keys: &[&str]) -> Self {
        let mut call = Self::new("EVALSHA", keys.first().copied().unwrap_or_default());
        call.arg(script.get_hash()).arg(keys.len()).arg(keys);
        call
    }

    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }
}

/// How calls are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// When all trips of the calls are to be over: until then a link that is being opened is waited for. Without this, the
    /// link's own limit is all there is, and the link has to be open.
    pub(super) until: Option<Instant>,
    /// The keys are being moved to this server, which is told that we know.
    pub(super) is_asking: bool,
    /// How long a replica may take to have it, too; without this it is not waited for.
    pub(super) wait: Option<Duration>,
}

/// Sends `calls` of `script`, and returns an answer for each, which may be an error. Those that find the script lost are
/// sent once more behind it, which is harmless, and those that are refused as late once more as well, now that the server's
/// clock was heard. Fails if there is no connection, or no answer in time.
pub(super) async fn exchange(
    link: &Link,
    mut calls: Vec<Cmd>,
    script: &Lua,
    manner: Manner,
) -> Result<(Open, Vec<Value>), StoreError> {
    let open = match manner.until {
        Some(until) => link.opened(until).await?,
        None => link.connection()?,
    };
    let longest = open.limit + manner.wait.unwrap_or_default();
    let left = manner.until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
    let limit = left.min(longest);
    let told = script.is_timed().then(|| link.clock.tell());
    if let Some(told) = told {
        for call in &mut calls {
            told.add_to(call);
        }
    }
    let asking = async {
        let mut first = pipeline(calls, manner.is_asking);
        let mut values = query(&mut first, &open, manner.wait).await?;
        let is_lost = |value: &Value| error_kind(value) == Some(ErrorKind::Server(ServerErrorKind::NoScript));
        let lost: Vec<usize> =
            values.iter().enumerate().filter(|(_, value)| is_lost(value)).map(|(at, _)| at).collect();
        if !lost.is_empty() && !manner.is_asking {
            let calls = first.cmd_iter().enumerate().filter(|(at, _)| lost.contains(at));
            let mut again = script.before(calls.map(|(_, call)| call.clone()));
            let again = query(&mut again, &open, manner.wait).await?;
            for (at, value) in lost.into_iter().zip(again) {
                if let Some(known) = values.get_mut(at) {
                    *known = value;
                }
            }
        }
        if let Some(told) = told {
            link.clock.hear(told, &values);
            send_late_again(link, &open, &first, manner, &mut values).await?;
        }
        Ok(values)
    };
    // One limit for both tries: a report waits no longer because a server was restarted.
    let answer = timeout(limit, asking).await;
    let values = match answer {
        Ok(values) => values,
        Err(_) => Err(StoreError::Slow(longest.as_millis())),
    };
    match values {
        Ok(values) => Ok((open, values)),
        Err(reason) => {
            let is_its_own = match reason {
                StoreError::Unconfirmed(_) => false,
                // A server that was given little of its time may be in time.
                StoreError::Slow(_) => limit >= longest / 2,
                _ => true,
            };
            if is_its_own {
                link.failed(&open, reason.clone());
            }
            Err(reason)
        }
    }
}

/// Sends those calls once more that were refused as late, now that the server's clock was heard.
async fn send_late_again(
    link: &Link,
    open: &Open,
    sent: &Pipeline,
    manner: Manner,
    values: &mut [Value],
) -> Result<(), StoreError> {
    let sent = sent.cmd_iter().filter(|command| !is_asking(command)).zip(values);
    let late: Vec<_> = sent.filter(|(_, value)| late_us(value).is_some()).collect();
    if late.is_empty() {
        return Ok(());
    }
    let told = link.clock.tell();
    let (calls, values): (Vec<_>, Vec<_>) =
        late.into_iter().map(|(call, value)| (told.instead(call), value)).unzip();
    let again = query(&mut pipeline(calls, manner.is_asking), open, manner.wait).await?;
    link.clock.hear(told, &again);
    for (value, answer) in values.into_iter().zip(again) {
        *value = answer;
    }
    Ok(())
}

/// What `link` answered over `open`; the link hears of a refusal.
pub(super) fn given(value: Value, link: &Link, open: &Open) -> Result<Value, StoreError> {
    let Value::ServerError(error) = value else { return Ok(value) };
    let reason = explain(&RedisError::from(error), open.limit);
    link.failed(open, reason.clone());
    Err(reason)
}

/// The kind of an answer that is an error.
pub(super) fn error_kind(value: &Value) -> Option<ErrorKind> {
    match value {
        Value::ServerError(error) => Some(RedisError::from(error.clone()).kind()),
        _ => None,
    }
}

fn is_asking(command: &Cmd) -> bool {
    command.args_iter().next() == Some(redis::Arg::Simple(b"ASKING"))
}

fn pipeline(calls: Vec<Cmd>, is_asking: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        if is_asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(call);
    }
    pipeline.ignore_errors();
    pipeline
}

/// What each of `calls` gave, once a replica has it, too, if that is waited for.
async fn query(calls: &mut Pipeline, open: &Open, wait: Option<Duration>) -> Result<Vec<Value>, StoreError> {
    if let Some(wait) = wait {
        calls.cmd("WAIT").arg(1).arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    }
    let answer = calls.query_async::<Vec<Value>>(&mut open.connection.clone()).await;
    let mut values = answer.map_err(|error| explain(&error, open.limit))?;
    if let Some(wait) = wait {
        match values.pop() {
            Some(Value::Int(1..)) => {}
            Some(Value::ServerError(error)) => return Err(explain(&RedisError::from(error), open.limit)),
            _ => return Err(StoreError::Unconfirmed(wait.as_millis())),
        }
    }
    Ok(values)
}
