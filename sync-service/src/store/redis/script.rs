//! The scripts that Redis runs.

use redis::{Cmd, Script};

/// A script, and what Redis knows it by.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    script: Script,
    text: String,
    is_timed: bool,
}

impl Lua {
    pub(super) fn new(text: &str) -> Self {
        Self { script: Script::new(text), text: text.into(), is_timed: false }
    }

    /// One whose last arguments are what is known of the server's clock, and that answers what it shows.
    pub(super) fn timed(text: &str) -> Self {
        Self { is_timed: true, ..Self::new(text) }
    }

    pub(super) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// What `EVALSHA` names it by.
    pub(super) fn get_hash(&self) -> &str {
        self.script.get_hash()
    }

    /// Loads it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

/// A script's text, with these maxima in front.
pub(super) fn with_maxima(maxima: &[(&str, u64)], text: &str) -> String {
    let lines = maxima.iter().map(|(name, value)| format!("local {name} = {value}\n"));
    lines.chain([text.to_owned()]).collect()
}
