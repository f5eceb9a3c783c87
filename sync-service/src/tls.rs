//! TLS of weir-sync's own listeners: certificates that are read again when their files change, and names in
//! client certificates.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use webpki::EndEntityCert;
use weir_cli::credentials::certificates;

use crate::access::credentials::{Credential, PopPatterns};

/// Paths of the TLS files, from the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificate chain.
    pub(crate) cert: String,
    /// Private key of the certificate.
    pub(crate) key: String,
    /// Authorities of client certificates, which clients may present instead of a token.
    pub(crate) client_ca: Option<String>,
}

/// TLS configuration of connections.
pub(crate) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files. An error names the setting and the file.
    pub(crate) fn read(files: TlsFiles) -> Result<Self, String> {
        let config = RwLock::new(Arc::new(read(&files)?));
        Ok(Self { files, config })
    }

    /// Reads the files again for future connections. If they are invalid, an error is logged and the previous
    /// ones stay in use.
    pub(crate) fn reread(&self) {
        match read(&self.files) {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                tracing::info!("read the certificates again");
            }
            Err(wrong) => tracing::error!("{wrong}; the previous certificates stay in use"),
        }
    }

    /// Acceptor for a new connection with this ALPN protocol (RFC 7301).
    pub(crate) fn acceptor(&self, protocol: &[u8]) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config).into()
    }
}

/// Credential of a verified client certificate: it may report for the POPs named by its DNS names. None without
/// usable names.
pub(crate) fn bearer(certificate: &CertificateDer<'_>) -> Option<Credential<PopPatterns>> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // A DNS name can only begin with `*`, which is no pattern of POPs.
    let names: Vec<_> = certificate.valid_dns_names().collect();
    let scope = PopPatterns::of_names(&names)?;
    Some(Credential { name: scope.as_str().to_owned(), scope })
}

fn read(files: &TlsFiles) -> Result<ServerConfig, String> {
    let chain = certificates("tls_cert_file", &files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| match error {
        pem::Error::Io(error) => format!("tls_key_file: cannot read {}: {error}", files.key),
        error => format!("tls_key_file: {}: expected a private key (PEM): {error}", files.key),
    })?;
    let builder = ServerConfig::builder();
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("tls_client_ca_file", path)? {
                roots.add(certificate).map_err(|error| format!("tls_client_ca_file: {path}: {error}"))?;
            }
            // A client without a certificate needs a token.
            let verifier = WebPkiClientVerifier::builder(roots.into()).allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("tls_client_ca_file: {path}: {error}"))?)
        }
    };
    builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("tls_key_file: expected the key of the certificate in {}: {error}", files.cert))
}
