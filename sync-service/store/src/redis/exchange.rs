//! One exchange over one connection: calls of a script, each with its own answer.

use std::mem::replace;

use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, ToRedisArgs, Value};

use super::Wait;
use super::script::Lua;
use crate::StoreError;
use crate::clock::{Route, SentBounds, late_us};
use crate::link::{Link, OpenConnection};
use crate::trouble::explain;

const EVALSHA: &str = "EVALSHA";
/// Maximum number of digits of a call's key count.
const DIGITS_MAX: usize = 20;
/// Command before a call whose key is being moved to the called server.
const ASKING: &str = "ASKING";

/// A command, and the key that selects the server of a cluster.
#[derive(Clone, Debug)]
pub(super) struct RoutedCommand {
    pub(super) key: String,
    command: Cmd,
    /// For a script's call: end of the last argument, after the bounds of the server's clock, if the script takes
    /// those. None for a plain command, which takes no bounds.
    pub(super) tail: Option<Vec<u8>>,
    /// True if the key is being moved to the called server; the call is then preceded by [`ASKING`].
    pub(super) is_asking: bool,
}

impl RoutedCommand {
    pub(super) fn new(name: &str, key: &str) -> Self {
        Self { key: key.to_owned(), command: redis::cmd(name), tail: None, is_asking: false }
    }

    /// Creates a call of a script on `keys`, which are all in one slot.
    pub(super) fn of<K: AsRef<str> + ToRedisArgs>(script: &Lua, keys: &[K]) -> Self {
        Self::with_room(script, keys, 0, 0)
    }

    /// Creates the same call with room for `args` more arguments of `bytes` bytes in all.
    pub(super) fn with_room<K: AsRef<str> + ToRedisArgs>(script: &Lua, keys: &[K], args: usize, bytes: usize) -> Self {
        let hash = script.get_hash();
        let bytes =
            bytes + EVALSHA.len() + hash.len() + DIGITS_MAX + keys.iter().map(|key| key.as_ref().len()).sum::<usize>();
        let key = keys.first().map(AsRef::as_ref).unwrap_or_default().to_owned();
        let command = Cmd::with_capacity(3 + keys.len() + args, bytes);
        let mut call = Self { key, command, tail: Some(Vec::new()), is_asking: false };
        call.arg(EVALSHA).arg(hash).arg(keys.len()).arg(keys);
        call
    }

    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Adds the bounds of the server's clock to a script's call, and nothing to a plain command.
    fn add_bounds(&mut self, bounds: SentBounds, route: Route) {
        if let Some(tail) = &self.tail {
            bounds.add_to(&mut self.command, route, tail);
        }
    }
}

/// Sends calls of `script`, and plain commands, over a connection of `link`; returns an answer for each, which may
/// be an error.
///
/// Calls that fail because the script is not loaded are sent once more after loading it, which is harmless.
/// Calls that were refused as late are sent once more, too, as the server's clock is known by then. With
/// `wait`, answers count only once replicas have the calls' effects.
pub(super) async fn exchange(
    link: &Link,
    open: &OpenConnection,
    mut calls: Vec<RoutedCommand>,
    script: &Lua,
    wait: Option<Wait>,
) -> Result<Vec<Value>, StoreError> {
    let bounds = script.way().map(|way| (link.clock.bounds_sent(), way));
    if let Some((bounds, way)) = bounds {
        for call in &mut calls {
            call.add_bounds(bounds, way);
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
    if let Some((bounds, way)) = bounds {
        link.clock.observe(bounds, &values, way);
        send_late_again(link, open, &first, (wait, way), &mut values).await?;
    }
    Ok(values)
}

/// Sends the calls once more that were refused as late, now that the server's clock is known.
async fn send_late_again(
    link: &Link,
    open: &OpenConnection,
    first: &Pipeline,
    (wait, way): (Option<Wait>, Route),
    values: &mut [Value],
) -> Result<(), StoreError> {
    let late: Vec<_> = sent(first).zip(values).filter(|(_, value)| late_us(value).is_some()).collect();
    if late.is_empty() {
        return Ok(());
    }
    let bounds = link.clock.bounds_sent();
    let (calls, places): (Vec<_>, Vec<_>) =
        late.into_iter().map(|((call, is_asking), place)| ((bounds.instead(call, way), is_asking), place)).unzip();
    let again = query(&mut pipeline(None, calls.into_iter()), open, wait).await?;
    link.clock.observe(bounds, &again, way);
    places.into_iter().zip(again).for_each(|(place, value)| *place = value);
    Ok(())
}

pub(super) fn error_kind(value: &Value) -> Option<ErrorKind> {
    match value {
        Value::ServerError(error) => Some(RedisError::from(error.clone()).kind()),
        _ => None,
    }
}

/// Pipeline of commands. A command with `true` is preceded by [`ASKING`], because its key is being moved to the
/// called server. `script` is loaded first, if the server has lost it.
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

/// Commands that a [`pipeline`] was made of.
fn sent(pipeline: &Pipeline) -> impl Iterator<Item = (&Cmd, bool)> {
    let mut is_next_asking = false;
    pipeline.cmd_iter().filter_map(move |command| {
        let is_asking = command.args_iter().next() == Some(Arg::Simple(ASKING.as_bytes()));
        let was_asking = replace(&mut is_next_asking, is_asking);
        (!is_asking).then_some((command, was_asking))
    })
}

/// Sends `calls` and returns their answers, including errors. With `wait`, they count only once replicas have
/// their effects.
async fn query(calls: &mut Pipeline, open: &OpenConnection, wait: Option<Wait>) -> Result<Vec<Value>, StoreError> {
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

/// Adds a `WAIT` to the end of `calls`.
pub(super) fn add_wait(calls: &mut Pipeline, wait: Wait) {
    let millis = u64::try_from(wait.limit.as_millis()).unwrap_or(u64::MAX);
    calls.cmd("WAIT").arg(wait.replicas).arg(millis);
}

/// Answers of a pipeline that ended in `WAIT`; an error if too few replicas confirmed.
pub(super) fn confirmed(mut values: Vec<Value>, open: &OpenConnection, wait: Wait) -> Result<Vec<Value>, StoreError> {
    match values.pop() {
        Some(Value::Int(replicas)) if replicas >= i64::from(wait.replicas) => Ok(values),
        Some(Value::ServerError(error)) => Err(explain(&RedisError::from(error), open.limit)),
        _ => Err(StoreError::Unconfirmed(wait.limit.as_millis())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clocks, ServerClock};

    #[test]
    fn bounds_of_the_clock_are_arguments_of_scripts_alone() {
        let bounds = ServerClock::new(Clocks::new().into()).bounds_sent();
        for route in [Route::Row(0), Route::Packed] {
            let script = Lua::timed("return 1", route);
            let calls = [RoutedCommand::new("DEL", "a"), RoutedCommand::of(&script, &["a"])];
            let args_added = calls.map(|mut call| {
                let before = call.command.args_iter().len();
                call.add_bounds(bounds, route);
                call.command.args_iter().len() - before
            });
            assert_eq!(args_added, [0, if route == Route::Packed { 1 } else { 3 }], "{route:?}");
        }
    }
}
