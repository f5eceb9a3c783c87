//! Author and reason of a change of the rule set.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::audit::event::ChangeEvent;

/// Origin of a version, stored beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ChangeOrigin {
    /// Kind of the change.
    pub note: String,
    /// Name of the token that made it.
    pub author: String,
    /// Its author's comment.
    pub comment: String,
    /// Address that the request for it came from; only in the audit log.
    #[serde(skip)]
    pub peer: Option<IpAddr>,
}

impl ChangeOrigin {
    /// The same change with another note.
    pub(super) fn noted(&self, note: String) -> Self {
        Self { note, ..self.clone() }
    }

    /// The change as an audit log entry.
    pub(crate) fn told(&self, what: &'static str) -> ChangeEvent {
        let Self { note, author, comment, peer } = self.clone();
        ChangeEvent { what, author, peer, comment, note, ..ChangeEvent::default() }
    }

    /// The change as stored text.
    pub(super) fn text(&self) -> String {
        // Strings can always be serialised.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a stored change. Versions stored before authors were recorded have only a note.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self { note: text.to_owned(), ..Self::default() })
    }
}
