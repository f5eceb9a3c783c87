//! One trip over one connection: calls of a script, each with its own answer.

use std::mem::replace;
use std::time::Duration;

use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, ToRedisArgs, Value};

use super::script::Lua;
use crate::store::StoreError;
use crate::store::clock::{Way, late_us};
use crate::store::link::{Link, Open};
use crate::store::trouble::explain;

/// The command that runs a script.
const EVALSHA: &str = "EVALSHA";
/// As many digits as the number of a call's keys has at most.
const DIGITS_MAX: usize = 20;
/// What goes before a call whose key is being moved to the server that is asked.
const ASKING: &str = "ASKING";

/// A command, and the key that says which server of a cluster it is for.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) key: String,
    pub(super) command: Cmd,
    /// What its last argument ends with, behind what is known of the server's clock, if its script is told so.
    pub(super) tail: Vec<u8>,
    /// The key is being moved to the server that is asked, which is told that we know.
    pub(super) is_asking: bool,
}

impl Call {
    /// A command for the server of `key`.
    pub(super) fn new(name: &str, key: &str) -> Self {
        Self { key: key.to_owned(), command: redis::cmd(name), tail: Vec::new(), is_asking: false }
    }

    /// Runs a script on `keys`, which are all of one slot.
    pub(super) fn of<K: AsRef<str> + ToRedisArgs>(script: &Lua, keys: &[K]) -> Self {
        Self::with_room(script, keys, 0, 0)
    }

    /// The same, with room for so many arguments more, of so many bytes in all.
    pub(super) fn with_room<K: AsRef<str> + ToRedisArgs>(
        script: &Lua,
        keys: &[K],
        args: usize,
        bytes: usize,
    ) -> Self {
        let hash = script.get_hash();
        let bytes = bytes
            + EVALSHA.len()
            + hash.len()
            + DIGITS_MAX
            + keys.iter().map(|key| key.as_ref().len()).sum::<usize>();
        let key = keys.first().map(AsRef::as_ref).unwrap_or_default().to_owned();
        let command = Cmd::with_capacity(3 + keys.len() + args, bytes);
        let mut call = Self { key, command, tail: Vec::new(), is_asking: false };
        call.arg(EVALSHA).arg(hash).arg(keys.len()).arg(keys);
        call
    }

    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }
}

/// Sends `calls` of `script` over a connection to where `link` leads, and returns an answer for each, which may be an
/// error. Those that find the script lost are sent once more behind it, which is harmless, and those that are refused as late
/// once more as well, now that the server's clock was heard. With `wait`, answers count only once a replica has what the
/// calls did, which it may take so long for.
pub(super) async fn exchange(
    link: &Link,
    open: &Open,
    mut calls: Vec<Call>,
    script: &Lua,
    wait: Option<Duration>,
) -> Result<Vec<Value>, StoreError> {
    let told = script.way().map(|way| (link.clock.tell(), way));
    if let Some((told, way)) = told {
        for call in &mut calls {
            told.add_to(&mut call.command, way, &call.tail);
        }
    }
    let mut first = pipeline(None, calls.into_iter().map(|call| (call.command, call.is_asking)));
    let mut values = query(&mut first, open, wait).await?;
    let is_lost = |value: &Value| error_kind(value) == Some(ErrorKind::Server(ServerErrorKind::NoScript));
    let lost: Vec<_> = sent(&first).zip(&mut values).filter(|(_, value)| is_lost(value)).collect();
    if !lost.is_empty() {
        let (calls, places): (Vec<_>, Vec<_>) =
            lost.into_iter().map(|((call, is_asking), place)| ((call.clone(), is_asking), place)).unzip();
        let again = query(&mut pipeline(Some(script), calls.into_iter()), open, wait).await?;
        places.into_iter().zip(again).for_each(|(place, value)| *place = value);
    }
    if let Some((told, way)) = told {
        link.clock.hear(told, &values, way);
        send_late_again(link, open, &first, (wait, way), &mut values).await?;
    }
    Ok(values)
}

/// Sends those calls once more that were refused as late, now that the server's clock was heard.
async fn send_late_again(
    link: &Link,
    open: &Open,
    first: &Pipeline,
    (wait, way): (Option<Duration>, Way),
    values: &mut [Value],
) -> Result<(), StoreError> {
    let late: Vec<_> = sent(first).zip(values).filter(|(_, value)| late_us(value).is_some()).collect();
    if late.is_empty() {
        return Ok(());
    }
    let told = link.clock.tell();
    let (calls, places): (Vec<_>, Vec<_>) = late
        .into_iter()
        .map(|((call, is_asking), place)| ((told.instead(call, way), is_asking), place))
        .unzip();
    let again = query(&mut pipeline(None, calls.into_iter()), open, wait).await?;
    link.clock.hear(told, &again, way);
    places.into_iter().zip(again).for_each(|(place, value)| *place = value);
    Ok(())
}

/// The kind of an answer that is an error.
pub(super) fn error_kind(value: &Value) -> Option<ErrorKind> {
    match value {
        Value::ServerError(error) => Some(RedisError::from(error.clone()).kind()),
        _ => None,
    }
}

/// Commands, and whether the keys of each are being moved to the server that is asked, which is told that we know; the text
/// of `script` goes before them where the server has lost it.
fn pipeline(script: Option<&Lua>, calls: impl Iterator<Item = (Cmd, bool)>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(calls.size_hint().0);
    if let Some(script) = script {
        pipeline.add_command(script.load()).ignore();
    }
    for (command, is_asking) in calls {
        if is_asking {
            pipeline.cmd(ASKING).ignore();
        }
        pipeline.add_command(command);
    }
    pipeline.ignore_errors();
    pipeline
}

/// What a [`pipeline`] was made of.
fn sent(pipeline: &Pipeline) -> impl Iterator<Item = (&Cmd, bool)> {
    let mut is_next_asking = false;
    pipeline.cmd_iter().filter_map(move |command| {
        let is_asking = command.args_iter().next() == Some(Arg::Simple(ASKING.as_bytes()));
        let was_asking = replace(&mut is_next_asking, is_asking);
        (!is_asking).then_some((command, was_asking))
    })
}

/// What each of `calls` gave, errors among them, once a replica has it, too, if that is waited for.
async fn query(calls: &mut Pipeline, open: &Open, wait: Option<Duration>) -> Result<Vec<Value>, StoreError> {
    if let Some(wait) = wait {
        add_wait(calls, wait);
    }
    let answer = calls.query_async(&mut open.connection.clone()).await;
    let values = answer.map_err(|error| explain(&error, open.limit))?;
    match wait {
        Some(wait) => confirmed(values, open, wait),
        None => Ok(values),
    }
}

/// Has the server wait at the end of `calls` until a replica has what they did.
pub(super) fn add_wait(calls: &mut Pipeline, wait: Duration) {
    calls.cmd("WAIT").arg(1).arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
}

/// What calls gave at whose end was a wait, or why that does not count.
pub(super) fn confirmed(
    mut values: Vec<Value>,
    open: &Open,
    wait: Duration,
) -> Result<Vec<Value>, StoreError> {
    match values.pop() {
        Some(Value::Int(1..)) => Ok(values),
        Some(Value::ServerError(error)) => Err(explain(&RedisError::from(error), open.limit)),
        _ => Err(StoreError::Unconfirmed(wait.as_millis())),
    }
}
