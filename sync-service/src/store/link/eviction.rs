//! Warning about Redis's eviction policy.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::store::StoreError;
use crate::store::trouble::explain;

/// Logs a warning if Redis may evict Weir's keys. Returns true if it answered at all, even with a missing
/// right.
pub(super) async fn look(connection: &MultiplexedConnection, limit: Duration) -> bool {
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
    let value =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let is_bounded = value("maxmemory").is_some_and(|bytes| bytes != "0");
    value("maxmemory_policy").filter(|policy| is_bounded && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_counts_where_memory_is_bounded() {
        let info = |bytes: &str, policy: &str| {
            format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_human:1G\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(dropping(&info("1000", "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(dropping(&info("1000", "volatile-ttl")), Some("volatile-ttl"));
        assert_eq!(dropping(&info("0", "allkeys-lru")), None, "there is no end to it");
        assert_eq!(dropping(&info("1000", "noeviction")), None);
        assert_eq!(dropping("# Memory\r\nused_memory:1\r\n"), None, "a Redis that does not say");
    }
}
