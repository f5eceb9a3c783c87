//! Three sentinels, and a master and replicas that they watch.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::port;
use crate::process::Process;
use crate::redis::{self as server, OPERATOR, Redis, in_a_group};
use crate::wait::until;

/// The sentinels' name of the master.
pub const MASTER: &str = "main";
const SENTINELS: usize = 3;

/// The permissions of weir-sync's user at sentinels in docs/redis.md: the rules in its line `ACL SETUSER`.
pub fn acl() -> &'static str {
    let page = include_str!("../../docs/redis.md");
    let rules = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER weir on >SENTINEL-PASSWORD "));
    rules.unwrap_or_else(|| panic!("docs/redis.md has no line that makes weir-sync's user at sentinels"))
}

/// The times that docs/redis.md gives sentinels. What it leaves out has Redis's defaults here, too.
fn times() -> String {
    let page = include_str!("../../docs/redis.md");
    let line = |name| page.lines().find(|line| line.starts_with(&format!("sentinel {name} main ")));
    let [down_after, timeout] = ["down-after-milliseconds", "failover-timeout"]
        .map(|name| line(name).unwrap_or_else(|| panic!("docs/redis.md: expected a line \"sentinel {name} main\"")));
    let timeout_ms = timeout.rsplit(' ').next().and_then(|ms| ms.parse().ok());
    assert!(timeout_ms >= Some(10_000), "docs/redis.md: with less, busy sentinels fail over twice: {timeout}");
    format!("{down_after}\n{timeout}")
}

/// The user that guarded sentinels know beside [`OPERATOR`], under [`acl`], and its password.
pub const WATCHER: (&str, &str) = ("watcher", "tower-of-babel");

/// A master and its replicas, and their sentinels. Dropping it ends all.
#[derive(Debug)]
pub struct Sentinels {
    /// The servers; the first is the master at first.
    pub servers: Vec<Redis>,
    watchers: Vec<(u16, Process)>,
    /// True if the sentinels have users of their own.
    is_guarded: bool,
    _folder: TempDir,
}

impl Sentinels {
    /// Starts all, with one replica, and waits until the sentinels know one another and it is in step.
    pub async fn start() -> Self {
        Self::start_all(1, false).await
    }

    /// The same with sentinels that know nobody but users of their own (see [`WATCHER`]).
    pub async fn start_guarded() -> Self {
        Self::start_all(1, true).await
    }

    /// As [`Sentinels::start`], with this number of replicas.
    pub async fn start_with(replicas: usize) -> Self {
        Self::start_all(replicas, false).await
    }

    async fn start_all(replicas: usize, is_guarded: bool) -> Self {
        let master = Redis::start_with(in_a_group(&[])).await;
        let port = master.port().to_string();
        let mut servers = vec![master];
        for _ in 0..replicas {
            servers.push(Redis::start_with(in_a_group(&["--replicaof", "127.0.0.1", &port])).await);
        }
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let watchers = (0..SENTINELS)
            .map(|number| sentinel(&folder.path().join(number.to_string()), servers[0].port(), is_guarded))
            .collect();
        let group = Self { servers, watchers, is_guarded, _folder: folder };
        for (port, _) in &group.watchers {
            until("the sentinels to know all", async || group.knows_all(*port).await.then_some(())).await;
        }
        group
    }

    /// weir-sync's URL for them.
    pub fn url(&self) -> String {
        Self::url_at(&self.addresses())
    }

    /// The same if the sentinels are reached at these addresses.
    pub fn url_at(sentinels: &[SocketAddr]) -> String {
        let hosts: Vec<_> = sentinels.iter().map(SocketAddr::to_string).collect();
        format!("redis+sentinel://weir-user:correct-horse@{}/{MASTER}", hosts.join(","))
    }

    /// The addresses of the sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.watchers.iter().map(|(port, _)| (Ipv4Addr::LOCALHOST, *port).into()).collect()
    }

    /// Ends one of the sentinels.
    pub fn kill_a_sentinel(&mut self) {
        if let Some((_, process)) = self.watchers.first_mut() {
            process.kill();
        }
    }

    /// The server that a majority of the sentinels takes for the master.
    pub async fn master(&self) -> Option<usize> {
        let mut named_ports = Vec::new();
        for (port, _) in &self.watchers {
            let Ok(mut connection) = self.connect(*port).await else { continue };
            let mut command = redis::cmd("SENTINEL");
            command.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER);
            let Ok((_, port)) = command.query_async::<(String, u16)>(&mut connection).await else { continue };
            named_ports.push(port);
        }
        let is_named = |port| named_ports.iter().filter(|named| **named == port).count() > SENTINELS / 2;
        self.servers.iter().position(|server| is_named(server.port()))
    }

    /// Has one of the sentinels make the replica the master, while both live.
    pub async fn fail_over_by(&self, sentinel: usize) {
        let (port, _) = &self.watchers[sentinel];
        // It takes no replica whose last message is too old.
        until("the sentinel to begin a fail-over", async || {
            let mut connection = self.connect(*port).await.ok()?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("FAILOVER").arg(MASTER).query_async::<()>(&mut connection).await.ok()
        })
        .await;
    }

    /// True if the master that the sentinels name, another than `gone`, has a replica that confirms what it writes.
    pub async fn is_in_step(&self, gone: usize) -> bool {
        match self.master().await.filter(|master| *master != gone) {
            Some(master) => self.servers[master].is_confirmed_by(1).await,
            None => false,
        }
    }

    async fn connect(&self, port: u16) -> redis::RedisResult<MultiplexedConnection> {
        let user = if self.is_guarded { format!("{OPERATOR}:{OPERATOR}@") } else { String::new() };
        redis::Client::open(format!("redis://{user}127.0.0.1:{port}"))?.get_multiplexed_async_connection().await
    }

    async fn knows_all(&self, port: u16) -> bool {
        let Ok(mut connection) = self.connect(port).await else { return false };
        let mut command = redis::cmd("INFO");
        let Ok(info) = command.arg("sentinel").query_async::<String>(&mut connection).await else {
            return false;
        };
        let (port, replicas) = (self.servers[0].port(), self.servers.len() - 1);
        info.contains(&format!("status=ok,address=127.0.0.1:{port},slaves={replicas},sentinels=3"))
    }
}

fn sentinel(folder: &Path, master: u16, is_guarded: bool) -> (u16, Process) {
    let port = port::free();
    let (watcher, password) = WATCHER;
    let users = format!(
        "user default off\nuser {OPERATOR} on >{OPERATOR} ~* &* +@all\nuser {watcher} on >{password} {}\n\
         sentinel sentinel-user {OPERATOR}\nsentinel sentinel-pass {OPERATOR}\n",
        acl()
    );
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
         sentinel auth-user {MASTER} {OPERATOR}\nsentinel auth-pass {MASTER} {OPERATOR}\n{}\n{}",
        folder.display(),
        times(),
        if is_guarded { users.as_str() } else { "" }
    );
    let file = folder.join("sentinel.conf");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, settings));
    written.unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
    let mut command = Command::new(server::binary());
    command.arg(file).arg("--sentinel");
    (port, Process::spawn("redis-sentinel", command, &folder.join("log")))
}
