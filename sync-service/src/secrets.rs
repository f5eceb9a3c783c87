//! What is read from files of secrets: at the start, when a file changes, and at SIGHUP.

use std::sync::Arc;
use std::{fmt, fs};

use tokio::task::spawn_blocking;

use crate::access::Access;
use crate::config::Config;
use crate::settling::{Settling, ticks};

/// Everything that comes from files of secrets.
pub struct Secrets {
    /// The tokens.
    pub access: Access,
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
        let paths = [config.token.path(), config.admin_token.path()];
        let paths: Vec<_> = paths.into_iter().flatten().map(str::to_owned).collect();
        let first = contents(&paths);
        Ok(Self { access: Access::read(&config.token, &config.admin_token)?, paths, first })
    }

    /// Reads the files again. What is no good is logged, and what was before stays.
    pub fn reread(&self) {
        self.access.reread();
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
