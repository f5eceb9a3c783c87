//! The scripts that Redis runs.

use redis::{Cmd, Script};

use crate::store::clock::Way;

/// A script, and what Redis knows it by.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    script: Script,
    text: String,
    /// If it goes by the server's clock: how it is told of that, and says what it shows.
    way: Option<Way>,
}

impl Lua {
    pub(super) fn new(text: &str) -> Self {
        Self { script: Script::new(text), text: text.into(), way: None }
    }

    /// One that goes by the server's clock.
    pub(super) fn timed(text: &str, way: Way) -> Self {
        Self { way: Some(way), ..Self::new(text) }
    }

    pub(super) fn way(&self) -> Option<Way> {
        self.way
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
