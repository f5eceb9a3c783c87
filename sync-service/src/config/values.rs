//! Value types of settings, with parsers whose errors state what was expected.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

use tracing::level_filters::LevelFilter;
use weir_cli::credentials::check_token;
use weir_store::address::Address;

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. It must not be logged.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    Memory,
    /// Redis at this URL, which may contain user and password.
    Redis(Secret),
}

impl StoreAddress {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        Address::read(text).map(|_| Self::Redis(Secret::new(text)))
    }

    /// Parsed Redis URL, or `None` for the memory store.
    pub(super) fn redis(&self) -> Option<Address> {
        let Self::Redis(url) = self else { return None };
        Address::read(url.expose()).ok()
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.redis() {
            Some(address) => address.fmt(f),
            None => f.write_str("memory"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditFile {
    Stdout,
    File(String),
}

impl AuditFile {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text {
            "stdout" => Ok(Self::Stdout),
            _ => path(text).map(Self::File),
        }
    }
}

/// Redis that holds the audit log's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditStream {
    Store,
    Redis(Secret),
}

impl AuditStream {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text == "store" {
            return Ok(Self::Store);
        }
        match StoreAddress::read(text) {
            Ok(StoreAddress::Redis(url)) => Ok(Self::Redis(url)),
            Ok(StoreAddress::Memory) => {
                Err("expected `store` (where the budgets live) or the URL of a Redis, found `memory`".into())
            }
            Err(expected) => Err(expected.replacen("`memory`", "`store` (where the budgets live)", 1)),
        }
    }

    /// Parsed URL; `None` for the store's Redis.
    pub(super) fn address(&self) -> Option<Address> {
        let Self::Redis(url) = self else { return None };
        Address::read(url.expose()).ok()
    }
}

/// Value named `text` in `known`, which has at least two entries.
pub(super) fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
        let names = names.join(", ");
        let (others, last) = names.rsplit_once(", ").unwrap_or_default();
        format!("expected {others} or {last}, found `{text}`")
    })
}

pub(super) fn log_level(text: &str) -> Result<LevelFilter, String> {
    let names = ["error", "warn", "info", "debug", "trace"];
    let level = |name: &'static str| Some((name, name.parse().ok()?));
    one_of(text, &names.iter().filter_map(|name| level(name)).collect::<Vec<_>>())
}

/// Parses a name that is valid in metrics and in the store: `[a-z0-9_-]{1,64}`.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fits =
        (1..=64).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    fits.then(|| text.to_owned()).ok_or_else(|| format!("expected 1 to 64 of a-z, 0-9, _ and -, found `{text}`"))
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    one_of(text, &[("on", true), ("off", false)])
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected an IP address and a port, as in `127.0.0.1:7878` or `[::1]:7878`, found";
    text.parse().map_err(|_| format!("{expected} `{text}`"))
}

pub(super) fn text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a text, found nothing".into()) } else { Ok(text.to_owned()) }
}

/// Parses a path. Whether the file exists is checked when it is read.
pub(super) fn path(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a file's path, found nothing".into()) } else { Ok(text.to_owned()) }
}

pub(super) fn file(text: &str) -> Result<Option<String>, String> {
    path(text).map(Some)
}

pub(super) fn millis(text: &str, min: u64, max: u64) -> Result<Duration, String> {
    let value = text.parse().ok().filter(|ms| (min..=max).contains(ms));
    value
        .map(Duration::from_millis)
        .ok_or_else(|| format!("expected whole milliseconds from {min} to {max}, found `{text}`"))
}

pub(super) fn count<N: Copy + FromStr + PartialOrd + fmt::Display>(text: &str, min: N, max: N) -> Result<N, String> {
    let value = text.parse().ok().filter(|n| (min..=max).contains(n));
    value.ok_or_else(|| format!("expected a whole number from {min} to {max}, found `{text}`"))
}

/// Mode bit that lets every user of the machine read a file.
const OTHERS_MAY_READ: u32 = 0o004;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenSource {
    #[default]
    None,
    Given(Secret),
    File(String),
}

impl TokenSource {
    pub(super) fn given(text: &str) -> Result<Self, String> {
        token(text).map(Self::Given)
    }

    pub(super) fn file(text: &str) -> Result<Self, String> {
        path(text).map(Self::File)
    }

    pub(crate) fn path(&self) -> Option<&str> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

/// Warning if every user of the machine may read the file of secrets at `path`.
pub(crate) fn privacy_warning(path: &str) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let sentence = "can be read by every user of this machine: take that from others, as with `chmod o-rwx";
    (mode & OTHERS_MAY_READ != 0).then(|| format!("{path} {sentence} {path}`"))
}

pub(crate) fn token(text: &str) -> Result<Secret, String> {
    check_token(text).map(|()| Secret::new(text))
}

pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
