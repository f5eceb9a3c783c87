//! Who may report for which POP, and who may read and change the rule set.

pub mod credentials;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::config::token::TokenSource;
use credentials::{Credential, Credentials, Pops, Role, Scope};

/// The tokens for reports, and those of operators.
#[derive(Debug)]
pub struct Access {
    pops_source: TokenSource,
    admins_source: TokenSource,
    held: RwLock<Held>,
    /// What everybody has where no token is set.
    anyone: Option<Arc<Credential<Pops>>>,
}

#[derive(Clone, Debug)]
struct Held {
    pops: Arc<Credentials<Pops>>,
    admins: Arc<Credentials<Role>>,
}

impl Held {
    fn overlap(&self) -> Result<(), String> {
        let sentence = "admin_token: expected another one than any token of the reports, which POPs hold";
        if self.admins.overlaps(&self.pops) { Err(sentence.into()) } else { Ok(()) }
    }
}

/// Why an operator may not do what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are no tokens for operators.
    Closed,
    /// The token is missing or wrong.
    Unknown,
    /// The token of this name may only read.
    ReadOnly(String),
}

impl Access {
    /// Reads the tokens of both. Without tokens for POPs, anyone may report, unless `has_certificates`: then those may
    /// that show one. Fails with everything that is wrong, each with its setting.
    pub fn read(
        pops: &TokenSource,
        admins: &TokenSource,
        has_certificates: bool,
    ) -> Result<Self, Vec<String>> {
        let held = match (of("token_file", pops), of("admin_token_file", admins)) {
            (Ok(pops), Ok(admins)) => Held { pops, admins },
            (pops, admins) => return Err(pops.err().into_iter().chain(admins.err()).collect()),
        };
        held.overlap().map_err(|wrong| vec![wrong])?;
        let anyone = Credential { name: "anyone".into(), scope: Pops::whole() };
        let anyone = (*pops == TokenSource::None && !has_certificates).then(|| Arc::new(anyone));
        Ok(Self { pops_source: pops.clone(), admins_source: admins.clone(), held: RwLock::new(held), anyone })
    }

    /// What a request that carries `given` may report.
    pub fn reporter(&self, given: Option<&[u8]>) -> Option<Arc<Credential<Pops>>> {
        let token = given.and_then(|given| self.held().pops.find(given).cloned());
        token.or_else(|| self.anyone.clone())
    }

    /// The operator whose token a request carries, if it may do what needs this role.
    pub fn operator(&self, given: Option<&[u8]>, needed: Role) -> Result<Arc<Credential<Role>>, Refused> {
        let held = self.held();
        if held.admins.is_empty() {
            return Err(Refused::Closed);
        }
        let operator = given.and_then(|given| held.admins.find(given)).ok_or(Refused::Unknown)?;
        if operator.scope >= needed {
            Ok(Arc::clone(operator))
        } else {
            Err(Refused::ReadOnly(operator.name.clone()))
        }
    }

    /// Reads the files again. If a file is invalid, that is logged, and the previous tokens stay valid.
    pub fn reread(&self) {
        let before = self.held().clone();
        let held = Held {
            pops: reread("token_file", &self.pops_source, before.pops),
            admins: reread("admin_token_file", &self.admins_source, before.admins),
        };
        if let Err(wrong) = held.overlap() {
            tracing::error!("{wrong}; the previous tokens stay valid");
            return;
        }
        tracing::info!(pops = held.pops.len(), admins = held.admins.len(), "read the tokens again");
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
    }

    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tokens of `source`; what is wrong begins with the setting.
fn of<S: Scope>(setting: &str, source: &TokenSource) -> Result<Arc<Credentials<S>>, String> {
    Credentials::read(source).map(Arc::new).map_err(|wrong| format!("{setting}: {wrong}"))
}

fn reread<S: Scope>(setting: &str, source: &TokenSource, before: Arc<Credentials<S>>) -> Arc<Credentials<S>> {
    of(setting, source).unwrap_or_else(|wrong| {
        tracing::error!("{wrong}; the previous tokens stay valid");
        before
    })
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
        let of = |file: &tempfile::NamedTempFile| TokenSource::File(file.path().to_str().unwrap().into());
        let access = Access::read(&of(&pops), &of(&admins), false).unwrap();
        assert!(access.reporter(None).is_none() && access.reporter(Some(b"")).is_none());
        write(&admins, "another-token-of-admins\na-token-of-all-pops\n");
        access.reread();
        assert!(access.reporter(Some(b"a-token-of-all-pops")).is_some());
        let may_change = |token: &[u8]| access.operator(Some(token), Role::Write).is_ok();
        assert!(!may_change(b"a-token-of-all-pops") && may_change(b"a-token-of-admins"));
    }
}
