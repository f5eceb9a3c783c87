//! One server: the connection that its calls share, and that of the draws that wait for a replica.

use std::sync::Arc;

use redis::{RedisError, Value};
use tokio::time::{Instant, timeout};

use super::confirmer::Confirmer;
use super::exchange::{Call, exchange};
use super::script::Lua;
use crate::store::link::{Link, Open};
use crate::store::trouble::explain;
use crate::store::{Master, StoreError};

/// A server, or those that take over from each other under one name.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) link: Arc<Link>,
    /// Without this no replica is waited for.
    pub(super) confirmer: Option<Confirmer>,
}

/// How calls are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// When all trips of the calls are to be over: until then a link that is being opened is waited for. Without this, the
    /// link's own limit is all there is, and the link has to be open.
    pub(super) until: Option<Instant>,
    /// Answers count only once a replica has what the calls did, where the store is to wait for that.
    pub(super) is_confirmed: bool,
}

impl Server {
    /// What each of `calls` of `script` gave, which may be an error, and over which connection. Fails if there is none, or
    /// no answer in time.
    pub(super) async fn send(
        &self,
        calls: Vec<Call>,
        script: &Lua,
        manner: Manner,
    ) -> Result<(Open, Vec<Value>), StoreError> {
        let open = match manner.until {
            Some(until) => self.link.opened(until).await?,
            None => self.link.connection()?,
        };
        let confirmer = self.confirmer.as_ref().filter(|_| manner.is_confirmed);
        let longest = open.limit + confirmer.map(Confirmer::patience).unwrap_or_default();
        let left = manner.until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
        let limit = left.min(longest);
        let asking = async {
            match confirmer {
                Some(confirmer) => confirmer.send(calls).await,
                None => exchange(&self.link, &open, calls, script, None).await,
            }
        };
        // One limit for all tries: a report waits no longer because a server was restarted.
        let answer = timeout(limit, asking).await;
        match answer.unwrap_or(Err(StoreError::Slow(longest.as_millis()))) {
            Ok(values) => Ok((open, values)),
            Err(reason) => {
                // A server that was given little of its time may be in time.
                let is_its_own = !matches!(reason, StoreError::Slow(_)) || limit >= longest / 2;
                // The connection that waits is the confirmer's to mend; others' calls go on.
                if is_its_own && confirmer.is_none() {
                    self.link.failed(&open, reason.clone());
                }
                Err(reason)
            }
        }
    }

    /// What was answered over `open`; the link hears of a refusal.
    pub(super) fn given(&self, value: Value, open: &Open) -> Result<Value, StoreError> {
        let Value::ServerError(error) = value else { return Ok(value) };
        let reason = explain(&RedisError::from(error), open.limit);
        self.link.failed(open, reason.clone());
        Err(reason)
    }

    /// Whether a replica confirms what is drawn here; `None` if it is not asked to, or the server itself is out of reach.
    pub(super) fn master(&self) -> Option<Master> {
        let confirmer = self.confirmer.as_ref().filter(|_| !self.link.is_down())?;
        Some(confirmer.master())
    }
}
