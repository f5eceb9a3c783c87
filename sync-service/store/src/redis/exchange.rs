//! Exchanges over one connection: calls of a script, each with its own answer; and the grouping of requests into them.

use std::iter;
use std::mem;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, ToRedisArgs, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::Wait;
use super::script::Lua;
use crate::StoreError;
use crate::clock::{Route, SentBounds, late_us};
use crate::link::{Link, OpenConnection};
use crate::trouble::explain;

/// Maximum number of times that a call is sent: a server may have lost the script, and refuse the call as late.
const TRIES: usize = 3;

/// A command, and the key that selects the server of a cluster.
#[derive(Clone, Debug)]
pub(super) struct RoutedCommand {
    pub(super) key: String,
    command: Cmd,
    /// For a script's call: end of the last argument, after the bounds of the server's clock, if the script takes
    /// those. `None` for a plain command, which takes no bounds.
    pub(super) tail: Option<Vec<u8>>,
    /// True if the key is being moved to the called server; the call is then preceded by `ASKING`.
    pub(super) is_asking: bool,
}

impl RoutedCommand {
    pub(super) fn new(name: &str, key: &str) -> Self {
        Self { key: key.to_owned(), command: redis::cmd(name), tail: None, is_asking: false }
    }

    /// Creates a call of a script on `keys`, which are all in one slot.
    pub(super) fn of<K: AsRef<str> + ToRedisArgs>(script: &Lua, keys: &[K]) -> Self {
        let key = keys.first().map(AsRef::as_ref).unwrap_or_default();
        let mut call = Self { tail: Some(Vec::new()), ..Self::new("EVALSHA", key) };
        call.arg(script.script.get_hash()).arg(keys.len()).arg(keys);
        call
    }

    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// The command, with the bounds of the server's clock if it is a script's call.
    fn bounded(&self, bounds: Option<(SentBounds, Route)>) -> Cmd {
        let mut command = self.command.clone();
        if let (Some((bounds, route)), Some(tail)) = (bounds, &self.tail) {
            bounds.add_to(&mut command, route, tail);
        }
        command
    }
}

/// Sends calls of `script`, and plain commands, over a connection of `link`; returns an answer for each, which may be
/// an error. With `wait`, answers count only once replicas have the calls' effects.
///
/// Calls that fail because the script is not loaded are sent again after loading it, which is harmless. So are calls
/// that were refused as late, as the server's clock is known by then.
pub(super) async fn exchange(
    link: &Link,
    open: &OpenConnection,
    calls: &[RoutedCommand],
    script: &Lua,
    wait: Option<Wait>,
) -> Result<Vec<Value>, StoreError> {
    let mut values = vec![Value::Nil; calls.len()];
    let (mut due, mut is_lost): (Vec<usize>, bool) = ((0..calls.len()).collect(), false);
    for _ in 0..TRIES {
        let bounds = script.route.map(|route| (link.clock.bounds_sent(), route));
        let mut pipeline = Pipeline::with_capacity(due.len());
        if is_lost {
            pipeline.load_script(&script.script).ignore();
        }
        for call in due.iter().filter_map(|at| calls.get(*at)) {
            if call.is_asking {
                pipeline.cmd("ASKING").ignore();
            }
            pipeline.add_command(call.bounded(bounds));
        }
        pipeline.ignore_errors();
        let answers = query(&mut pipeline, open, wait).await?;
        if let Some((bounds, route)) = bounds {
            link.clock.observe(bounds, &answers, route);
        }
        let mut again = Vec::new();
        for (at, answer) in due.into_iter().zip(answers) {
            let is_without_script = error_kind(&answer) == Some(ErrorKind::Server(ServerErrorKind::NoScript));
            is_lost |= is_without_script;
            if is_without_script || late_us(&answer).is_some() {
                again.push(at);
            }
            if let Some(place) = values.get_mut(at) {
                *place = answer;
            }
        }
        due = again;
        if due.is_empty() {
            break;
        }
    }
    Ok(values)
}

pub(super) fn error_kind(value: &Value) -> Option<ErrorKind> {
    match value {
        Value::ServerError(error) => Some(RedisError::from(error.clone()).kind()),
        _ => None,
    }
}

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

const ASKED_MAX: usize = 4_096;
const TRIPS_MAX: usize = 64;
/// Maximum time for which requests wait for the end of the current exchange, so that they are sent together.
const NEAR: Duration = Duration::from_millis(5);

/// A request, and the channel for its answer.
#[derive(Debug)]
pub(super) struct Asked<Q, A> {
    pub(super) question: Q,
    pub(super) answer: oneshot::Sender<A>,
}

/// Sends requests in exchanges. Requests that arrive during an exchange are sent with the next one, or beside
/// it if it takes long. The background task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Trips<Q, A> {
    asked: mpsc::Sender<Asked<Q, A>>,
    _task: JoinSet<()>,
}

impl<Q: Send + 'static, A: Send + 'static> Trips<Q, A> {
    /// Creates the sender; `go` makes an exchange. Requests whose answer is awaited no more are not sent.
    pub(super) fn new<G, F>(go: G) -> Self
    where
        G: Fn(Vec<Asked<Q, A>>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (asked, asking) = mpsc::channel(ASKED_MAX);
        Self { asked, _task: JoinSet::from_iter([run(asking, go)]) }
    }

    pub(super) async fn ask(&self, question: Q) -> oneshot::Receiver<A> {
        let (answer, answered) = oneshot::channel();
        // The receiver lives as long as this sender.
        let _ = self.asked.send(Asked { question, answer }).await;
        answered
    }
}

async fn run<Q, A, G, F>(mut asking: mpsc::Receiver<Asked<Q, A>>, go: G)
where
    G: Fn(Vec<Asked<Q, A>>) -> F,
    F: Future<Output = ()>,
{
    let mut trips = FuturesUnordered::new();
    let mut asked = Vec::new();
    loop {
        tokio::select! {
            count = asking.recv_many(&mut asked, ASKED_MAX), if trips.len() < TRIPS_MAX => if count == 0 { return },
            Some(()) = trips.next() => continue,
        }
        // Tasks woken together with this one may be about to send as well.
        yield_now().await;
        let room = ASKED_MAX.saturating_sub(asked.len());
        asked.extend(iter::from_fn(|| asking.try_recv().ok()).take(room));
        asked.retain(|asked| !asked.answer.is_closed());
        // A call without requests would be refused, and the link would report a failure.
        if !asked.is_empty() {
            trips.push(go(mem::take(&mut asked)));
            let _ = timeout(NEAR, trips.next()).await;
        }
    }
}
