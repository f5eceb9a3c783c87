//! HTTP/1.1 client with a connection per request, since a command sends few; its errors as sentences with advice.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig, Error as TlsError, RootCertStore};
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use super::{Api, host};
use crate::credentials::authorities;
use crate::output::{Failure, shown, text};

/// Maximum size of a response, in bytes: room for about 10,000 POPs, the maximum of a fleet.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const ERRORS_MAX: usize = 100;

#[derive(Debug, Error)]
pub(crate) enum ClientError {
    #[error("{0}")]
    Connect(io::Error),
    #[error("no TLS: {0}")]
    Tls(io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Body(String),
    #[error("no answer within {0} s")]
    Late(u64),
}

impl Api {
    pub(super) async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ClientError> {
        let answered = timeout(self.patience, self.connected(request)).await;
        answered.unwrap_or(Err(ClientError::Late(self.patience.as_secs())))
    }

    async fn connected(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ClientError> {
        let address = (host(&self.url), self.url.port_or_known_default().unwrap_or_default());
        let stream = TcpStream::connect(address).await.map_err(ClientError::Connect)?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), stream).await;
                exchange(secured.map_err(ClientError::Tls)?, request).await
            }
        }
    }

    pub(crate) fn refusal(&self, status: StatusCode, problem: &Value) -> Failure {
        let detail = text(&problem["detail"]);
        let sentence = match status {
            StatusCode::UNAUTHORIZED if self.token.is_none() => {
                "weir-sync wants an operator's token: --token-file FILE (or WEIR_TOKEN_FILE, WEIR_TOKEN), one of its \
                 admin_token_file"
                    .into()
            }
            StatusCode::UNAUTHORIZED => {
                "weir-sync does not know the token: expected one of its admin_token_file (POPs' tokens do not change \
                 rules)"
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
            let place = text(&error["place"]);
            let gap = if place.is_empty() { "" } else { ": " };
            format!("\n{place}{gap}{}", text(&error["problem"]))
        });
        let errors: String = errors.collect();
        Failure::refused(format!("refused: {sentence}{errors}"))
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, ClientError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    connection.abort();
    let body = body.map_err(|error| {
        ClientError::Body(if error.is::<LengthLimitError>() {
            format!("expected an answer of at most {ANSWER_BYTES_MAX} bytes")
        } else {
            format!("the answer broke off: {error}")
        })
    })?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// Connector that trusts the authorities in `ca_file`, or those of the system.
pub(super) fn connector(ca_file: Option<&str>) -> Result<TlsConnector, Failure> {
    let roots = if let Some(path) = ca_file {
        authorities("--ca-file", path).map_err(Failure::unusable)?
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    };
    if roots.is_empty() {
        let sentence = "this system has no authorities to trust: --ca-file FILE names a file of them (PEM)";
        return Err(Failure::unusable(sentence));
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// True for the statuses that a proxy sends if its upstream does not answer.
pub(super) fn is_gateways(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Warning that a change may have been made although its answer was lost. The command `shown_by` shows the change.
pub(super) fn perhaps_made(shown_by: Option<&str>) -> String {
    let perhaps = |command| format!(". The change may have been made all the same: `{command}` shows it");
    shown_by.map(perhaps).unwrap_or_default()
}

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
