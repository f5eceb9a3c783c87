//! What is read from files of secrets: at the start, when a file changes, and at SIGHUP.

use std::sync::Arc;
use std::{fmt, fs};

use tokio::task::spawn_blocking;

use crate::access::Access;
use crate::config::Config;
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
        let tls = config.tls();
        let of_tls =
            tls.iter().flat_map(|files| [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()]);
        let of_tokens = [config.token.path(), config.admin_token.path()].into_iter().flatten();
        let paths: Vec<_> =
            of_tokens.chain(of_tls.flatten().map(String::as_str)).map(str::to_owned).collect();
        let first = contents(&paths);
        let has_certificates = config.tls_client_ca_file.is_some();
        let access = Access::read(&config.token, &config.admin_token, has_certificates);
        let (access, tls) = match (access, tls.map(Tls::read).transpose()) {
            (Ok(access), Ok(tls)) => (access, tls),
            (access, tls) => {
                return Err(access.err().into_iter().flatten().chain(tls.err()).collect());
            }
        };
        Ok(Self { access, tls, refusals: Refusals::default(), paths, first })
    }

    /// Reads the files again. What is no good is logged, and what was before stays.
    pub fn reread(&self) {
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
                tracing::info!("a file of secrets has changed");
                self.reread();
            }
        }
    }
}

fn contents(paths: &[String]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).ok()).collect()
}
