//! What is read from files of secrets: at the start, when a file changes, and at SIGHUP.

use std::sync::Arc;
use std::{fmt, fs};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use weir_rules::fleet_secret::{KEY_SECRET_BYTES_MAX, KEY_SECRET_BYTES_MIN};

use crate::access::Access;
use crate::config::{Config, Secret, token};
use crate::refusals::Refusals;
use crate::settling::{Settling, ticks};
use crate::tls::Tls;

/// Everything that comes from files of secrets.
pub struct Secrets {
    /// The tokens.
    pub access: Access,
    /// The certificates, if connections are secured here.
    pub tls: Option<Tls>,
    /// What hides the parts of the gateway's keys.
    pub gateway_key: Option<Secret>,
    /// What was refused lately.
    pub refusals: Refusals,
    /// The files that nobody else should read, those of the store with them.
    secret_paths: Vec<String>,
    /// The files that are read here.
    paths: Vec<String>,
    /// What was in the files when they were read first.
    first: Vec<Option<Vec<u8>>>,
    /// Changes when files are to be read again, changed or not.
    asked: watch::Sender<u64>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Reads what `config` names. Fails with everything that is wrong, each with its setting.
    pub fn read(config: &Config) -> Result<Self, Vec<String>> {
        let secret = [
            config.token.path(),
            config.admin_token.path(),
            config.check_token.path(),
            config.tls_key_file.as_deref(),
        ];
        let public = [config.tls_cert_file.as_deref(), config.tls_client_ca_file.as_deref()];
        let all = |paths: &[Option<&str>]| -> Vec<String> {
            paths.iter().flatten().map(|path| (*path).to_owned()).collect()
        };
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

    /// What should be different about the files, though they can be used.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.secret_paths.iter().filter_map(|path| token::warning(path))
    }

    /// Has the files read again at once, changed or not.
    pub fn ask_reread(&self) {
        self.asked.send_modify(|times| *times += 1);
    }

    /// Changes whenever files are to be read, or opened, again.
    pub fn rereads(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Reads the files again whenever they change and whenever that is asked, until it is aborted. A file whose disk does
    /// not answer holds up nothing else.
    pub async fn watch(self: Arc<Self>) {
        let mut found = Settling::on(self.first.clone());
        let mut ticks = ticks();
        let mut asked = self.rereads();
        if *asked.borrow() > 0 {
            // Before it was waited for.
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
                // An error would be a panic, which is told elsewhere.
                let _ = spawn_blocking(move || this.reread()).await;
            }
        }
    }

    /// Reads the files again. If one is invalid, that is logged, and what it said before stays in force.
    fn reread(&self) {
        self.warnings().for_each(|warning| tracing::warn!("{warning}"));
        self.access.reread();
        self.tls.iter().for_each(Tls::reread);
    }
}

/// The secret of keys in the file at `path`.
fn key_secret(path: &str) -> Result<Secret, String> {
    let place = "gateway_key_secret_file";
    let text = fs::read_to_string(path).map_err(|error| format!("{place}: cannot read {path}: {error}"))?;
    let (text, length) = (text.trim(), KEY_SECRET_BYTES_MIN..=KEY_SECRET_BYTES_MAX);
    let expected =
        || format!("{place}: {path}: expected a text of {} to {} bytes", length.start(), length.end());
    if length.contains(&text.len()) { Ok(Secret::new(text)) } else { Err(expected()) }
}

fn contents(paths: &[String]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).ok()).collect()
}
