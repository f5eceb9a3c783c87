//! HTTP/1.1 client for one request per connection. Commands send requests rarely and one after the other, so a
//! pool, as in hyper-util, would be of no use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::credentials::certificates;
use crate::output::Failure;

/// Maximum size of a response, in bytes: about 10,000 POPs, the most that a fleet has.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Reason why there is no response.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    /// The connection failed.
    #[error("{0}")]
    Connect(io::Error),
    /// The TLS handshake failed.
    #[error("no TLS: {0}")]
    Tls(io::Error),
    /// The connection broke off, or the response is not HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The response is too large, or broke off.
    #[error("{0}")]
    Body(String),
    /// There was no response within this time, in seconds.
    #[error("no answer within {0} s")]
    Late(u64),
}

/// Server to send requests to.
#[derive(Clone)]
pub(crate) struct HttpServer {
    /// A name or an address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// TLS connector and server name; none for plain HTTP.
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Time limit for the whole exchange.
    pub(crate) patience: Duration,
}

impl HttpServer {
    /// Sends `request`, and returns the complete response.
    pub(crate) async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ClientError> {
        let answered = timeout(self.patience, self.connected(request)).await;
        answered.unwrap_or(Err(ClientError::Late(self.patience.as_secs())))
    }

    async fn connected(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ClientError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(ClientError::Connect)?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), stream).await;
                exchange(secured.map_err(ClientError::Tls)?, request).await
            }
        }
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
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        for certificate in certificates("--ca-file", path).map_err(Failure::unusable)? {
            let added = roots.add(certificate);
            added.map_err(|error| Failure::unusable(format!("--ca-file: {path}: {error}")))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let sentence = "this system has no authorities to trust: --ca-file FILE names a file of them (PEM)";
            return Err(Failure::unusable(sentence));
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config).into())
}
