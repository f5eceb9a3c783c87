//! Calls to the masters of a cluster.
//!
//! Calls to one master go in one pipeline, and to all masters concurrently. A master that is out of reach fails its own
//! calls, at once while its link is down. A call whose key has moved is sent to the new node.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::exchange::{RoutedCommand, error_kind};
use super::nodes::Nodes;
use super::script::Lua;
use super::server::{Reach, Server};
use crate::StoreError;
use crate::address::Node;
use crate::link::OpenConnection;

/// Number of times that a call is sent again if a server could not take it.
const RETRIES: usize = 2;
/// Range of the pause before each retry, in milliseconds.
const PAUSE_MS: Range<u32> = 20..100;

/// Masters of a cluster. The background task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Arc<Nodes>,
    _task: JoinSet<()>,
}

struct Waiting {
    at: usize,
    call: RoutedCommand,
    /// Node to send it to, if that differs from the node of its slot.
    redirected: Option<Node>,
}

/// Result of a call: a value and its origin, or the reason why there is none.
type Came = Result<(Value, Arc<Way>), StoreError>;

struct Way {
    server: Arc<Server>,
    open: OpenConnection,
}

impl Cluster {
    pub(super) fn new(reach: Reach) -> Self {
        let nodes = Arc::new(Nodes::new(reach));
        Self { _task: JoinSet::from_iter([Arc::clone(&nodes).follow()]), nodes }
    }

    pub(super) async fn send(&self, calls: Vec<RoutedCommand>, script: &Arc<Lua>) -> Vec<Result<Value, StoreError>> {
        let mut answers: Vec<Result<Value, StoreError>> = Vec::new();
        answers.resize_with(calls.len(), || Err(StoreError::Invalid("no answer")));
        let calls = calls.into_iter().enumerate();
        let mut waiting: Vec<_> = calls.map(|(at, call)| Waiting { at, call, redirected: None }).collect();
        let until = Instant::now() + self.nodes.limit(script.is_confirmed);
        for retry in 0..=RETRIES {
            let came = self.send_once(waiting, script, until).await;
            let is_last = retry == RETRIES || Instant::now() + Duration::from_millis(PAUSE_MS.end.into()) >= until;
            let mut is_pause_due = false;
            waiting = Vec::new();
            for (mut sent, came) in came {
                let next = came.as_ref().map_or(Next::Take, |(value, _)| next(value));
                if matches!(next, Next::Take) || is_last {
                    if let Some(place) = answers.get_mut(sent.at) {
                        *place = outcome(came);
                    }
                    continue;
                }
                (sent.redirected, sent.call.is_asking) = match next {
                    Next::Go(node, is_asking) => (Some(node), is_asking),
                    Next::Take | Next::Pause => (None, false),
                };
                is_pause_due |= sent.redirected.is_none();
                waiting.push(sent);
            }
            if waiting.is_empty() {
                break;
            }
            self.nodes.look_soon();
            if is_pause_due {
                sleep(pause()).await;
            }
        }
        answers
    }

    async fn send_once(&self, waiting: Vec<Waiting>, script: &Arc<Lua>, until: Instant) -> Vec<(Waiting, Came)> {
        let mut groups: HashMap<Node, Vec<Waiting>> = HashMap::new();
        let mut came = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            let node = match &waiting.redirected {
                Some(node) => Ok(node.clone()),
                None => self.nodes.master_of(&waiting.call.key),
            };
            match node {
                Ok(node) => groups.entry(node).or_default().push(waiting),
                Err(reason) => came.push((waiting, Err(reason))),
            }
        }
        let mut trips = JoinSet::new();
        for (node, group) in groups {
            let (nodes, script) = (Arc::clone(&self.nodes), Arc::clone(script));
            trips.spawn(async move {
                let server = nodes.server_at(&node);
                let calls = group.iter().map(|waiting| waiting.call.clone()).collect();
                let came: Vec<Came> = match server.send(calls, &script, Some(until)).await {
                    Ok((open, values)) => {
                        let way = Arc::new(Way { server, open });
                        values.into_iter().map(|value| Ok((value, Arc::clone(&way)))).collect()
                    }
                    Err(reason) => {
                        nodes.look_soon();
                        group.iter().map(|_| Err(reason.clone())).collect()
                    }
                };
                group.into_iter().zip(came).collect::<Vec<_>>()
            });
        }
        while let Some(trip) = trips.join_next().await {
            // The task cannot panic, and is never aborted.
            came.extend(trip.unwrap_or_default());
        }
        came
    }
}

enum Next {
    Take,
    /// Send it to this node, which has the key or, if true, is receiving it.
    Go(Node, bool),
    /// A fail-over is under way: send it again a little later, to the slot's node at that time.
    Pause,
}

fn next(answer: &Value) -> Next {
    use ServerErrorKind as Kind;
    let Some(ErrorKind::Server(kind)) = error_kind(answer) else { return Next::Take };
    let node = match answer {
        Value::ServerError(error) => {
            let error = RedisError::from(error.clone());
            error.redirect_node().and_then(|(node, _)| Node::read(node))
        }
        _ => None,
    };
    match (kind, node) {
        (Kind::Moved, Some(node)) => Next::Go(node, false),
        (Kind::Ask, Some(node)) => Next::Go(node, true),
        (
            Kind::Moved
            | Kind::Ask
            | Kind::TryAgain
            | Kind::ClusterDown
            | Kind::MasterDown
            | Kind::ReadOnly
            | Kind::BusyLoading,
            _,
        ) => Next::Pause,
        _ => Next::Take,
    }
}

fn outcome(came: Came) -> Result<Value, StoreError> {
    use ServerErrorKind as Kind;
    let (value, way) = came?;
    if let Some(ErrorKind::Server(Kind::Moved | Kind::Ask | Kind::TryAgain)) = error_kind(&value) {
        // No node is at fault.
        let reason = "its cluster is moving this key from node to node, and none of those that were asked has it";
        return Err(StoreError::Refused(reason.into()));
    }
    way.server.given(value, &way.open)
}

fn pause() -> Duration {
    // Pauses vary, so that calls that failed together do not return together.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let more_ms = now.subsec_micros() % (PAUSE_MS.end - PAUSE_MS.start);
    Duration::from_millis((PAUSE_MS.start + more_ms).into())
}
