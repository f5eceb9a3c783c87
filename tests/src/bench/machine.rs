//! The machine that the figures are of.

use std::fs;
use std::process::Command;
use std::thread;

use crate::artefact;

/// In one sentence: processor, CPUs, kernel, how busy it is.
pub fn name() -> String {
    sentence("")
}

/// The same with Envoy's version.
pub fn with_envoy() -> String {
    sentence(&format!(", Envoy {}", envoy()))
}

fn sentence(also: &str) -> String {
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg").split_whitespace().next().unwrap_or("?").to_owned();
    format!(
        "{}, {cpus} CPUs, Linux {}{also}; load average at the start {load}.",
        processor(),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

fn processor() -> String {
    let info = read("/proc/cpuinfo");
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|rest| rest.split_once(": ")).map_or("unknown processor", |(_, name)| name.trim()).to_owned()
}

/// `envoy --version` prints `…/1.40.0/Clean/RELEASE/BoringSSL`, with a revision before it.
fn envoy() -> String {
    let output = Command::new(artefact::envoy()).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = text.split('/').find(|part| part.split('.').count() == 3 && !part.contains(' '));
    version.unwrap_or("of an unknown version").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
