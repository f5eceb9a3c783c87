//! Files of secrets, read at the start, on changes and at SIGHUP.

use std::sync::Arc;
use std::{fmt, fs};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use weir_rules::fleet_secret::{KEY_SECRET_BYTES_MAX, KEY_SECRET_BYTES_MIN};

use crate::access::Access;
use crate::config::{Config, Secret, values};
use crate::refusals::Refusals;
use crate::settling::{Settling, ticks};
use crate::tls::Tls;

/// Secrets read from files.
pub struct Secrets {
    /// Tokens.
    pub access: Access,
    /// Certificates, if connections use TLS.
    pub(crate) tls: Option<Tls>,
    /// Secret that hides the parts of the gateway's keys.
    pub(crate) gateway_key: Option<Secret>,
    /// Requests refused lately.
    pub(crate) refusals: Refusals,
    /// Files that should be private, including those of the store.
    secret_paths: Vec<String>,
    /// Files that are watched.
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
    /// Reads the files that `config` names. Fails with all errors, each with its setting.
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
        ];
        let paths = [all(&secret), all(&public)].concat();
        let secret_paths = [all(&secret), all(&read_once)].concat();
        let first = contents(&paths);
        let has_certificates = config.tls_client_ca_file.is_some();
        let access = Access::read(&config.token, &config.admin_token, &config.check_token, has_certificates);
        let tls = config.tls().map(Tls::read).transpose();
        let key = config.gateway_key_secret_file.as_deref().map(key_secret).transpose();
        let (access, tls, gateway_key) = match (access, tls, key) {
            (Ok(access), Ok(tls), Ok(key)) => (access, tls, key),
            (access, tls, key) => {
                let wrong = access.err().into_iter().flatten();
                return Err(wrong.chain(tls.err()).chain(key.err()).collect());
            }
        };
        Ok(Self {
            access,
            tls,
            gateway_key,
            refusals: Refusals::default(),
            secret_paths,
            paths,
            first,
            asked: watch::Sender::default(),
        })
    }

    /// Warnings about files that are usable but should be changed.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.secret_paths.iter().filter_map(|path| values::privacy_warning(path))
    }

    /// Requests that the files be read again at once, even if unchanged.
    pub fn ask_reread(&self) {
        self.asked.send_modify(|times| *times += 1);
    }

    /// Changes whenever files must be read or opened again.
    pub fn rereads(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Reads the files again on changes and on request, until the task is aborted. A file on a disk that hangs
    /// delays nothing else.
    pub async fn watch(self: Arc<Self>) {
        let mut found = Settling::on(self.first.clone());
        let mut ticks = ticks();
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

    /// Reads the files again. An invalid file is logged, and its previous content stays in force.
    fn reread(&self) {
        self.warnings().for_each(|warning| tracing::warn!("{warning}"));
        self.access.reread();
        self.tls.iter().for_each(Tls::reread);
    }
}

/// Reads the secret of keys in the file at `path`.
fn key_secret(path: &str) -> Result<Secret, String> {
    let place = "gateway_key_secret_file";
    let text = fs::read_to_string(path).map_err(|error| format!("{place}: cannot read {path}: {error}"))?;
    let (text, length) = (text.trim(), KEY_SECRET_BYTES_MIN..=KEY_SECRET_BYTES_MAX);
    let expected = || format!("{place}: {path}: expected a text of {} to {} bytes", length.start(), length.end());
    if length.contains(&text.len()) { Ok(Secret::new(text)) } else { Err(expected()) }
}

fn contents(paths: &[String]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).ok()).collect()
}
