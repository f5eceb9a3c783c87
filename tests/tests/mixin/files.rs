//! The files of envoy/observe, and the program that reads them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_tests::artefact;

/// The folder of the files.
pub(crate) fn folder() -> PathBuf {
    artefact::workspace().join("envoy/observe")
}

/// The files in `folder` whose names end so, in order.
pub(crate) fn paths(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    paths
}

/// The content of these files.
pub(crate) fn read_all(folder: &Path, extension: &str) -> Vec<Value> {
    paths(folder, extension).iter().map(|path| yaml(path)).collect()
}

/// The content of a YAML file.
pub(crate) fn yaml(path: &Path) -> Value {
    artefact::yaml(path.to_str().expect("a path"))
}

/// Runs promtool on some files; what it finds fails the test.
pub(crate) fn promtool(arguments: &[&str], files: &[PathBuf]) {
    let output = Command::new(artefact::promtool()).args(arguments).args(files).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&text));
}

/// The sections of a page by their anchors, each up to the next heading.
pub(crate) fn sections(page: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(artefact::workspace().join(page)).unwrap();
    let mut sections = BTreeMap::new();
    for section in text.split("\n#").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
        let anchor = heading.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-");
        sections.insert(anchor, text.to_owned());
    }
    sections
}
