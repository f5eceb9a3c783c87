//! The scripts that Redis runs.

use redis::{Cmd, Script};

/// A script, and what Redis knows it by.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    script: Script,
    text: String,
    /// If it goes by the server's clock: where its rows say what that shows.
    shown_at: Option<usize>,
}

impl Lua {
    pub(super) fn new(text: &str) -> Self {
        Self { script: Script::new(text), text: text.into(), shown_at: None }
    }

    /// One whose last arguments are what is known of the server's clock, and that answers at this place what it shows.
    pub(super) fn timed(text: &str, shown_at: usize) -> Self {
        Self { shown_at: Some(shown_at), ..Self::new(text) }
    }

    pub(super) fn shown_at(&self) -> Option<usize> {
        self.shown_at
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
