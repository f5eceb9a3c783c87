//! Files of tokens and of TLS certificates, read at the start, on changes and at SIGHUP.
//!
//! Files are polled. That works on every file system, and through symbolic links that are swapped.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use std::{fmt, fs};

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use webpki::EndEntityCert;
use weir_cli::credentials::{authorities, certificates, key_secret};

use crate::access::Access;
use crate::access::credentials::{Credential, PopPatterns};
use crate::config::{Config, Secret, values};
use crate::refusals::Refusals;
use crate::ticks;

pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(500);

pub struct Secrets {
    pub access: Access,
    pub(crate) tls: Option<Tls>,
    /// Secret with which the gateway hashes the parts of its keys.
    pub(crate) gateway_key: Option<Secret>,
    pub(crate) refusals: Refusals,
    /// Files that should be private, including those of the store and the audit log.
    secret_paths: Vec<String>,
    paths: Vec<String>,
    /// Content of the files when they were first read.
    first: Vec<Option<Vec<u8>>>,
    /// Changes when the files must be read again even if unchanged.
    asked: watch::Sender<u64>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Reads the files that `config` names. Returns all errors, each with its setting.
    pub fn read(config: &Config) -> Result<Self, Vec<String>> {
        let secret =
            [config.token.path(), config.admin_token.path(), config.check_token.path(), config.tls_key_file.as_deref()];
        let public = [config.tls_cert_file.as_deref(), config.tls_client_ca_file.as_deref()];
        let all =
            |paths: &[Option<&str>]| -> Vec<String> { paths.iter().flatten().map(|path| (*path).to_owned()).collect() };
        let read_once = [
            config.gateway_key_secret_file.as_deref(),
            config.store_password_file.as_deref(),
            config.store_sentinel_password_file.as_deref(),
            config.store_client_key_file.as_deref(),
            config.audit_log_redis_password_file.as_deref(),
        ];
        let paths = [all(&secret), all(&public)].concat();
        let secret_paths = [all(&secret), all(&read_once)].concat();
        let first = contents(&paths);
        let access = Access::read(config);
        let tls = Tls::read(config).transpose();
        let key = config.gateway_key_secret_file.as_deref().map(|path| key_secret("gateway_key_secret_file", path));
        let (access, tls, gateway_key) = match (access, tls, key.transpose()) {
            (Ok(access), Ok(tls), Ok(key)) => (access, tls, key.map(Secret::new)),
            (access, tls, key) => {
                let wrong = access.err().into_iter().flatten();
                return Err(wrong.chain(tls.err()).chain(key.err()).collect());
            }
        };
        let (refusals, asked) = (Refusals::default(), watch::Sender::default());
        Ok(Self { access, tls, gateway_key, refusals, secret_paths, paths, first, asked })
    }

    /// Warnings about files that are usable but should be changed.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.secret_paths.iter().filter_map(|path| values::privacy_warning(path))
    }

    /// Requests that the files be read again at once, even if unchanged.
    pub fn ask_reread(&self) {
        self.asked.send_modify(|times| *times += 1);
    }

    /// Changes whenever files must be read or opened again.
    pub(crate) fn rereads(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Reads the files again on changes and on request. A file on a disk that hangs delays nothing else.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut found = Settling::on(self.first.clone());
        let mut ticks = ticks(READ_INTERVAL);
        let mut asked = self.rereads();
        if *asked.borrow() > 0 {
            // Requested before this task subscribed.
            asked.mark_changed();
        }
        loop {
            let is_asked = tokio::select! {
                Ok(()) = asked.changed() => true,
                _ = ticks.tick() => false,
            };
            let this = Arc::clone(&self);
            let Ok(contents) = spawn_blocking(move || contents(&this.paths)).await else { continue };
            let has_changed = found.see(contents).is_some();
            if has_changed {
                tracing::info!("a token or certificate file changed");
            }
            if has_changed || is_asked {
                let this = Arc::clone(&self);
                // An error would be a panic, which is logged elsewhere.
                let _ = spawn_blocking(move || this.reread()).await;
            }
        }
    }

    /// Reads the files again. Logs invalid files, whose previous content stays in force.
    fn reread(&self) {
        self.warnings().for_each(|warning| tracing::warn!("{warning}"));
        self.access.reread();
        self.tls.iter().for_each(Tls::reread);
    }
}

fn contents(paths: &[String]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).ok()).collect()
}

/// Content of a file. It settles once two consecutive reads agree, since the file may be read while it is written.
#[derive(Debug)]
pub(crate) struct Settling<T> {
    last: Option<T>,
    settled: Option<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { last: None, settled: None }
    }
}

impl<T: Clone + PartialEq> Settling<T> {
    /// Begins with `known` as the settled content.
    pub(crate) fn on(known: T) -> Self {
        Self { last: None, settled: Some(known) }
    }

    /// Applies the content that was read. Returns it if it is new and has just settled.
    pub(crate) fn see(&mut self, found: T) -> Option<T> {
        let is_still = self.last.as_ref() == Some(&found);
        self.last = Some(found.clone());
        if !is_still || self.settled.as_ref() == Some(&found) {
            return None;
        }
        self.settled = Some(found.clone());
        Some(found)
    }
}

pub(crate) struct Tls {
    cert_file: String,
    key_file: String,
    /// Authorities of client certificates, which clients may present instead of a token.
    client_ca_file: Option<String>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files that `config` names. Returns `None` if it names none. An error names the setting and the file.
    fn read(config: &Config) -> Option<Result<Self, String>> {
        let (cert_file, key_file) = (config.tls_cert_file.clone()?, config.tls_key_file.clone()?);
        let client_ca_file = config.tls_client_ca_file.clone();
        let config = server_config(&cert_file, &key_file, client_ca_file.as_deref());
        Some(config.map(|config| Self { cert_file, key_file, client_ca_file, config: RwLock::new(Arc::new(config)) }))
    }

    /// Reads the files again for future connections. If they are invalid, logs that and keeps the previous ones.
    fn reread(&self) {
        match server_config(&self.cert_file, &self.key_file, self.client_ca_file.as_deref()) {
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

/// Credential of a verified client certificate, for the POPs of its DNS names; `None` without usable names.
pub(crate) fn bearer_of(certificate: &CertificateDer<'_>) -> Option<Credential<PopPatterns>> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // A DNS name can begin with `*`, but not end in it like a pattern of POPs.
    let names: Vec<_> = certificate.valid_dns_names().collect();
    let scope = PopPatterns::of_names(&names)?;
    Some(Credential { name: scope.as_str().to_owned(), scope })
}

fn server_config(cert: &str, key: &str, client_ca: Option<&str>) -> Result<ServerConfig, String> {
    let chain = certificates("tls_cert_file", cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::Io(error) => format!("tls_key_file: cannot read {key}: {error}"),
        error => format!("tls_key_file: {key}: expected a private key (PEM): {error}"),
    })?;
    let builder = ServerConfig::builder();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = authorities("tls_client_ca_file", path)?;
            // A client without a certificate needs a token.
            let verifier = WebPkiClientVerifier::builder(roots.into()).allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("tls_client_ca_file: {path}: {error}"))?)
        }
    };
    builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("tls_key_file: expected the key of the certificate in {cert}: {error}"))
}
