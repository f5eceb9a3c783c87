//! Explanations of Redis errors for operators.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::StoreError;
use super::clock::LATE;

/// Error codes for an unknown user, and for a connection without one.
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

/// Converts an error of a call with this time limit.
pub(super) fn explain(error: &RedisError, limit: Duration) -> StoreError {
    // The call was refused as late twice, so it is late now.
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
