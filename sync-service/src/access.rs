//! Access control: who may report for which POP, read or change the rule set, and use the gateway.

pub mod credentials;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};

use crate::config::{Config, TokenSource};
use credentials::{Credential, Credentials, GatewayApi, GatewayApis, PopPatterns, Role, Scope};

/// Tokens for reports, for operators, and for services that use the gateway.
#[derive(Debug)]
pub struct Access {
    sources: [TokenSource; 3],
    held: RwLock<Held>,
    /// Credential of every reporter if neither tokens nor client certificates are configured.
    anyone: Option<Arc<Credential<PopPatterns>>>,
}

#[derive(Clone, Debug)]
struct Held {
    pops: Arc<Credentials<PopPatterns>>,
    admins: Arc<Credentials<Role>>,
    checks: Arc<Credentials<GatewayApis>>,
}

impl Held {
    fn overlap(&self) -> Option<String> {
        if self.admins.overlaps(&self.pops) {
            return Some("admin_token: expected another one than any token of the reports, which POPs hold".into());
        }
        let overlaps = self.checks.overlaps(&self.pops) || self.checks.overlaps(&self.admins);
        overlaps.then(|| "check_token: expected another one than any token of the reports or of operators".into())
    }
}

/// Reason to refuse an operator or a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No operator tokens are set.
    Closed,
    /// The token is missing or wrong.
    Unknown,
    /// The token of this name may only read.
    ReadOnly(String),
    /// The token of this name is not for this endpoint of the gateway.
    Api(String, GatewayApi),
    /// No tokens are set for this endpoint of the gateway.
    NoTokens(GatewayApi),
}

impl Access {
    /// Reads all tokens. If there are none for POPs, anyone may report, or with `tls_client_ca_file` any client with a
    /// certificate. Returns all errors, each with its setting.
    pub(crate) fn read(config: &Config) -> Result<Self, Vec<String>> {
        let sources = [&config.token, &config.admin_token, &config.check_token].map(Clone::clone);
        let mut errors = Vec::new();
        let [pops, admins, checks] = &sources;
        let (pops, admins, checks) = (
            tokens("token_file", pops, &mut errors),
            tokens("admin_token_file", admins, &mut errors),
            tokens("check_token_file", checks, &mut errors),
        );
        let (Some(pops), Some(admins), Some(checks)) = (pops, admins, checks) else { return Err(errors) };
        let held = Held { pops, admins, checks };
        if let Some(wrong) = held.overlap() {
            return Err(vec![wrong]);
        }
        let is_open = config.token == TokenSource::None && config.tls_client_ca_file.is_none();
        let anyone = is_open.then(|| Arc::new(Credential { name: "anyone".into(), scope: PopPatterns::whole() }));
        Ok(Self { sources, held: RwLock::new(held), anyone })
    }

    /// Credential for reports that matches the token `given` with a request.
    pub fn reporter(&self, given: Option<&[u8]>) -> Option<Arc<Credential<PopPatterns>>> {
        let token = given.and_then(|given| self.held().pops.find(given).cloned());
        token.or_else(|| self.anyone.clone())
    }

    /// Operator that matches the token `given` with a request, if the role includes `needed`.
    pub fn operator(&self, given: Option<&[u8]>, needed: Role) -> Result<Arc<Credential<Role>>, Refused> {
        let held = self.held();
        if held.admins.len() == 0 {
            return Err(Refused::Closed);
        }
        let operator = given.and_then(|given| held.admins.find(given)).ok_or(Refused::Unknown)?;
        if operator.scope >= needed { Ok(Arc::clone(operator)) } else { Err(Refused::ReadOnly(operator.name.clone())) }
    }

    /// Credential that matches the token `given` with a request, if it may use this endpoint of the gateway. If no
    /// tokens are set, checks need none, and the result is `None`; limits named by the caller always need a token.
    pub(crate) fn asker(
        &self,
        given: Option<&[u8]>,
        api: GatewayApi,
    ) -> Result<Option<Arc<Credential<GatewayApis>>>, Refused> {
        let held = self.held();
        if held.checks.len() == 0 {
            return if api == GatewayApi::Check { Ok(None) } else { Err(Refused::NoTokens(api)) };
        }
        let asker = given.and_then(|given| held.checks.find(given)).ok_or(Refused::Unknown)?;
        if asker.scope.0.contains(&api) {
            Ok(Some(Arc::clone(asker)))
        } else {
            Err(Refused::Api(asker.name.clone(), api))
        }
    }

    /// True if checks at the gateway need a token.
    pub(crate) fn has_checks(&self) -> bool {
        self.held().checks.len() > 0
    }

