//! Probe of a server: a script that calls the commands of all others.

use std::time::Duration;

use redis::{ErrorKind, Pipeline, RedisError, Script, ServerErrorKind};

use super::place::LinkTarget;
use crate::store::StoreError;
use crate::store::keys::RedisKeys;
use crate::store::trouble::explain;

/// Commands of a probe. They call the commands of all scripts, which detects a replica, a full or loading Redis
/// and a user with too few rights.
pub(super) fn probe(place: &LinkTarget, keys: &RedisKeys) -> Pipeline {
    let (text, keys) = (include_str!("../probe.lua"), names(place, keys));
    let mut pipeline = Pipeline::new();
    pipeline.cmd("SCRIPT").arg("LOAD").arg(text).ignore();
    pipeline.cmd("EVALSHA").arg(Script::new(text).get_hash()).arg(keys.len()).arg(&keys).ignore();
    pipeline
}

/// Keys that a probe writes; they expire. A node of a cluster refuses the keys for a single server.
fn names(place: &LinkTarget, keys: &RedisKeys) -> [String; 2] {
    match place {
        LinkTarget::Only(_) => ["probe", "{probe}:set"].map(|name| keys.one(name)),
        LinkTarget::Node(_, _, tag) => {
            let tag = tag.get();
            ["", ":set"].map(|end| keys.one(&format!("{{{tag}}}{end}")))
        }
    }
}

/// Converts an error of a probe. A slot that has just moved to another node is no failure of this one.
pub(super) fn judge(place: &LinkTarget, error: &RedisError, limit: Duration) -> Result<(), StoreError> {
    let has_moved = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain)
    );
    if has_moved && matches!(place, LinkTarget::Node(..)) { Ok(()) } else { Err(explain(error, limit)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::store::redis::Scripts;

    /// The commands that a script calls.
    fn called(script: &str) -> BTreeSet<&str> {
        let calls = script.split("call('").skip(1).chain(script.split("call, '").skip(1));
        calls.filter_map(|rest| rest.split('\'').next()).collect()
    }

    #[test]
    fn the_probe_calls_what_the_scripts_call() {
        let scripts = Scripts::new().texts();
        let needed: BTreeSet<_> = scripts.iter().flat_map(|script| called(script)).collect();
        assert!(needed.len() > 15, "{needed:?}");
        let probe = include_str!("../probe.lua");
        let tried: BTreeSet<_> =
            probe.split("try('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
        assert_eq!(tried, needed);
    }
}
