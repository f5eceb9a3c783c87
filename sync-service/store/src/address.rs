//! Addresses of Redis, parsed from the setting `--store`.
//!
//! | form | meaning |
//! |---|---|
//! | `redis://[user:password@]host[:port][/database]` | one server |
//! | `unix:///run/redis.sock[?user=..&pass=..&db=..]` | one server, on this machine |
//! | `redis+cluster://[user:password@]host[:port],host[:port]` | the cluster that has these nodes |
//! | `redis+sentinel://[user:password@]host[:port],host[:port]/master[/database]` | one server, named by sentinels |
//!
//! `rediss` is TLS, and `valkey` and `valkeys` are the same as `redis` and `rediss`, alone and before a `+`.

use std::collections::BTreeMap;
use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use url::Url;

const EXPECTED: &str = "expected `memory`, redis://[user:password@]host[:port][/database], \
                        redis+cluster://host[:port],host[:port], redis+sentinel://host[:port],host[:port]/master-name, \
                        each with rediss for TLS, or unix:///path/to/socket";
const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

#[derive(Clone, Debug)]
pub struct Address {
    scheme: String,
    pub(super) kind: Discovery,
    /// Servers or sentinels; empty for a socket.
    pub(super) nodes: Vec<Node>,
    pub(super) info: ConnectionInfo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Discovery {
    One,
    Cluster,
    /// Sentinels return the address of the master with this name.
    Sentinel(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub host: String,
    pub port: u16,
}

impl Node {
    pub(super) fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses `host:port`; an IPv6 address may stand in brackets.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (!host.is_empty()).then_some(Self::new(host, port.parse().ok()?))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Map from the addresses that cluster nodes or sentinels announce to those under which they are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMap(pub(super) BTreeMap<Node, Node>);

impl NodeMap {
    /// Parses `announced=reached` pairs, separated by commas; each is a host and a port.
    pub fn read(text: &str) -> Result<Self, String> {
        let expected = |pair: &str| {
            format!("expected pairs of `announced:port=reached:port`, separated by commas, found `{}`", pair.trim())
        };
        let pair = |pair: &str| {
            let (announced, reached) = pair.split_once('=').ok_or_else(|| expected(pair))?;
            let node = |text: &str| Node::read(text.trim()).ok_or_else(|| expected(pair));
            Ok((node(announced)?, node(reached)?))
        };
        text.split(',').map(pair).collect::<Result<_, _>>().map(Self)
    }
}

impl Address {
    /// Parses a URL. The error contains the expected forms and not the text, which may contain a password.
    pub fn read(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or(EXPECTED)?;
        if matches!(scheme, "unix" | "redis+unix" | "valkey+unix") {
            let info = info(text)?;
            return Ok(Self { scheme: scheme.into(), kind: Discovery::One, nodes: Vec::new(), info });
        }
        let (base, role) = scheme.split_once('+').unwrap_or((scheme, ""));
        if !matches!(base, "redis" | "rediss" | "valkey" | "valkeys") {
            return Err(EXPECTED.into());
        }
        check_signs(rest)?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (kind, path, port) = match role {
            "" => (Discovery::One, path.to_owned(), PORT),
            "cluster" if matches!(path, "" | "/" | "/0") => (Discovery::Cluster, String::new(), PORT),
            "cluster" => return Err(format!("{EXPECTED}; a cluster has no databases")),
            "sentinel" => {
                let (master, path) = master(path)?;
                (Discovery::Sentinel(master), path, SENTINEL_PORT)
            }
            _ => return Err(EXPECTED.into()),
        };
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        let one = |host: &str| {
            let text = format!("{base}://{user}{host}{path}");
            let has_port = Url::parse(&text).is_ok_and(|url| url.port().is_some());
            let info = info(&text)?;
            let node = match info.addr() {
                ConnectionAddr::Tcp(host, own) | ConnectionAddr::TcpTls { host, port: own, .. } => {
                    Node::new(host, if has_port { *own } else { port })
                }
                _ => return Err(EXPECTED.to_owned()),
            };
            Ok((node, info))
        };
        let hosts = hosts.split(',').map(one).collect::<Result<Vec<_>, _>>()?;
        if kind == Discovery::One && hosts.len() > 1 {
            return Err(format!(
                "{EXPECTED}; several servers are those of a cluster (redis+cluster://) or sentinels (redis+sentinel://)"
            ));
        }
        let info = hosts.first().map(|(_, info)| info.clone()).ok_or(EXPECTED)?;
        let nodes = hosts.into_iter().map(|(node, _)| node).collect();
        Ok(Self { scheme: scheme.into(), kind, nodes, info })
    }

    pub fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    pub fn has_sentinels(&self) -> bool {
        matches!(self.kind, Discovery::Sentinel(_))
    }

    pub fn has_password(&self) -> bool {
        self.info.redis_settings().password().is_some()
    }

    pub(super) fn info_of(&self, Node { host, port }: &Node) -> ConnectionInfo {
        let (host, port) = (host.clone(), *port);
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.info.clone().set_addr(addr)
    }
}

impl fmt::Display for Address {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes.iter().map(Node::to_string).collect();
        write!(f, "{}://{}", self.scheme, nodes.join(","))?;
        if let ConnectionAddr::Unix(path) = self.info.addr() {
            path.display().fmt(f)?;
        }
        if let Discovery::Sentinel(master) = &self.kind {
            write!(f, "/{master}")?;
        }
        let db = self.info.redis_settings().db();
        if db == 0 { Ok(()) } else { write!(f, "/{db}") }
    }
}

fn info(text: &str) -> Result<ConnectionInfo, String> {
    let because = |problem: &dyn fmt::Display| format!("{EXPECTED} ({problem})");
    let url = Url::parse(text).map_err(|error| because(&error))?;
    url.into_connection_info().map_err(|error| because(&error))
}

/// Splits the master's name off the beginning of `path`.
fn master(path: &str) -> Result<(String, String), String> {
    let rest = path.strip_prefix('/').unwrap_or_default();
    let (name, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if name.is_empty() {
        return Err(format!("{EXPECTED}; the name of the master is missing, which sentinels know it by"));
    }
    Ok((name.to_owned(), rest.to_owned()))
}

/// Refuses an `@` after the end of the host: then a part of the password was taken for the host.
fn check_signs(rest: &str) -> Result<(), String> {
    let Some(at) = rest.find(['/', '?', '#']) else { return Ok(()) };
    let (_, after) = rest.split_at(at);
    if !after.contains('@') {
        return Ok(());
    }
    let sign = after.chars().next().unwrap_or_default();
    Err(format!(
        "{EXPECTED}; `{sign}` stands in the user or the password, whose special characters are percent-encoded: `/` as \
         %2F, `?` as %3F, `#` as %23, `%` as %25"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_where_it_is_and_no_secret() {
        for (text, shown) in [
            ("redis://redis.internal", "redis://redis.internal:6379"),
            ("valkeys://weir:pa55@redis.internal:6380/2", "valkeys://redis.internal:6380/2"),
            ("redis://[::1]:7000/", "redis://[::1]:7000"),
            ("unix:///run/redis.sock?user=weir&pass=pa55&db=3", "unix:///run/redis.sock/3"),
            ("redis+cluster://weir:pa55@a,b:7000/", "redis+cluster://a:6379,b:7000"),
            ("rediss+sentinel://weir:p,a@55@a,b:7,[::1]/main/4", "rediss+sentinel://a:26379,b:7,[::1]:26379/main/4"),
        ] {
            assert_eq!(Address::read(text).map(|address| address.to_string()).as_deref(), Ok(shown));
        }
    }

    #[test]
    fn unreadable_addresses_are_refused_without_repeating_them() {
        for (text, expected) in [
            ("redis://weir:pa55@a,b", "redis+sentinel://"),
            ("redis+sentinel://weir:pa55@a,b", "name of the master"),
            ("redis+sentinel://weir:pa55@a,b/main/two", "database"),
            ("redis+sentinel://weir:pa55@a,,b/main", "host"),
            ("redis+cluster://weir:pa55@a,b/1", "no databases"),
            ("redis+socket://weir:pa55@a", "expected `memory`"),
            ("unix://run/pa55.sock", "expected `memory`"),
            ("redis://weir:pa#55@a", "`#` stands in"),
            ("redis://weir:pa?55@a", "`?` stands in"),
        ] {
            let error = Address::read(text).map(|_| ()).expect_err(text);
            assert!(error.contains(expected) && !error.contains("55"), "{text}: {error}");
        }
    }

    #[test]
    fn announced_addresses_lead_to_others() {
        let NodeMap(map) =
            NodeMap::read("10.0.0.1:6379=redis-1.internal:7001, [fe80::1]:6379=redis-2.internal:7002").unwrap();
        assert_eq!(map.get(&Node::new("10.0.0.1", 6379)), Some(&Node::new("redis-1.internal", 7001)));
        assert_eq!(map.get(&Node::new("fe80::1", 6379)), Some(&Node::new("redis-2.internal", 7002)));
        assert_eq!(map.get(&Node::new("10.0.0.2", 6379)), None);
        for bad in ["", "a:1", "a:1=b", "a=b:1", "a:1=b:2,"] {
            assert!(NodeMap::read(bad).unwrap_err().contains("expected pairs"), "{bad}");
        }
    }

    #[test]
    fn the_user_and_the_password_are_decoded() {
        let address = Address::read("redis+sentinel://we%40ir:p%23%2C@a,b/main").expect("it is one");
        let settings = address.info_of(&Node::new("b", 1)).redis_settings().clone();
        assert_eq!((settings.username(), settings.password()), (Some("we@ir"), Some("p#,")));
        assert_eq!(address.kind, Discovery::Sentinel("main".into()));
    }
}
