//! Who changes a rule set, and why.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::trail::event::Changed;

/// What made a version, kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Change {
    /// Which kind of change it was.
    pub note: String,
    /// The name of the token that made it.
    pub author: String,
    /// What its author says of it.
    pub comment: String,
    /// Where the request for it came from; only the trail keeps that.
    #[serde(skip)]
    pub peer: Option<IpAddr>,
}

impl Change {
    /// The same change with another note.
    pub(super) fn noted(&self, note: String) -> Self {
        Self { note, ..self.clone() }
    }

    /// As the trail tells of it.
    pub(crate) fn told(&self, what: &'static str) -> Changed {
        let Self { note, author, comment, peer } = self.clone();
        Changed { what, author, peer, comment, note, ..Changed::default() }
    }

    /// As a store keeps it.
    pub(super) fn text(&self) -> String {
        // Strings alone, which can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What a store has kept. A version from before authors were kept has a note alone.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self { note: text.to_owned(), ..Self::default() })
    }
}
