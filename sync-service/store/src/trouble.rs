//! Explanations of Redis errors for operators. Each is logged once per episode of failures.

use std::mem::{discriminant, take};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::Instant;

use super::StoreError;
use super::clock::LATE;

/// Error codes for an unknown user, and for a connection without a user.
const STRANGER_CODES: [&str; 2] = ["NOAUTH", "WRONGPASS"];
/// Error texts of different Redis versions for a script whose user lacks the right to one of its commands.
const FORBIDDEN: [&str; 3] = ["NOPERM", "ACL failure", "user executing the script"];

/// Error texts of rustls about certificates, each with its remedy.
const TLS: [(&str, &str); 5] = [
    ("UnknownIssuer", "set store_ca_file to the certificate that signed the store's"),
    ("CaUsedAsEndEntity", "set store_ca_file to the certificate that signed the store's"),
    ("CertificateRequired", "the store asks for a certificate: set store_client_cert_file and store_client_key_file"),
    ("UnknownCA", "the store does not trust who signed the certificate in store_client_cert_file"),
    ("InvalidContentType", "the store has no TLS there: name another port, or redis:// instead of rediss://"),
];

/// Converts the error of a call that had this time limit.
pub(super) fn explain(error: &RedisError, limit: Duration) -> StoreError {
    // The call was refused as late at its last try, too.
    if error.is_timeout() || error.code() == Some(LATE) {
        return StoreError::Slow(limit.as_millis());
    }
    let text = text(error);
    match error.kind() {
        ErrorKind::Io => StoreError::Unreachable(match TLS.iter().find(|(words, _)| text.contains(words)) {
            Some((_, what_to_do)) => format!("{text}: {what_to_do}"),
            None => text,
        }),
        ErrorKind::UnexpectedReturnType | ErrorKind::Parse => StoreError::Invalid("another type"),
        ErrorKind::Server(ServerErrorKind::ClusterDown) => StoreError::Refused(format!(
            "its cluster does not serve this key: a master is down and none has taken over (cluster-require-full-coverage \
             no lets the others go on), or no node has its slot ({text})"
        )),
        ErrorKind::Server(ServerErrorKind::CrossSlot | ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            StoreError::Refused(format!(
                "it is a node of a Redis Cluster: name the store redis+cluster://host,host,host ({text})"
            ))
        }
        kind if kind == ErrorKind::AuthenticationFailed || is_any(&text, &STRANGER_CODES) => {
            StoreError::Refused(format!(
                "the user or the password is wrong or missing; special characters of either are \
                 percent-encoded in a URL, as %23 for # ({text})"
            ))
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => forbidden(&text),
        _ if is_any(&text, &FORBIDDEN) => forbidden(&text),
        _ => StoreError::Refused(text),
    }
}

fn forbidden(text: &str) -> StoreError {
    StoreError::Refused(format!(
        "its ACL forbids what weir-sync needs; docs/redis.md has the line that allows it ({text})"
    ))
}

fn is_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Text of the server's error, if there is one, without its index in a pipeline.
fn text(error: &RedisError) -> String {
    match error.clone().into_server_errors().as_deref() {
        Some([(_, first), ..]) => first.to_string(),
        _ => error.to_string(),
    }
}

/// An episode is over once everything has worked for this time.
const CALM: Duration = Duration::from_secs(10);
/// Maximum number of reasons logged per episode.
const REASONS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Episode {
    logged: Vec<StoreError>,
    good_since: Option<Instant>,
}

impl Episode {
    /// Records a failure. Returns true if its reason is to be logged.
    pub(super) fn is_news(&mut self, reason: &StoreError) -> bool {
        self.good_since = None;
        let is_news = self.logged.len() < REASONS_MAX && !self.logged.iter().any(|logged| is_same(logged, reason));
        if is_news {
            self.logged.push(reason.clone());
        }
        is_news
    }

    /// Records at `now` that everything works. Returns true if the end of an episode is to be logged.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let since = *self.good_since.get_or_insert(now);
        now.duration_since(since) >= CALM && !take(&mut self.logged).is_empty()
    }

    pub(super) fn is_on(&self) -> bool {
        !self.logged.is_empty()
    }
}

/// A time-out is the same reason for any length.
fn is_same(one: &StoreError, other: &StoreError) -> bool {
    match one {
        StoreError::Slow(_) | StoreError::Unconfirmed(_) => discriminant(one) == discriminant(other),
        _ => one == other,
    }
}
