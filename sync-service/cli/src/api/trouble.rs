//! Error messages for requests to a weir-sync, with advice.

use std::io;

use hyper::StatusCode;
use rustls::{CertificateError, Error as TlsError};
use serde_json::Value;
use url::Url;

use super::client::ClientError;
use crate::output::{Failure, shown};

/// Maximum number of weir-sync's error lines that are repeated.
const ERRORS_MAX: usize = 100;

/// True for statuses by which a proxy reports that its upstream does not answer.
pub(super) fn is_gateways(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Warning for a change whose answer was lost. `shown_by` is the command that shows it; none for requests that
/// change nothing.
pub(super) fn perhaps_made(shown_by: Option<&str>) -> String {
    let perhaps = |command| format!(". The change may have been made all the same: `{command}` shows it");
    shown_by.map(perhaps).unwrap_or_default()
}

/// Failure for a weir-sync that is out of reach. `shown_by` is the command that shows whether a change was
/// made.
pub(super) fn out_of_reach(url: &Url, error: &ClientError, shown_by: Option<&str>) -> Failure {
    let next = match error {
        ClientError::Connect(error) => not_connected(error),
        ClientError::Tls(error) => not_secured(error),
        ClientError::Http(error) if error.is_parse() || error.is_incomplete_message() && url.scheme() == "http" => {
            "is that the port of weir-sync's API (listen)? If it has a certificate, the address begins with \
             https://"
        }
        ClientError::Http(_) | ClientError::Body(_) if shown_by.is_some() => "weir-sync's log may have the reason",
        ClientError::Http(_) | ClientError::Body(_) => "try again; weir-sync's log may have the reason",
        ClientError::Late(_) => "is the machine, or its store, busy? --timeout-s waits longer",
    };
    // Without a connection, the request was not sent.
    let is_sent = !matches!(error, ClientError::Connect(_) | ClientError::Tls(_));
    let perhaps = perhaps_made(shown_by.filter(|_| is_sent));
    let error = match error {
        ClientError::Http(error) => with_source(error),
        error => error.to_string(),
    };
    Failure::out_of_reach(format!("{url}: out of reach: {}: {next}{perhaps}", shown(&error)))
}

fn with_source(error: &hyper::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn not_connected(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "does weir-sync run, and listen there? --url (or WEIR_URL) sets its address"
        }
        _ => "is the address right? --url (or WEIR_URL) sets it",
    }
}

fn not_secured(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|error| error.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "--ca-file FILE (or WEIR_CA_FILE) names the authority of its certificate"
        }
        Some(TlsError::InvalidCertificate(_)) => "its certificate is for another name or time, or is no good",
        Some(TlsError::InvalidMessage(_)) => "if it has no certificate, the address begins with http://",
        _ => "is that a weir-sync with a certificate (tls_cert_file)?",
    }
}

/// Message of a problem document.
pub(super) fn detail(problem: &Value) -> String {
    problem["detail"].as_str().map(shown).unwrap_or_default()
}

/// Failure for a refusal, with advice.
pub(super) fn refused(status: StatusCode, problem: &Value, has_token: bool) -> Failure {
    let detail = detail(problem);
    let sentence = match status {
        StatusCode::UNAUTHORIZED if !has_token => {
            "weir-sync wants an operator's token: --token-file FILE (or WEIR_TOKEN_FILE, WEIR_TOKEN), one of its \
             admin_token_file"
                .into()
        }
        StatusCode::UNAUTHORIZED => {
            "weir-sync does not know the token: expected one of its admin_token_file (POPs' tokens do not change rules)"
                .into()
        }
        StatusCode::PRECONDITION_FAILED => {
            let next = "Nothing was changed; look at `rules diff`, then do it again";
            format!("somebody else was faster: {detail}. {next}")
        }
        _ => detail,
    };
    let errors = problem["errors"].as_array().into_iter().flatten();
    let errors = errors.take(ERRORS_MAX).map(|error| {
        let text = |field: &str| error[field].as_str().map(shown).unwrap_or_default();
        let place = text("place");
        let gap = if place.is_empty() { "" } else { ": " };
        format!("\n{place}{gap}{}", text("problem"))
    });
    let errors: String = errors.collect();
    Failure::refused(format!("refused: {sentence}{errors}"))
}
