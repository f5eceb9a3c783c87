//! The tokens that requests must carry; those from files can be read again while weir-sync runs.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use subtle::{Choice, ConstantTimeEq};

use crate::config::{Config, Secret, Token};

/// The tokens for reports and for changes of the rule set.
#[derive(Debug)]
pub struct Tokens(RwLock<Held>);

#[derive(Clone, Debug)]
struct Held {
    reports: Token,
    admin: Token,
}

impl Tokens {
    /// The tokens of `config`, which is loaded.
    pub fn of(config: &Config) -> Self {
        Self(RwLock::new(Held { reports: config.token.clone(), admin: config.admin_token.clone() }))
    }

    /// Whether a request that carries `given` may report; any may if there is no token.
    pub fn let_report(&self, given: Option<&[u8]>) -> bool {
        let held = self.held();
        held.reports == Token::None || is(&held.reports, given)
    }

    /// Whether there is a token for changes of the rule set; without one there are none.
    pub fn have_admin(&self) -> bool {
        self.held().admin != Token::None
    }

    /// Whether a request that carries `given` may change the rule set.
    pub fn let_change(&self, given: Option<&[u8]>) -> bool {
        is(&self.held().admin, given)
    }

    /// Reads the files again. A file that is no good is logged, and its tokens from before stay.
    pub fn reread(&self) {
        let before = self.held().clone();
        let held = Held {
            reports: reread(&before.reports, "token_file"),
            admin: reread(&before.admin, "admin_token_file"),
        };
        if held.admin.overlaps(&held.reports) {
            tracing::error!(
                "a token is in the token file and in the admin token file now; those from before stay"
            );
            return;
        }
        let changed = held.reports != before.reports || held.admin != before.admin;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = held;
        tracing::info!(changed, "the token files were read again");
    }

    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reread(token: &Token, setting: &str) -> Token {
    if let Some(warning) = token.warning() {
        tracing::warn!(setting, "{warning}");
    }
    token.reread().unwrap_or_else(|wrong| {
        tracing::error!(setting, "{wrong}; what it said before stays");
        token.clone()
    })
}

/// Takes as long for a wrong first letter as for a wrong last one, in any of several tokens.
fn is(token: &Token, given: Option<&[u8]>) -> bool {
    let Some(given) = given else { return false };
    let is_any = |found, secret: &Secret| found | given.ct_eq(secret.expose().as_bytes());
    token.secrets().iter().fold(Choice::from(0), is_any).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_every_pop_holds_never_comes_to_change_rules() {
        let (pops, admins) =
            (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let write = |file: &tempfile::NamedTempFile, text: &str| fs::write(file.path(), text).unwrap();
        write(&pops, "a-token-of-all-pops");
        write(&admins, "a-token-of-admins");
        let of =
            |file: &tempfile::NamedTempFile| Token::File(file.path().to_str().unwrap().into(), Vec::new());
        let tokens = Tokens(RwLock::new(Held { reports: of(&pops), admin: of(&admins) }));
        assert!(!tokens.let_report(None) && !tokens.let_report(Some(b"")), "nobody, before it is read");
        tokens.reread();
        write(&admins, "another-token-of-admins\na-token-of-all-pops\n");
        tokens.reread();
        assert!(tokens.let_report(Some(b"a-token-of-all-pops")));
        assert!(
            !tokens.let_change(Some(b"a-token-of-all-pops")) && tokens.let_change(Some(b"a-token-of-admins"))
        );
    }
}
