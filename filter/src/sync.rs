//! Calls to weir-sync, and their answers.

use weir_limiter::config::SyncConfig;
use weir_limiter::wire::{CONTENT_TYPE, MESSAGE_BYTES_MAX, Message, REPORT_PATH, RULES_PATH, Report};

use crate::dispatch::await_answer;
use crate::host::{self, Buffer, Headers};

/// How long the fetch of a rule set may take, in milliseconds.
pub(crate) const FETCH_TIMEOUT_MS: u32 = 5_000;

/// The way to weir-sync.
pub(crate) struct Caller {
    cluster: String,
    authorization: Option<String>,
    timeout_ms: u32,
}

impl Caller {
    pub(crate) fn new(config: &SyncConfig) -> Self {
        Self {
            cluster: config.cluster.clone(),
            authorization: config.token.as_ref().map(|token| format!("Bearer {token}")),
            timeout_ms: config.timeout_ms,
        }
    }

    /// Sends a report; the call's number, by which the answer comes to the context that is active now.
    pub(crate) fn send(&self, report: &Report) -> Result<u32, String> {
        let cluster = self.cluster.as_str();
        let headers = vec![
            (":method", "POST"),
            (":path", REPORT_PATH),
            (":authority", cluster),
            ("content-type", CONTENT_TYPE),
        ];
        self.call(headers, &report.encode(), self.timeout_ms)
    }

    /// Asks for the rule set document of `version`; the call's number.
    pub(crate) fn fetch_rules(&self, version: u64) -> Result<u32, String> {
        let path = format!("{RULES_PATH}?version={version}");
        let headers = vec![(":method", "GET"), (":path", &path), (":authority", &self.cluster)];
        self.call(headers, &[], FETCH_TIMEOUT_MS)
    }

    fn call<'a>(
        &'a self,
        mut headers: Vec<(&'a str, &'a str)>,
        body: &[u8],
        timeout_ms: u32,
    ) -> Result<u32, String> {
        let cluster = self.cluster.as_str();
        headers.extend(self.authorization.as_deref().map(|value| ("authorization", value)));
        let call = host::http_call(cluster, &headers, body, timeout_ms)
            .map_err(|status| format!("the host made no call to cluster {cluster:?}: status {}", status.0))?;
        await_answer(call);
        Ok(call)
    }
}

/// Why there is no body of a good answer.
pub(crate) enum Unread {
    /// There was no good answer, or the host kept it.
    Failed(String),
    /// It is larger than what was asked for may be.
    TooLarge(String),
}

/// The reply to a report.
pub(crate) fn read_reply(headers: usize, body_size: usize) -> Result<Vec<u8>, String> {
    read_answer(headers, body_size, MESSAGE_BYTES_MAX).map_err(|unread| match unread {
        Unread::Failed(problem) | Unread::TooLarge(problem) => problem,
    })
}

/// The body of a good answer.
pub(crate) fn read_answer(headers: usize, body_size: usize, bytes_max: usize) -> Result<Vec<u8>, Unread> {
    if headers == 0 {
        return Err(Unread::Failed("weir-sync did not answer (no connection, or too late)".into()));
    }
    let status = host::header(Headers::CallResponse, ":status").unwrap_or_default();
    if status != b"200" {
        let status = String::from_utf8_lossy(&status);
        return Err(Unread::Failed(format!("weir-sync refused what it was asked: status {status}")));
    }
    if body_size > bytes_max {
        return Err(Unread::TooLarge(format!(
            "weir-sync's answer has {body_size} bytes, expected at most {bytes_max}"
        )));
    }
    host::buffer(Buffer::CallResponseBody, body_size)
        .map_err(|status| Unread::Failed(format!("the host kept weir-sync's answer: status {}", status.0)))
}
