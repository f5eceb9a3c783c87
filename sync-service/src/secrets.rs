//! What is read from files of secrets: at the start, when a file changes, and at SIGHUP.

use std::sync::Arc;
use std::{fmt, fs};

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
    /// The files that nobody else should read; all files.
    secret_paths: Vec<String>,
    paths: Vec<String>,
    /// What was in the files when they were read first.
    first: Vec<Option<Vec<u8>>>,
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
        let all = |paths: &[Option<&str>]| paths.iter().flatten().map(|path| (*path).to_owned()).collect();
        let secret_paths: Vec<String> = all(&secret);
        let paths = [secret_paths.clone(), all(&public)].concat();
        let first = contents(&paths);
        let has_certificates = config.tls_client_ca_file.is_some();
        let access = Access::read(&config.token, &config.admin_token, has_certificates);
        let (access, tls) = match (access, config.tls().map(Tls::read).transpose()) {
            (Ok(access), Ok(tls)) => (access, tls),
            (access, tls) => {
                return Err(access.err().into_iter().flatten().chain(tls.err()).collect());
            }
        };
        Ok(Self { access, tls, refusals: Refusals::default(), secret_paths, paths, first })
    }

    /// What should be different about the files, though they can be used.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.secret_paths.iter().filter_map(|path| token::warning(path))
    }

    /// Reads the files again. If one is invalid, that is logged, and what it said before stays in force.
    pub fn reread(&self) {
        self.warnings().for_each(|warning| tracing::warn!("{warning}"));
        self.access.reread();
        self.tls.iter().for_each(Tls::reread);
    }

    /// Reads the files again whenever they change, until it is aborted.
    pub async fn watch(self: Arc<Self>) {
        let mut found = Settling::on(self.first.clone());
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            let this = Arc::clone(&self);
            let Ok(contents) = spawn_blocking(move || contents(&this.paths)).await else { continue };
            if found.see(contents).is_some() {
                tracing::info!("a token or certificate file changed");
                self.reread();
            }
        }
    }
}

fn contents(paths: &[String]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).ok()).collect()
}
