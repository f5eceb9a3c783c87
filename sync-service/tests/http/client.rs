//! A small HTTP client over plain TCP that can also misbehave: send slowly, send nonsense, break off.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir_protocol::messages::{self, BudgetRule, Key, Message, Replies, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::DEADLINE;

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header's value; its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The problem's detail. The answer must be a complete problem document.
    pub(crate) fn detail(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        assert!(problem["type"].is_string() && problem["title"].is_string());
        problem["detail"].as_str().unwrap().to_owned()
    }
}

/// A connection.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Sends bytes that the server may refuse half-way; the refusal shows when reading.
    pub(crate) async fn send_anyway(&mut self, bytes: &[u8]) {
        let _ = timeout(DEADLINE, self.0.write_all(bytes)).await.expect("not read");
    }

    /// Closes the sending side.
    pub(crate) async fn finish(&mut self) {
        let _ = self.0.shutdown().await;
    }

    /// Reads one answer with a `content-length`; `None` where the connection ends without one.
    pub(crate) async fn receive(&mut self) -> Option<Answer> {
        timeout(DEADLINE, self.receive_patiently()).await.expect("no answer in time")
    }

    /// True if the server ends the connection within the deadline.
    pub(crate) async fn is_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        timeout(DEADLINE, self.0.read_to_end(&mut rest)).await.is_ok() && rest.is_empty()
    }

    async fn receive_patiently(&mut self) -> Option<Answer> {
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if self.0.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap().to_lowercase();
        let status = head.get(9..12)?.parse().ok()?;
        let mut answer = Answer { status, head, body: bytes[head_end + 4..].to_vec() };
        let length: usize = answer.header("content-length").map_or(0, |value| value.parse().unwrap());
        while answer.body.len() < length {
            if self.0.read_buf(&mut answer.body).await.ok()? == 0 {
                return None;
            }
        }
        Some(answer)
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let mut client = Client::connect(address).await;
    client.send_anyway(request).await;
    client.receive().await.expect("an answer")
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, format!("GET {path} HTTP/1.1\r\nhost: weir\r\n\r\n").as_bytes()).await
}

/// A POST's bytes; `headers` each with their line end.
pub(crate) fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    request("POST", path, headers, body)
}

/// A request's bytes; `headers` each with their line end.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: weir\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The header every report has.
pub(crate) fn media_type() -> String {
    format!("content-type: {}\r\n", messages::CONTENT_TYPE)
}

pub(crate) async fn report(address: SocketAddr, headers: &str, report: &Report) -> Answer {
    let headers = format!("{}{headers}", media_type());
    ask(address, &post(messages::REPORT_PATH, &headers, &report.encode())).await
}

/// A report of `pop` about one key of a rule of 1/d with a burst of 100.
pub(crate) fn one_key(pop: &str, sequence: u64, admitted: u64, unconfirmed: u64, asked: u64) -> Report {
    let quota = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
    let key = Key {
        value: b"192.0.2.1".to_vec(),
        epoch: 1,
        admitted,
        unconfirmed,
        asked,
        asked_recently: unconfirmed,
        ..Key::default()
    };
    let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
    Report { pop: pop.into(), worker: 1, sequence, table: 1, rules, keys: vec![key], ..Report::default() }
}

/// A report of `pop` without content, which has received every reply.
pub(crate) fn greeting(pop: &str) -> Report {
    static GREETINGS: AtomicU64 = AtomicU64::new(1_000);
    let sequence = GREETINGS.fetch_add(1, Ordering::Relaxed);
    let replies = Replies { done: sequence - 1, lost: 0 };
    Report { pop: pop.into(), worker: 1, sequence, table: 1, replies, ..Report::default() }
}
