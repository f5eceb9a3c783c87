//! A real weir-sync, started for one test, at a port that it keeps when it is killed and started again.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::client::{Ask, Client};
use crate::process::Process;
use crate::wait::until;
use crate::{artefact, port};

/// The token that the tests' points of presence send.
pub const TOKEN: &str = "a-token-of-the-tests";
/// The token that changes of the rule set carry.
pub const ADMIN_TOKEN: &str = "an-admin-token-of-the-tests";

/// A weir-sync. Dropping it ends it.
pub struct WeirSync {
    process: Process,
    port: u16,
    binary: PathBuf,
    region: String,
    store: String,
    arguments: Vec<String>,
    folder: TempDir,
}

impl WeirSync {
    /// Starts that of `region`, with `store` (`memory`, or a `redis://` address), and waits until it is up.
    pub async fn start(region: &str, store: &str) -> Self {
        Self::start_with(region, store, &[]).await
    }

    /// The same, with these arguments more.
    pub async fn start_with(region: &str, store: &str, arguments: &[&str]) -> Self {
        let binary = artefact::weir_sync();
        let folder = tempfile::Builder::new().prefix("weir-sync-").tempdir();
        let folder = folder.unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let port = port::free();
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let process = spawn(&binary, port, region, store, &arguments, &folder);
        let (region, store) = (region.into(), store.into());
        let mut weir_sync = Self { process, port, binary, region, store, arguments, folder };
        weir_sync.up().await;
        weir_sync
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it as an operator would, and waits until it is gone.
    pub async fn end(&mut self) {
        self.process.end().await;
    }

    /// Starts it again where it was, and waits until it is up.
    pub async fn restart(&mut self) {
        self.process = spawn(&self.binary, self.port, &self.region, &self.store, &self.arguments, &self.folder);
        self.up().await;
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.process.resident_kib()
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The status of one of its pages, if it answers.
    pub async fn status_of(&self, path: &str) -> Option<u16> {
        Client::of_port(self.port).try_send(&Ask::get(path)).await.ok().map(|answer| answer.status)
    }

    /// A metric without labels, if it answers and there is one.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let page = Client::of_port(self.port).try_send(&Ask::get("/metrics")).await.ok()?.text();
        let rows = page.lines().filter_map(|line| line.strip_prefix(name));
        // Whatever its labels.
        let row = rows.filter(|rest| rest.starts_with([' ', '{'])).find_map(|rest| rest.split(' ').next_back());
        row?.parse().ok()
    }

    /// Waits until a page answers with `status`.
    pub async fn answers(&mut self, path: &str, status: u16) {
        until(&format!("weir-sync to answer {path} with {status}"), async || {
            self.process.assert_alive();
            (self.status_of(path).await == Some(status)).then_some(())
        })
        .await;
    }

    async fn up(&mut self) {
        self.answers("/healthz", 200).await;
    }
}

fn spawn(binary: &Path, port: u16, region: &str, store: &str, arguments: &[String], folder: &TempDir) -> Process {
    let mut command = Command::new(binary);
    command.arg("--listen").arg(format!("127.0.0.1:{port}"));
    command.args(["--region", region, "--store", store]).args(arguments);
    // The Makefile's word for the binary is no setting of weir-sync's.
    command.env_remove("WEIR_SYNC_BIN").env("WEIR_SYNC_TOKEN", TOKEN);
    command.env("WEIR_SYNC_ADMIN_TOKEN", ADMIN_TOKEN);
    Process::spawn("weir-sync", command, &folder.path().join("weir-sync.log"))
}
