//! What is read from files of secrets: at the start, when a file changes, and at SIGHUP.

use std::sync::Arc;
use std::{fmt, fs};

use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::access::Access;
use crate::config::{Config, token};
use crate::refusals::Refusals;
use crate::settling::{Settling, ticks};
use crate::tls::Tls;

/// Everything that comes from files of secrets.
pub struct Secrets {
    /// The tokens.
    pub access: Access,
    /// The certificates, if connections are secured here.
    pub tls: Option<Tls>,
    /// What was refused lately.
    pub refusals: Refusals,
    /// The files that nobody else should read, those of the store with them.
    secret_paths: Vec<String>,
    /// The files that are read here.
    paths: Vec<String>,
    /// What was in the files when they were read first.
    first: Vec<Option<Vec<u8>>>,
    /// Notified when the files are to be read again, changed or not.
    asked: Notify,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Reads what `config` names. Fails with everything that is wrong, each with its setting.
    pub fn read(config: &Config) -> Result<Self, Vec<String>> {
        let secret = [config.token.path(), config.admin_token.path(), config.tls_key_file.as_deref()];
        let public = [config.tls_cert_file.as_deref(), config.tls_client_ca_file.as_deref()];
        let all = |paths: &[Option<&str>]| -> Vec<String> {
            paths.iter().flatten().map(|path| (*path).to_owned()).collect()
        };
        let of_the_store = [
            config.store_password_file.as_deref(),
            config.store_sentinel_password_file.as_deref(),
            config.store_client_key_file.as_deref(),
        ];
        let paths = [all(&secret), all(&public)].concat();
        let secret_paths = [all(&secret), all(&of_the_store)].concat();
        let first = contents(&paths);
        let has_certificates = config.tls_client_ca_file.is_some();
        let access = Access::read(&config.token, &config.admin_token, has_certificates);
        let (access, tls) = match (access, config.tls().map(Tls::read).transpose()) {
            (Ok(access), Ok(tls)) => (access, tls),
            (access, tls) => {
                return Err(access.err().into_iter().flatten().chain(tls.err()).collect());
            }
        };
        Ok(Self {
            access,
            tls,
            refusals: Refusals::default(),
            secret_paths,
            paths,
            first,
            asked: Notify::new(),
        })
    }

    /// What should be different about the files, though they can be used.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.secret_paths.iter().filter_map(|path| token::warning(path))
    }

    /// Has the files read again at once, changed or not.
    pub fn ask_reread(&self) {
        self.asked.notify_one();
    }

    /// Reads the files again whenever they change and whenever that is asked, until it is aborted. A file whose disk does
    /// not answer holds up nothing else.
    pub async fn watch(self: Arc<Self>) {
        let mut found = Settling::on(self.first.clone());
        let mut ticks = ticks();
        loop {
            let is_asked = tokio::select! {
                () = self.asked.notified() => true,
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

fn contents(paths: &[String]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).ok()).collect()
}
