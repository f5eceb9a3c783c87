//! Calls to weir-sync over HTTP, for hosts that make them through their proxy.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::effect::{CallResult, SyncCall, Unread};
use super::state::ANSWER_BYTES_MAX;
use weir_protocol::messages::CONTENT_TYPE;
use weir_rules::config::SyncConfig;

/// The cluster and the credentials for calls to weir-sync.
pub struct Caller {
    cluster: String,
    authorization: Option<String>,
}

impl Caller {
    /// From the configuration.
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
    pub fn headers<'a>(&'a self, call: &'a SyncCall) -> Vec<(&'a str, &'a str)> {
        let method = if call.body.is_empty() { "GET" } else { "POST" };
        let mut headers = vec![(":method", method), (":path", &call.path), (":authority", self.cluster())];
        if !call.body.is_empty() {
            headers.push(("content-type", CONTENT_TYPE));
        }
        headers.extend(self.authorization.as_deref().map(|value| ("authorization", value)));
        headers
    }
}

/// Most bytes of a refusal that are logged.
const REFUSAL_BYTES_MAX: usize = 300;

/// The result of a call without a reply.
pub fn no_answer() -> Unread {
    Unread::Failed("weir-sync did not answer (no connection, or too late)".to_owned())
}

/// The result of a reply with this status and `size` bytes, which `body` reads.
pub fn answered(status: u16, size: usize, body: impl FnOnce() -> CallResult) -> CallResult {
    if status != 200 {
        let body = if size > ANSWER_BYTES_MAX { Vec::new() } else { body().unwrap_or_default() };
        let trouble = if is_gateways(status) && !body.starts_with(b"{") {
            // weir-sync's own refusals are JSON.
            format!(
                "weir-sync did not answer: the proxy did, with status {status} (no weir-sync is up, or in reach)"
            )
        } else {
            let text = body.get(..REFUSAL_BYTES_MAX).unwrap_or(&body);
            format!("weir-sync refused what it was asked: status {status} {}", String::from_utf8_lossy(text))
        };
        return Err(Unread::Failed(trouble));
    }
    if size > ANSWER_BYTES_MAX {
        return Err(Unread::TooLarge(size));
    }
    body()
}

/// True if a proxy answers with this status when its upstream does not.
fn is_gateways(status: u16) -> bool {
    matches!(status, 502..=504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_proxy_says_itself_is_not_taken_for_weir_syncs_word() {
        let trouble = |status, body: &str| match answered(status, body.len(), || Ok(body.as_bytes().to_vec()))
        {
            Err(Unread::Failed(trouble)) => trouble,
            _ => panic!("{status} is a failure"),
        };
        let own = trouble(503, "no healthy upstream");
        assert!(own.starts_with("weir-sync did not answer: the proxy did, with status 503"), "{own}");
        for (status, body) in [(503, r#"{"detail": "the store is out of reach"}"#), (403, "")] {
            assert!(trouble(status, body).starts_with("weir-sync refused what it was asked"), "{body}");
        }
    }
}
