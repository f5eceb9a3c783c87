//! Lua scripts, each preceded by limits of other modules as constants.

use std::sync::Arc;

use redis::Script;
use weir_budget::ban::{BANS_KEPT_MAX, FORGOTTEN};
use weir_budget::budget::{
    CHARGE_TOKENS_MAX, COUNT_MAX, DEFICIT_NS_MAX, FORGOTTEN_US_MAX, GRACE_US, KEPT_US_MAX, LENIENCE_US,
    REPLICA_IDLE_US, REPLICAS_MAX, SOURCES_KEPT, SOURCES_MAX, STEP_KEPT_US,
};
use weir_budget::escrow::{DRIFT_PART, ENDED_KEPT_US, HOLDERS_MAX, LEASE_US_MIN, STEP_US};
use weir_budget::hot::{HOT_MAX, LISTED_MS, RANK_MAX};
use weir_budget::records::{
    AGAIN_MIN, DELAY_US_MAX, FAN_OUT_DEBT_US_MAX, FAN_OUT_KEPT_US, FAN_OUT_MAX, FAN_OUT_MOMENT_US, PACE_US,
    UNUSED_KEPT_US, UNUSED_SPANS_MAX,
};
use weir_protocol::messages::BAN_MS_MAX;
use weir_protocol::quota::TOKENS_MAX;

use crate::clock::Route;
use crate::rules::{OVERRIDES_MAX, VERSIONS_KEPT};
use crate::{TOP_KEYS_MS, TOP_KEYS_REPLICAS_MAX};

/// Interval at which a whole list is read, in milliseconds.
pub(super) const WHOLE_MS: u64 = 10_000;
/// Time for which a change of a list is kept, in milliseconds: longer than any read goes back.
const CHANGES_KEPT_MS: u64 = 2 * WHOLE_MS;
/// Length of a budget's head in bytes (see `charge.lua`).
const HEAD_BYTES: u64 = 109;
/// Maximum time by which Redis keeps a budget shorter than asked, in microseconds, so that few charges set its expiry.
const KEPT_SLACK_US: u64 = 10_000_000;
// The time for which a budget is kept beyond its debt is several times that.
const _: () = assert!(KEPT_SLACK_US * 5 < GRACE_US);
/// Extra time for which a strict budget is kept, as a multiple of its deficit; at most [`STEP_KEPT_US`].
const STEP_KEPT_TIMES: u64 = 3;

#[derive(Clone, Debug)]
pub(super) struct Lua {
    pub(super) script: Script,
    /// Encoding of the clock's bounds and time, if the script uses the server's clock.
    pub(super) route: Option<Route>,
    /// True if its effects count only once a replica has them, in a store that waits for replicas.
    pub(super) is_confirmed: bool,
}

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) all: Arc<[Script]>,
    pub(super) charge: Arc<Lua>,
    pub(super) acquire: Arc<Lua>,
    pub(super) take: Arc<Lua>,
    pub(super) seen: Arc<Lua>,
    pub(super) hot: Arc<Lua>,
    pub(super) bans: Arc<Lua>,
    pub(super) rules: Arc<Lua>,
    pub(super) overrides: Arc<Lua>,
    pub(super) top_keys: Arc<Lua>,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let all = texts().map(|text| Script::new(&text));
        let [charge, acquire, take, seen, hot, bans, rules, overrides, top_keys] =
            all.clone().map(|script| Lua { script, route: None, is_confirmed: false });
        Self {
            all: Arc::new(all),
            charge: Arc::new(Lua { route: Some(Route::Packed), ..charge }),
            acquire: Arc::new(Lua { route: Some(Route::Row(4)), is_confirmed: true, ..acquire }),
            take: Arc::new(Lua { route: Some(Route::Row(0)), ..take }),
            seen: seen.into(),
            hot: hot.into(),
            bans: bans.into(),
            rules: rules.into(),
            overrides: overrides.into(),
            top_keys: top_keys.into(),
        }
    }
}

