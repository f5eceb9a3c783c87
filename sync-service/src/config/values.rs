//! The kinds of values a setting has, each read from text with a sentence about what was expected.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::time::Duration;

use redis::IntoConnectionInfo;
use tracing::level_filters::LevelFilter;
use url::Url;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; not to be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where the budgets live.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// In this process.
    Memory,
    /// In Redis, at this URL (with user and password).
    Redis(Secret),
}

impl StoreAddress {
    /// Reads `memory` or a Redis URL.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let expected = "expected `memory`, redis://[user:password@]host[:port][/database] or the same with rediss:// for TLS";
        // The text is not repeated: it may hold a password.
        let Some((_, rest)) =
            text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "redis" | "rediss"))
        else {
            return Err(expected.into());
        };
        // An `@` after the host's end shows that a part of the password was taken for the host.
        let is_cut = rest.split_once(['/', '?', '#']).is_some_and(|(_, after)| after.contains('@'));
        if is_cut {
            return Err(format!(
                "{expected}, with special characters of the user and the password percent-encoded: `/` as %2F, \
                 `?` as %3F, `#` as %23, `%` as %25"
            ));
        }
        let problem = match Url::parse(text) {
            Err(error) => error.to_string(),
            Ok(url) => match url.into_connection_info() {
                Ok(_) => return Ok(Self::Redis(Secret::new(text))),
                Err(error) => error.to_string(),
            },
        };
        Err(format!("{expected} ({problem})"))
    }

    /// Whether it is reached over TLS.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Redis(url) if url.expose().starts_with("rediss:"))
    }
}

impl fmt::Display for StoreAddress {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Redis(secret) = self else { return f.write_str("memory") };
        let Ok(url) = Url::parse(secret.expose()) else { return f.write_str("redis") };
        write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
        url.port().map_or(Ok(()), |port| write!(f, ":{port}"))?;
        f.write_str(url.path())
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("expected `text` or `json`, found `{text}`")),
        }
    }
}

/// What is logged: this level and everything graver.
pub(super) fn log_level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(format!("expected `error`, `warn`, `info`, `debug` or `trace`, found `{text}`")),
    }
}

/// A name as it may stand in metrics and in the store: `[a-z0-9_-]{1,64}`.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    fits.then(|| text.to_owned())
        .ok_or_else(|| format!("expected 1 to 64 of a-z, 0-9, _ and -, found `{text}`"))
}

/// A name that nobody else is likely to have: 16 hexadecimal digits.
pub(super) fn random_name() -> String {
    // The standard library draws the hasher's keys from the system's randomness; that is enough to tell replicas apart,
    // and the name is no secret.
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// An address to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected an IP address and a port, as in `127.0.0.1:7878` or `[::1]:7878`, found";
    text.parse().map_err(|_| format!("{expected} `{text}`"))
}

/// A path; whether something is there shows when it is read.
pub(super) fn path(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a file's path, found nothing".into()) } else { Ok(text.to_owned()) }
}

/// Whole milliseconds from `min` to `max`.
pub(super) fn millis(text: &str, min: u64, max: u64) -> Result<Duration, String> {
    let value = text.parse().ok().filter(|ms| (min..=max).contains(ms));
    value
        .map(Duration::from_millis)
        .ok_or_else(|| format!("expected whole milliseconds from {min} to {max}, found `{text}`"))
}

/// A whole number from `min` to `max`.
pub(super) fn count(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let value = text.parse().ok().filter(|n| (min..=max).contains(n));
    value.ok_or_else(|| format!("expected a whole number from {min} to {max}, found `{text}`"))
}