    /// True if several tokens for the gateway are set.
    pub(crate) fn has_askers(&self) -> bool {
        self.held().checks.len() > 1
    }

    pub(crate) fn knows(&self, given: Option<&[u8]>) -> bool {
        let Held { pops, admins, checks } = &*self.held();
        let is_known =
            |given| pops.find(given).is_some() || admins.find(given).is_some() || checks.find(given).is_some();
        given.is_some_and(is_known)
    }

    /// Reads the files again. Logs invalid files, whose previous tokens stay valid.
    pub(crate) fn reread(&self) {
        let (before, mut errors) = (self.held().clone(), Vec::new());
        let [pops, admins, checks] = &self.sources;
        let held = Held {
            pops: tokens("token_file", pops, &mut errors).unwrap_or(before.pops),
            admins: tokens("admin_token_file", admins, &mut errors).unwrap_or(before.admins),
            checks: tokens("check_token_file", checks, &mut errors).unwrap_or(before.checks),
        };
        let overlap = held.overlap();
        for wrong in errors.iter().chain(&overlap) {
            tracing::error!("{wrong}; the previous tokens stay valid");
        }
        if overlap.is_none() {
            let (pops, admins, checks) = (held.pops.len(), held.admins.len(), held.checks.len());
            tracing::info!(pops, admins, checks, "read the tokens again");
            *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
        }
    }

    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens of `source`. If they are invalid, adds an error that begins with the setting, and returns `None`.
fn tokens<S: Scope>(setting: &str, source: &TokenSource, errors: &mut Vec<String>) -> Option<Arc<Credentials<S>>> {
    let read = Credentials::read(source).map(Arc::new);
    read.map_err(|wrong| errors.push(format!("{setting}: {wrong}"))).ok()
}

/// Token that a request carries; the scheme's case does not matter (RFC 9110, 11.1).
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

pub(crate) const EXPECTED_HOST: &str = "expected a host of this listener's own: a loopback address, localhost or a \
    name without a dot. Set a token (token_file, check_token_file) to have it asked by other names";

/// Hosts that a listener answers to.
///
/// A web page can make a browser send requests to a loopback address under a name of the page's own, and then read the
/// responses (DNS rebinding). The browser sends that name as the host. So a loopback listener without tokens answers to
/// its own names only: its addresses, `localhost`, and names without a dot, which no page has. POPs use a cluster name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowedHosts {
    is_bounded: bool,
}

impl AllowedHosts {
    /// Hosts of a listener at `address`; `needs_token` is true if all of its data needs a token.
    pub(crate) fn of(address: SocketAddr, needs_token: bool) -> Self {
        Self { is_bounded: address.ip().is_loopback() && !needs_token }
    }

    /// True if all hosts of a request are the listener's own, or it has none: browsers always send a host.
    pub(crate) fn are_own(self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = headers.get_all(HOST).iter().map(|host| host.to_str().ok());
        let mut hosts = uri.authority().map(|authority| Some(authority.as_str())).into_iter().chain(named);
        !self.is_bounded || hosts.all(|host| host.is_some_and(is_own))
    }
}

/// True if `host`, with or without a port, is a loopback address or a name that no web page has.
fn is_own(host: &str) -> bool {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (rest.is_empty() || rest.starts_with(':')) && is_loopback(address);
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name);
    let (_, top) = name.rsplit_once('.').unwrap_or(("", name));
    is_loopback(name) || top.eq_ignore_ascii_case("localhost") || !name.contains('.')
}

fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(uri: &str, hosts: &[&str]) -> bool {
        let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap())).collect();
        let listener = AllowedHosts::of(([127, 0, 0, 1], 7878).into(), false);
        listener.are_own(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_loopback_listener_without_a_token_needs_its_own_name() {
        for own in
            ["127.0.0.1:7878", "127.0.0.2", "[::1]:7878", "localhost", "LOCALHOST:80", "a.localhost.", "weir_sync"]
        {
            assert!(asks("/", &[own]), "{own}");
        }
        for other in ["evil.example", "evil.example:7878", "10.0.0.1", "[2001:db8::1]", "localhost.evil.example", "a.b"]
        {
            assert!(!asks("/", &[other]), "{other}");
            assert!(!asks("/", &["localhost", other]) && !asks(&format!("http://{other}/"), &["localhost"]), "{other}");
        }
        assert!(asks("/", &[]), "as no browser asks");
        for (address, needs_token) in [([127, 0, 0, 1], true), ([10, 0, 0, 1], false)] {
            let headers = [(HOST, "evil.example".parse().unwrap())].into_iter().collect();
            assert!(AllowedHosts::of((address, 7878).into(), needs_token).are_own(&Uri::from_static("/"), &headers));
        }
    }
}
