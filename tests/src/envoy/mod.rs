//! A real Envoy, started for one test.

mod admin;
mod setup;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::artefact;
use crate::client::Client;
use crate::process::Process;
use crate::wait::until;

use admin::Admin;
pub(crate) use setup::{CONNECTION_MANAGER, cluster, listener, native_filter, protocol, tcp, wasm_filter};
pub use setup::{Host, Setup, router, text};

/// Envoy's log lines of a filter that died: its own last words, then the host's.
pub(crate) const FAULTS: [&str; 3] = ["panicked at", "failed: Uncaught", "in-VM backtrace"];

/// A running Envoy. Dropping it ends it, and fails the test if a VM of the filter died: the failure
/// policy starts a new one and the next request hardly shows it.
pub struct Envoy {
    // Before the folder: the process ends first, then its files go.
    process: Process,
    admin: Admin,
    edge: SocketAddr,
    setup: Setup,
    forgiven: bool,
    folder: TempDir,
}

impl Envoy {
    /// Starts it and waits until its workers accept connections.
    pub async fn start(setup: Setup) -> Self {
        let folder = folder();
        let mut process = spawn(&setup, folder.path());
        let admin = Admin::at(&admin_file(folder.path()), &mut process).await;
        let edge = until("Envoy's listener", async || {
            process.assert_alive();
            admin.listener().await
        })
        .await;
        Self { process, admin, edge, setup, forgiven: false, folder }
    }

    /// Starts it, and waits until its weir-sync has answered a few reports.
    pub async fn in_touch(setup: Setup) -> Self {
        let edge = Self::start(setup).await;
        edge.counter_grows("weir.sync.answered", 4).await;
        edge
    }

    /// Starts it, waits until it ends by itself, and returns its exit status and output.
    pub async fn start_refused(setup: Setup) -> (ExitStatus, String) {
        let folder = folder();
        let mut process = spawn(&setup, folder.path());
        let status = until("Envoy to refuse to start", async || process.exited()).await;
        (status, process.log())
    }

    /// A new client of the listener.
    pub fn client(&self) -> Client {
        Client::new(self.edge)
    }

