//! A real Redis for one test: on a free port, in a folder of its own, without persistence if it is not asked for.
//!
//! Killed and started again it is at the same address, and empty, as a Redis without persistence is after a crash; an
//! append-only one has what it wrote.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};
use tempfile::TempDir;
use weir_budget::budget::BudgetId;
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::keys::RedisKeys;

use crate::port;
use crate::process::Process;
use crate::wait::until;

/// The permissions of weir-sync's user in docs/redis.md: the rules in its line `ACL SETUSER`.
pub fn acl() -> &'static str {
    let page = include_str!("../../docs/redis.md");
    let rules = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER weir on >PASSWORD "));
    rules.unwrap_or_else(|| panic!("docs/redis.md has no line that makes weir-sync's user"))
}

/// The name of a budget there, under the default prefix.
pub fn budget_key(id: &BudgetId) -> String {
    RedisKeys::new("weir").budget(id)
}

/// The name of a strict budget there.
pub fn escrow_key(refill_policy: RefillPolicy, id: &BudgetId) -> String {
    RedisKeys::new("weir").escrow(refill_policy, id)
}

/// The name of the file with the offset of its clock.
const AHEAD: &str = "ahead";
/// A `gettimeofday` that reads that file.
const OWN_CLOCK: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec true_now;
    char text[32] = {0};
    int file = open(getenv("AHEAD"), O_RDONLY);
    (void)zone;
    if (file >= 0) {
        if (read(file, text, sizeof(text) - 1) < 0) text[0] = 0;
        close(file);
    }
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &true_now);
    now->tv_sec = true_now.tv_sec + atol(text);
    now->tv_usec = true_now.tv_nsec / 1000;
    return 0;
}
"#;
/// Time for a reply to an operator: a busy machine takes seconds for one.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name of its socket.
const SOCKET: &str = "redis.sock";

/// The options of a Redis.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The user whom it knows; without one, its default user.
    pub user: Option<String>,
    /// That user's permissions, as in an ACL; by default [`acl`].
    pub acl: Option<String>,
    /// The password it asks for.
    pub password: Option<String>,
    /// Certificate and key (PEM); with them it accepts TLS only.
    pub tls: Option<(String, String)>,
    /// The certificate (PEM) that must have signed its clients'; without one it asks for none.
    pub client_ca: Option<String>,
    /// True if it keeps an append-only file, and writes it before each answer.
    pub append_only: bool,
    /// True if its clock can be set ahead (see [`Redis::set_ahead`]).
    pub has_own_clock: bool,
    /// Further settings: name and value in turn, names with their dashes.
    pub settings: Vec<String>,
}

/// A running Redis. Dropping it ends it.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    setup: Setup,
    folder: TempDir,
}