pub(crate) fn texts() -> [String; 9] {
    let common = |limits: &[(&str, u64)], text| with_limits(limits, &[include_str!("../common.lua"), text].concat());
    let take = [
        ("COUNT_MAX", COUNT_MAX),
        ("DEFICIT_US_MAX", DEFICIT_NS_MAX / 1_000),
        ("ENDED_KEPT_US", ENDED_KEPT_US),
        ("STEP_KEPT_US", STEP_KEPT_US),
        ("STEP_KEPT_TIMES", STEP_KEPT_TIMES),
    ];
    let hot = [
        ("HOT_MAX", HOT_MAX as u64),
        ("LISTED_MS", LISTED_MS),
        ("RANK_MAX", RANK_MAX.into()),
        ("CHANGES_KEPT_MS", CHANGES_KEPT_MS),
    ];
    let bans = [("BANS_KEPT_MAX", BANS_KEPT_MAX as u64), ("BAN_US_MAX", u64::from(BAN_MS_MAX) * 1_000)];
    let bans = common(&bans, include_str!("../bans.lua"));
    let top_keys = [("KEPT_MS", TOP_KEYS_MS), ("REPLICAS_MAX", TOP_KEYS_REPLICAS_MAX as u64)];
    [
        charge_script(),
        acquire_script(),
        with_limits(&take, include_str!("../consume.lua")),
        common(&[], include_str!("../seen.lua")),
        common(&hot, include_str!("../hot.lua")),
        format!("local FORGOTTEN = '{FORGOTTEN}'\n{bans}"),
        common(&[("VERSIONS_KEPT", VERSIONS_KEPT as u64)], include_str!("../rules.lua")),
        common(&[("OVERRIDES_MAX", OVERRIDES_MAX as u64)], include_str!("../overrides.lua")),
        common(&top_keys, include_str!("../top_keys.lua")),
    ]
}

pub fn charge_script() -> String {
    const { assert!(COUNT_MAX < 1 << 53, "Lua has doubles only") };
    let limits = [
        ("HEAD_BYTES", HEAD_BYTES),
        ("CHARGE_TOKENS_MAX", CHARGE_TOKENS_MAX),
        ("DEFICIT_US_MAX", DEFICIT_NS_MAX / 1_000),
        ("SOURCES_MAX", SOURCES_MAX as u64),
        ("SOURCES_KEPT", SOURCES_KEPT as u64),
        ("REPLICAS_MAX", REPLICAS_MAX as u64),
        ("REPLICA_IDLE_US", REPLICA_IDLE_US),
        ("GRACE_US", GRACE_US),
        ("KEPT_US_MAX", KEPT_US_MAX),
        ("KEPT_SLACK_US", KEPT_SLACK_US),
        ("STEP_KEPT_US", STEP_KEPT_US),
        ("UNUSED_KEPT_US", UNUSED_KEPT_US),
        ("UNUSED_SPANS_MAX", UNUSED_SPANS_MAX as u64),
        ("DELAY_US_MAX", DELAY_US_MAX),
        ("FORGOTTEN_US_MAX", FORGOTTEN_US_MAX),
        ("LENIENCE_US", LENIENCE_US),
        ("PACE_US", PACE_US),
        ("FAN_OUT_KEPT_US", FAN_OUT_KEPT_US),
        ("AGAIN_MIN", AGAIN_MIN.into()),
        ("FAN_OUT_MAX", FAN_OUT_MAX.into()),
        ("FAN_OUT_MOMENT_US", FAN_OUT_MOMENT_US),
        ("FAN_OUT_DEBT_US_MAX", FAN_OUT_DEBT_US_MAX),
    ];
    with_limits(&limits, include_str!("../charge.lua"))
}

pub fn acquire_script() -> String {
    let limits = [
        ("COUNT_MAX", COUNT_MAX),
        ("DEFICIT_US_MAX", DEFICIT_NS_MAX / 1_000),
        ("HOLDERS_MAX", HOLDERS_MAX as u64),
        ("ENDED_KEPT_US", ENDED_KEPT_US),
        ("STEP_US", STEP_US),
        ("TOKENS_MAX", TOKENS_MAX.into()),
        ("DRIFT_PART", DRIFT_PART),
        ("LEASE_US_MIN", LEASE_US_MIN),
        ("STEP_KEPT_US", STEP_KEPT_US),
        ("STEP_KEPT_TIMES", STEP_KEPT_TIMES),
    ];
    with_limits(&limits, include_str!("../acquire.lua"))
}

fn with_limits(limits: &[(&str, u64)], text: &str) -> String {
    let lines = limits.iter().map(|(name, value)| format!("local {name} = {value}\n"));
    lines.chain([text.to_owned()]).collect()
}
