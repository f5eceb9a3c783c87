//! Calls to weir-sync, and their answers.

use std::time::Duration;

use weir_limiter::config::SyncConfig;
use weir_limiter::wire::{CONTENT_TYPE, MESSAGE_BYTES_MAX, Message, REPORT_PATH, Report};

use crate::host::{self, Buffer, Headers};

/// The way to weir-sync.
pub(crate) struct Caller {
    cluster: String,
    authorization: Option<String>,
    timeout: Duration,
}

impl Caller {
    pub(crate) fn new(config: &SyncConfig) -> Self {
        Self {
            cluster: config.cluster.clone(),
            authorization: config.token.as_ref().map(|token| format!("Bearer {token}")),
            timeout: Duration::from_millis(config.timeout_ms.into()),
        }
    }

    /// Sends a report; the call's number, by which the answer comes to the context that is active now.
    pub(crate) fn send(&self, report: &Report) -> Result<u32, String> {
        let cluster = self.cluster.as_str();
        let mut headers = vec![
            (":method", "POST"),
            (":path", REPORT_PATH),
            (":authority", cluster),
            ("content-type", CONTENT_TYPE),
        ];
        headers.extend(self.authorization.as_deref().map(|value| ("authorization", value)));
        let body = report.encode();
        proxy_wasm::hostcalls::dispatch_http_call(cluster, headers, Some(&body), vec![], self.timeout)
            .map_err(|status| format!("the host made no call to cluster {cluster:?}: {status:?}"))
    }
}

/// The body of a good answer.
pub(crate) fn read_answer(headers: usize, body_size: usize) -> Result<Vec<u8>, String> {
    if headers == 0 {
        return Err("weir-sync did not answer (no connection, or too late)".into());
    }
    let status = host::header(Headers::CallResponse, ":status").unwrap_or_default();
    if status != b"200" {
        return Err(format!("weir-sync refused a report: status {}", String::from_utf8_lossy(&status)));
    }
    if body_size > MESSAGE_BYTES_MAX {
        return Err(format!(
            "weir-sync's answer has {body_size} bytes, expected at most {MESSAGE_BYTES_MAX}"
        ));
    }
    host::buffer(Buffer::CallResponseBody, body_size)
        .map_err(|status| format!("the host kept weir-sync's answer: status {}", status.0))
}
