//! What a call to weir-sync is over HTTP, for hosts that make it through their proxy.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::effect::{Answered, Call, Unread};
use super::state::ANSWER_BYTES_MAX;
use weir_rules::config::SyncConfig;
use weir_wire::messages::CONTENT_TYPE;

/// The way to weir-sync.
pub struct Caller {
    cluster: String,
    authorization: Option<String>,
}

impl Caller {
    /// The way that the configuration says.
    pub fn new(config: &SyncConfig) -> Self {
        Self {
            cluster: config.cluster.clone(),
            authorization: config.token.as_ref().map(|token| format!("Bearer {token}")),
        }
    }

    /// The cluster to send calls to.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The headers of a call.
    pub fn headers<'a>(&'a self, call: &'a Call) -> Vec<(&'a str, &'a str)> {
        let method = if call.body.is_empty() { "GET" } else { "POST" };
        let mut headers = vec![(":method", method), (":path", &call.path), (":authority", self.cluster())];
        if !call.body.is_empty() {
            headers.push(("content-type", CONTENT_TYPE));
        }
        headers.extend(self.authorization.as_deref().map(|value| ("authorization", value)));
        headers
    }
}

/// What there is to say if a call brought no answer.
pub fn no_answer() -> Unread {
    Unread::Failed("weir-sync did not answer (no connection, or too late)".to_owned())
}

/// An answer with this status and so many bytes; `body` reads them.
pub fn answered(status: u16, size: usize, body: impl FnOnce() -> Answered) -> Answered {
    if status != 200 {
        let trouble = format!("weir-sync refused what it was asked: status {status}");
        return Err(if status == 400 { Unread::NotRead(trouble) } else { Unread::Failed(trouble) });
    }
    if size > ANSWER_BYTES_MAX {
        return Err(Unread::TooLarge(size));
    }
    body()
}
