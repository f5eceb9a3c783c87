//! The server that a link leads to, and the probes that show if it can be used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, Script, ServerErrorKind};
use tokio::time::timeout;

use crate::StoreError;
use crate::address::Node;
use crate::dial::{Dialer, FoundServer};
use crate::keys::RedisKeys;
use crate::trouble::explain;

/// Target of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkTarget {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) keys: RedisKeys,
    /// The node of a cluster, and the hash tag of a slot that it serves; none for the only server of a store.
    pub(crate) node: Option<(Node, String)>,
}

impl LinkTarget {
    /// Returns a client of the server, found within `limit`.
    pub(super) async fn find(&self, limit: Duration) -> Result<FoundServer, StoreError> {
        let Some((node, _)) = &self.node else { return self.dialer.find(limit).await };
        Ok(FoundServer { client: self.dialer.client_of(node).await?, server: node.to_string(), named: None })
    }

    /// True if it may lead to another server each time.
    pub(super) fn is_asking(&self) -> bool {
        self.dialer.address.has_sentinels()
    }

    /// Commands of a probe; their answers are not needed. They call the commands of all scripts, which detects a
    /// replica, a full or loading Redis and a user with too few rights.
    pub(crate) fn probe(&self) -> Pipeline {
        // They expire. A node of a cluster refuses the keys for a single server.
        let keys = match &self.node {
            None => ["probe", "{probe}:set"].map(|name| self.keys.one(name)),
            Some((_, tag)) => ["", ":set"].map(|end| self.keys.one(&format!("{{{tag}}}{end}"))),
        };
        let script = Script::new(include_str!("../probe.lua"));
        let mut pipeline = Pipeline::new();
        pipeline.load_script(&script).ignore();
        pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(keys.len()).arg(&keys).ignore();
        pipeline
    }

    /// Converts an error of a probe. A slot that has just moved to another node is no failure of this one.
    pub(crate) fn check_error(&self, error: &RedisError, limit: Duration) -> Result<(), StoreError> {
        let has_moved = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain)
        );
        if has_moved && self.node.is_some() { Ok(()) } else { Err(explain(error, limit)) }
    }
}

impl fmt::Display for LinkTarget {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            None => self.dialer.address.fmt(f),
            Some((node, _)) => node.fmt(f),
        }
    }
}

/// Logs a warning if Redis may evict Weir's keys. Returns true if it answered at all, even with a missing right.
pub(super) async fn warn_of_eviction(connection: &MultiplexedConnection, limit: Duration) -> bool {
    let mut connection = connection.clone();
    let mut command = redis::cmd("INFO");
    let answer = match timeout(limit, command.arg("memory").query_async::<String>(&mut connection)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return matches!(explain(&error, limit), StoreError::Refused(_)),
        Err(_) => return false,
    };
    if let Some(policy) = dropping(&answer) {
        let what = if policy.starts_with("allkeys") { "the rule set and budgets" } else { "budgets" };
        tracing::warn!(
            policy,
            "when its memory is full, the store may drop {what}: a dropped budget forgives its debt. Set \
             maxmemory-policy to noeviction, and give it memory enough"
        );
    }
    true
}

/// The eviction policy, if it can evict keys; else none.
fn dropping(info: &str) -> Option<&str> {
    let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let is_bounded = value("maxmemory").is_some_and(|bytes| bytes != "0");
    value("maxmemory_policy").filter(|policy| is_bounded && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::dropping;
    use crate::redis::texts;

    /// The commands that a script calls.
    fn called(script: &str) -> BTreeSet<&str> {
        let calls = script.split("call('").skip(1).chain(script.split("call, '").skip(1));
        calls.filter_map(|rest| rest.split('\'').next()).collect()
    }

    #[test]
    fn the_probe_calls_what_the_scripts_call() {
        let scripts = texts();
        let needed: BTreeSet<_> = scripts.iter().flat_map(|script| called(script)).collect();
        assert!(needed.len() > 15, "{needed:?}");
        let probe = include_str!("../probe.lua");
        let tried: BTreeSet<_> = probe.split("try('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
        assert_eq!(tried, needed);
    }

    #[test]
    fn a_policy_counts_where_memory_is_bounded() {
        let info = |bytes: &str, policy: &str| {
            format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_human:1G\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(dropping(&info("1000", "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(dropping(&info("1000", "volatile-ttl")), Some("volatile-ttl"));
        assert_eq!(dropping(&info("0", "allkeys-lru")), None, "there is no end to it");
        assert_eq!(dropping(&info("1000", "noeviction")), None);
        assert_eq!(dropping("# Memory\r\nused_memory:1\r\n"), None, "no policy in the answer");
    }
}