    /// So many clients of the listener.
    pub fn clients(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.client()).collect()
    }

    /// Replaces the configuration of the filter, by renaming a new listener file over the old one.
    /// Envoy's stats show if it accepted it.
    pub fn reconfigure(&mut self, plugin: Value) {
        assert!(self.setup.is_from_file, "only a listener from a file can change");
        self.setup.plugin = Some(plugin);
        write_listener(&self.setup, self.folder.path());
    }

    /// Gives the module's filter another name, as [`Self::reconfigure`] gives it another configuration.
    pub fn rename_filter(&mut self, name: &str) {
        self.setup.filter_name = name.into();
        write_listener(&self.setup, self.folder.path());
    }

    /// A client of each listener.
    pub async fn clients_of_listeners(&self) -> Vec<Client> {
        let addresses = self.admin.listeners().await.unwrap_or_default();
        addresses.into_iter().map(|(_, address)| Client::new(address)).collect()
    }

    /// Marks a weir-sync as not to be used any more, as an operator does before it is stopped, and waits until it
    /// is so.
    pub async fn take_out(&mut self, weir_sync: SocketAddr) {
        self.use_weir_sync(weir_sync, false).await;
    }

    /// Uses it again.
    pub async fn put_back(&mut self, weir_sync: SocketAddr) {
        self.use_weir_sync(weir_sync, true).await;
    }

    async fn use_weir_sync(&mut self, address: SocketAddr, is_in_use: bool) {
        assert!(self.setup.is_from_file, "only addresses from a file can change");
        for (_, is_in_use_now) in self.setup.weir_syncs.iter_mut().filter(|(known, _)| *known == address) {
            *is_in_use_now = is_in_use;
        }
        write_weir_syncs(&self.setup, self.folder.path());
        let used = self.setup.weir_syncs.iter().filter(|(_, is_in_use)| *is_in_use).count() as u64;
        until(&format!("{used} weir-syncs to be in use"), async || {
            (self.stat("cluster.weir-sync.membership_healthy").await == Some(used)).then_some(())
        })
        .await;
    }

    /// A counter or gauge of Envoy's; `None` until it exists.
    pub async fn stat(&self, name: &str) -> Option<u64> {
        self.admin.stat(name).await
    }

    /// The lines of its Prometheus page that begin with `name`.
    pub async fn prometheus(&self, name: &str) -> Vec<String> {
        let page = self.admin.page("/stats/prometheus").await.unwrap_or_default();
        page.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    /// A counter of the filter's; 0 until it exists. The filter hands its counts over at its tick, so a
    /// request shows some time after its answer.
    pub async fn counter(&self, name: &str) -> u64 {
        self.stat(&self.setup.host.stat(name)).await.unwrap_or_default()
    }

    /// Waits until a counter of the filter's is at least `least`.
    pub async fn counter_reaches(&self, name: &str, least: u64) {
        self.stat_reaches(&self.setup.host.stat(name), least).await;
    }

    /// Waits until a counter of the filter's has grown by `more` from what it is now.
    pub async fn counter_grows(&self, name: &str, more: u64) {
        self.counter_reaches(name, self.counter(name).await + more).await;
    }

    /// Waits until these counters of the filter's add up to `total`, and gives them.
    pub async fn counters_of<const N: usize>(&self, names: [&str; N], total: u64) -> [u64; N] {
        until(&format!("{names:?} to add up to {total}"), async || {
            let mut counts = [0; N];
            for (count, name) in counts.iter_mut().zip(names) {
                *count = self.counter(name).await;
            }
            (counts.iter().sum::<u64>() >= total).then_some(counts)
        })
        .await
    }

    /// Waits until a stat of Envoy's is at least `least`.
    pub async fn stat_reaches(&self, name: &str, least: u64) {
        until(&format!("{name} to reach {least}"), async || self.stat(name).await.filter(|count| *count >= least))
            .await;
    }

    /// The connections that each worker has accepted on the listener, ever.
    pub async fn connections_per_worker(&self) -> Vec<u64> {
        let (address, mut counts) = (self.edge, vec![]);
        for worker in 0..self.setup.concurrency {
            // Stat names know no colon; the listener is named after the port it asked for.
            let name = |port| format!("listener.{}_{port}.worker_{worker}.downstream_cx_total", address.ip());
            let count = self.stat(&name(0)).await;
            counts.push(count.or(self.stat(&name(address.port())).await).unwrap_or_default());
        }
        counts
    }

    /// The host of its filter.
    pub fn host(&self) -> Host {
        self.setup.host
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until the access log has `count` lines, and gives them.
    pub async fn access_log(&self, count: usize) -> Vec<String> {
        let path = setup::access_log_file(self.folder.path());
        until(&format!("{count} lines in the access log"), async || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
        .await
    }

    /// Its resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.process.resident_kib()
    }

    /// Stops it while its connections stay open, as a machine that gets no processor would.
    pub async fn freeze(&self) {
        self.process.freeze().await;
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Panics if it has ended.
    pub fn assert_alive(&mut self) {
        self.process.assert_alive();
    }

    /// Faults in the filter's VMs so far: a line per panic, trap and VM that was started anew.
    pub fn faults(&self) -> Vec<String> {
        let log = self.log();
        let lines = log.lines().filter(|line| FAULTS.iter().any(|fault| line.contains(fault)));
        let mut faults: Vec<String> = lines.map(str::to_owned).collect();
        match self.admin.stats_blocking("vm_reload") {
            Ok(stats) => {
                let reloads = stats.lines().filter(|line| line.contains("vm_reload") && !line.ends_with(": 0"));
                faults.extend(reloads.map(str::to_owned));
            }
            Err(e) => faults.push(format!("its stats cannot be read: {e}")),
        }
        faults
    }

    /// Lets the faults so far and later ones pass: the test expects them.
    pub fn forgive_faults(&mut self) {
        self.forgiven = true;
    }

    /// The address of its listener.
    pub fn address(&self) -> SocketAddr {
        self.edge
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // A test that fails already has its reason.
        if self.forgiven || thread::panicking() {
            return;
        }
        self.process.assert_alive();
        let faults = self.faults();
        assert!(faults.is_empty(), "a VM of the filter died:\n{}", faults.join("\n"));
    }
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("weir-envoy-").tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"))
}

fn admin_file(folder: &Path) -> PathBuf {
    folder.join("admin")
}

fn spawn(setup: &Setup, folder: &Path) -> Process {
    let bootstrap = folder.join("bootstrap.json");
    write(&bootstrap, &setup.bootstrap(folder));
    if setup.is_from_file {
        write_listener(setup, folder);
        write_weir_syncs(setup, folder);
    }
    let mut command = Command::new(artefact::envoy());
    command.arg("--config-path").arg(bootstrap).arg("--admin-address-path").arg(admin_file(folder));
    command.arg("--concurrency").arg(setup.concurrency.to_string());
    // Hot restart is what makes two Envoys on one machine get into each other's way.
    command.arg("--disable-hot-restart");
    let drain_seconds = setup.drain_seconds.to_string();
    command.args(["--drain-time-s", &drain_seconds, "--drain-strategy", "immediate"]);
    command.args(["--file-flush-interval-msec", "20"]);
    // Of Envoy itself what went wrong, of the filter all it logs.
    command.args(["--log-level", "warning", "--component-log-level", "wasm:info,dynamic_modules:info"]);
    if setup.host == Host::Native {
        find_module(&mut command);
    }
    command.envs(setup.env.iter().map(|(name, value)| (name, value)));
    Process::spawn("Envoy", command, &folder.join("envoy.log"))
}

/// Tells this Envoy where the filter is that is a dynamic module.
pub(crate) fn find_module(command: &mut Command) {
    command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", artefact::filter_native().with_file_name(""));
}

fn write_listener(setup: &Setup, folder: &Path) {
    replace(&setup::listener_file(folder), &setup.listener_found(folder));
}

fn write_weir_syncs(setup: &Setup, folder: &Path) {
    replace(&setup::weir_syncs_file(folder), &setup.weir_syncs_found());
}

/// Renames a new file over the old one, as Envoy wants it.
fn replace(file: &Path, value: &Value) {
    let fresh = file.with_extension("new");
    write(&fresh, value);
    fs::rename(&fresh, file).unwrap_or_else(|e| panic!("cannot replace {}: {e}", file.display()));
}

fn write(path: &Path, value: &Value) {
    fs::write(path, value.to_string()).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}
