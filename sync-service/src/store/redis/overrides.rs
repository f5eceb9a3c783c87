//! Overrides in Redis: one hash beside the rule sets, changed by one script.

use std::sync::Arc;

use super::exchange::RoutedCommand;
use super::rules::RULES;
use super::script::{Lua, with_maxima};
use super::servers::Servers;
use crate::store::StoreError;
use crate::store::keys::RedisKeys;
use crate::store::overrides::{
    Current, OVERRIDES_MAX, OverrideChange, OverrideResult, StoredOverride, StoredOverrides, Until,
};

/// Names of the rule sets and the overrides, in one cluster slot.
fn names(keys: &RedisKeys) -> [String; 2] {
    [keys.one(RULES), keys.beside(RULES, "overrides")]
}

/// Answer of the script.
type Row = (u64, u64, u64, u64, u64, Vec<(String, String)>);

/// The script, preceded by its limit.
pub(super) fn script() -> String {
    with_maxima(&[("OVERRIDES_MAX", OVERRIDES_MAX as u64)], include_str!("../overrides.lua"))
}

/// Reads version and numbers at one moment.
pub(super) async fn current(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
) -> Result<Current, StoreError> {
    let rules = keys.one(RULES);
    let mut call = RoutedCommand::new("HMGET", &rules);
    call.arg(&rules).arg("current").arg("overrides").arg("canary");
    let (version, overrides, canary): (Option<u64>, Option<u64>, Option<u64>) =
        servers.send_one(call, script).await?;
    Ok(Current { version, overrides: overrides.unwrap_or_default(), canary: canary.unwrap_or_default() })
}

pub(super) async fn change(
    servers: &Servers,
    script: &Arc<Lua>,
    keys: &RedisKeys,
    change: Option<&OverrideChange<'_>>,
) -> Result<StoredOverrides, StoreError> {
    let mut call = RoutedCommand::of(script, &names(keys));
    match change {
        None => drop(call.arg("").arg("").arg("").arg("").arg("")),
        Some(OverrideChange::Drop(name)) => drop(call.arg("drop").arg(*name).arg("").arg("").arg("")),
        Some(OverrideChange::Put { name, text, until }) => {
            call.arg("put").arg(*name).arg(*text);
            match until {
                Until::In(for_ms) => call.arg(*for_ms).arg(""),
                Until::At(until_ms) => call.arg("").arg(*until_ms),
            };
        }
    }
    let (version, overrides, canary, now_ms, outcome, rows): Row = servers.send_one(call, script).await?;
    let outcome = match outcome {
        0 => OverrideResult::Done,
        1 => OverrideResult::Full,
        2 => OverrideResult::Missing,
        _ => return Err(StoreError::Invalid("another outcome of a change of overrides")),
    };
    // Overrides that cannot be parsed are from another program.
    let mut kept: Vec<StoredOverride> =
        rows.into_iter().filter_map(|(name, value)| kept(name, &value)).collect();
    kept.sort_by_key(|order| order.id);
    let current = Current { version: Some(version).filter(|version| *version > 0), overrides, canary };
    Ok(StoredOverrides { current, now_ms, outcome, kept })
}

fn kept(name: String, value: &str) -> Option<StoredOverride> {
    let mut words = value.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let (id, at_ms, until_ms) = (number()?, number()?, number()?);
    Some(StoredOverride { name, id, at_ms, until_ms, text: words.next()?.to_owned() })
}
