//! Lua scripts in Redis.

use redis::{Cmd, Script};

use crate::store::clock::Route;

/// A script with its hash.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    script: Script,
    text: String,
    /// Encoding of the clock's bounds and time, if the script uses the server's clock.
    way: Option<Route>,
}

impl Lua {
    pub(super) fn new(text: &str) -> Self {
        Self { script: Script::new(text), text: text.into(), way: None }
    }

    /// Creates a script that uses the server's clock.
    pub(super) fn timed(text: &str, way: Route) -> Self {
        Self { way: Some(way), ..Self::new(text) }
    }

    pub(super) fn way(&self) -> Option<Route> {
        self.way
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Name of the script for `EVALSHA`.
    pub(super) fn get_hash(&self) -> &str {
        self.script.get_hash()
    }

    /// Command that loads it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
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