impl Redis {
    /// Starts one without password and TLS, and waits until it answers.
    pub async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    /// Starts one and waits until it takes connections.
    pub async fn start_with(setup: Setup) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-redis-").tempdir();
        let folder = folder.unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let port = port::free();
        let process = spawn(port, &setup, folder.path());
        let mut redis = Self { process, port, setup, folder };
        redis.up().await;
        redis
    }

    /// Its URL, with the user and the password if there are any.
    pub fn url(&self) -> String {
        let scheme = if self.setup.tls.is_some() { "rediss" } else { "redis" };
        let name = self.setup.user.as_deref().unwrap_or_default();
        let user = self.setup.password.as_ref().map(|password| format!("{name}:{password}@")).unwrap_or_default();
        format!("{scheme}://{user}127.0.0.1:{}", self.port)
    }

    /// Its address on this machine alone, without TLS.
    pub fn socket(&self) -> String {
        let name = self.setup.user.as_deref().map(|user| format!("user={user}"));
        let password = self.setup.password.as_deref().map(|password| format!("pass={password}"));
        let query: Vec<_> = name.into_iter().chain(password).collect();
        format!("unix://{}?{}", self.folder.path().join(SOCKET).display(), query.join("&"))
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Sets its clock this many seconds ahead of this machine's.
    pub fn set_ahead(&self, seconds: u64) {
        let file = self.folder.path().join(AHEAD);
        std::fs::write(&file, seconds.to_string()).unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was, with what it kept, and waits until it takes connections.
    pub async fn restart(&mut self) {
        self.process = spawn(self.port, &self.setup, self.folder.path());
        self.up().await;
    }

    /// Stops it from answering while its connections stay open, as a hung machine would.
    pub async fn freeze(&self) {
        self.process.freeze().await;
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// The value behind `row` in a section of `INFO`, up to a comma.
    pub async fn info<T: FromStr>(&self, section: &str, row: &str) -> T {
        let info = self.section(section).await;
        let value = info.lines().find_map(|line| line.strip_prefix(row)?.split(',').next()?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no `{row}` in: {info}"))
    }

    /// A section of `INFO`.
    pub async fn section(&self, section: &str) -> String {
        // Others may not ask.
        let mut connection = match self.setup.user {
            Some(_) => self.operator().await,
            None => self.connection().await,
        };
        let info: RedisResult<String> = redis::cmd("INFO").arg(section).query_async(&mut connection).await;
        info.unwrap_or_else(|e| panic!("Redis has no `INFO`: {e}"))
    }

    /// redis-cli's arguments to reach it over TLS, if it has TLS.
    pub fn tls_options(&self) -> Vec<String> {
        if self.setup.tls.is_none() {
            return Vec::new();
        }
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        ["--tls", "--cert", &file("certificate.pem"), "--key", &file("key.pem"), "--cacert", &file("ca.pem")]
            .map(str::to_owned)
            .to_vec()
    }

    /// A connection of the user that may do everything (see [`in_a_group`]), at the socket, where there is no TLS.
    pub async fn operator(&self) -> MultiplexedConnection {
        // It hangs up while it changes from master to replica.
        until("the Redis of this test to take a connection", async || self.try_operator().await.ok()).await
    }

    async fn try_operator(&self) -> RedisResult<MultiplexedConnection> {
        let socket = self.folder.path().join(SOCKET);
        let url = format!("unix://{}?user={OPERATOR}&pass={OPERATOR}", socket.display());
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&patient).await
    }

    /// True if this number of replicas confirms what this server writes (`WAIT`). A server that is made a replica hangs
    /// up.
    pub async fn is_confirmed_by(&self, replicas: u32) -> bool {
        let Ok(mut connection) = self.try_operator().await else { return false };
        let mut wait = redis::cmd("WAIT");
        let confirmed = wait.arg(replicas).arg(100).query_async::<u32>(&mut connection).await;
        confirmed.is_ok_and(|confirmed| confirmed >= replicas)
    }

    /// A connection of the test's own, to look at what is stored. Not over TLS.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap_or_else(|e| panic!("{}: {e}", self.port));
        let connection = client.get_multiplexed_async_connection().await;
        connection.unwrap_or_else(|e| panic!("cannot connect to the Redis of this test: {e}"))
    }

    async fn up(&mut self) {
        until("Redis to take connections", async || {
            self.process.assert_alive();
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.ok()
        })
        .await;
    }
}

fn spawn(port: u16, setup: &Setup, folder: &Path) -> Process {
    let mut command = Command::new(binary());
    command.args(["--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
    command.arg("--unixsocket").arg(folder.join(SOCKET));
    let is_kept = if setup.append_only { "yes" } else { "no" };
    command.args(["--appendfsync", "always", "--appendonly", is_kept]);
    command.args(&setup.settings);
    let password = setup.password.as_deref();
    match (&setup.user, password) {
        (Some(user), password) => {
            let secret = password.map_or("nopass".into(), |text| format!(">{text}"));
            command.args(["--user", user, "on", &secret]);
            command.args(setup.acl.as_deref().unwrap_or(acl()).split(' '));
            command.args(["--user", "default", "off"]);
        }
        (None, Some(password)) => {
            command.args(["--requirepass", password]);
        }
        (None, None) => {}
    }
    if setup.has_own_clock {
        command.env("LD_PRELOAD", own_clock(folder)).env("AHEAD", folder.join(AHEAD));
    }
    if let Some((certificate, key)) = &setup.tls {
        let (certificate_file, key_file) = (folder.join("certificate.pem"), folder.join("key.pem"));
        for (file, text) in [(&certificate_file, certificate), (&key_file, key)] {
            std::fs::write(file, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
        }
        match &setup.client_ca {
            None => command.args(["--tls-auth-clients", "no"]),
            Some(ca) => {
                let file = folder.join("ca.pem");
                std::fs::write(&file, ca).unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
                command.args(["--tls-auth-clients", "yes", "--tls-ca-cert-file"]).arg(file)
            }
        };
        command.args(["--port", "0", "--tls-port"]).arg(port.to_string());
        command.arg("--tls-cert-file").arg(certificate_file).arg("--tls-key-file").arg(key_file);
    } else {
        command.arg("--port").arg(port.to_string());
    }
    Process::spawn("redis-server", command, &folder.join("redis.log"))
}

/// Builds [`OWN_CLOCK`].
fn own_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, OWN_CLOCK).unwrap_or_else(|e| panic!("cannot write {}: {e}", source.display()));
    let mut command = Command::new("cc");
    let status = command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot compile with cc (Debian: apt-get install gcc)");
    library
}

/// A server under an ACL as in docs/redis.md that may be one of a group: a user of their own lets servers, sentinels
/// and tests do everything.
pub fn in_a_group(settings: &[&str]) -> Setup {
    let operator = ["--user", OPERATOR, "on", &format!(">{OPERATOR}"), "~*", "&*", "+@all"].map(str::to_owned);
    let mut all = operator.to_vec();
    all.extend(
        ["--masteruser", OPERATOR, "--masterauth", OPERATOR, "--repl-diskless-sync-delay", "0"].map(str::to_owned),
    );
    all.extend(settings.iter().map(|text| (*text).to_owned()));
    Setup { user: Some("weir-user".into()), password: Some("correct-horse".into()), settings: all, ..Setup::default() }
}

/// The name and the password of the user that may do everything (see [`in_a_group`]).
pub const OPERATOR: &str = "operator";

/// The server's binary: the one that `WEIR_REDIS` names, as in `make stores-valkey`, or the first `redis-server` in
/// `PATH`.
pub(crate) fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("WEIR_REDIS") {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("there is no redis-server: install it (Debian: apt-get install redis-server)"))
}
