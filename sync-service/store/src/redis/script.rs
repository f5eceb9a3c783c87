//! Lua scripts in Redis.

use std::sync::Arc;

use redis::{Cmd, Script};

use super::{acquire, charge, consume, rules, shared};
use crate::clock::Route;

/// A script with its hash.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    script: Script,
    text: String,
    /// Encoding of the clock's bounds and time, if the script uses the server's clock.
    way: Option<Route>,
    /// True if its effects count only once a replica has them, in a store that waits for replicas.
    pub(super) is_confirmed: bool,
}

impl Lua {
    pub(super) fn new(text: &str) -> Self {
        Self { script: Script::new(text), text: text.into(), way: None, is_confirmed: false }
    }

    /// Creates a script that uses the server's clock.
    pub(super) fn timed(text: &str, way: Route) -> Self {
        Self { way: Some(way), ..Self::new(text) }
    }

    pub(super) fn way(&self) -> Option<Route> {
        self.way
    }

    pub(super) fn get_hash(&self) -> &str {
        self.script.get_hash()
    }

    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

#[derive(Debug)]
pub(crate) struct Scripts {
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
    pub(crate) fn new() -> Self {
        let untimed = |text: String| Arc::new(Lua::new(&text));
        let acquire = Lua { is_confirmed: true, ..Lua::timed(&acquire::script(), Route::Row(4)) };
        Self {
            charge: Arc::new(Lua::timed(&charge::script(), Route::Packed)),
            acquire: Arc::new(acquire),
            take: Arc::new(Lua::timed(&consume::script(), Route::Row(0))),
            seen: untimed(shared::seen_script()),
            hot: untimed(shared::hot_script()),
            bans: untimed(shared::ban_script()),
            rules: untimed(rules::rules_script()),
            overrides: untimed(rules::overrides_script()),
            top_keys: untimed(shared::top_keys_script()),
        }
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let Self { charge, acquire, take, seen, hot, bans, rules, overrides, top_keys } = self;
        let all = [charge, acquire, take, seen, hot, bans, rules, overrides, top_keys];
        all.map(|script| script.text.clone()).into()
    }
}

/// A script's text, preceded by these limits as constants and by what all scripts share.
pub(super) fn script(maxima: &[(&str, u64)], text: &str) -> String {
    with_maxima(maxima, &format!("{}{text}", include_str!("../common.lua")))
}

/// A script's text, preceded by these limits as constants.
pub(super) fn with_maxima(maxima: &[(&str, u64)], text: &str) -> String {
    let lines = maxima.iter().map(|(name, value)| format!("local {name} = {value}\n"));
    lines.chain([text.to_owned()]).collect()
}
