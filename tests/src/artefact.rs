//! Paths of the things under test: the filter's wasm, the weir-sync binary, Envoy.
//!
//! The Makefile sets their paths in environment variables; a bare `cargo test` finds them where the
//! Makefile's targets put them. What is missing fails the test and names the target that makes it.

use std::env;
use std::path::{Path, PathBuf};

/// The filter, built for wasm32-wasip1 and passed through `wasm-opt`: `WEIR_WASM`.
pub fn filter_wasm() -> PathBuf {
    find("WEIR_WASM", &built("weir_filter.wasm"), "wasm")
}

/// The filter that does nothing, built in the same way: `WEIR_EMPTY_WASM`.
pub fn empty_filter_wasm() -> PathBuf {
    find("WEIR_EMPTY_WASM", &built("weir_empty_filter.wasm"), "empty-filter")
}

/// The filter as a dynamic module of Envoy: `WEIR_NATIVE`.
pub fn filter_native() -> PathBuf {
    find("WEIR_NATIVE", &built("module/libweir_native.so"), "module")
}

/// The weir-sync binary: `WEIR_SYNC_BIN`, else the one built, for debugging or for release.
pub fn weir_sync() -> PathBuf {
    let places = [built("debug/weir-sync"), built("release/weir-sync")].concat();
    find("WEIR_SYNC_BIN", &places, "sync")
}

/// The Envoy binary: `WEIR_ENVOY`, else the one in the project's tools folder.
pub fn envoy() -> PathBuf {
    let tools = workspace().join(".tools/envoy");
    // The package's own layout, then its launcher.
    find("WEIR_ENVOY", &[tools.join("envoy/_bin/envoy"), tools.join("bin/envoy")], "tools")
}

/// Prometheus's program for checks: `WEIR_PROMTOOL`, else the one in the project's tools folder.
pub fn promtool() -> PathBuf {
    find("WEIR_PROMTOOL", &[workspace().join(".tools/prometheus/promtool")], "tools")
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// A YAML file of the workspace.
#[cfg(feature = "hosts")]
pub fn yaml(file: &str) -> serde_json::Value {
    let path = workspace().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The path that a build gives `path`: in the target directory that this test was built in, or in the usual one.
fn built(path: &str) -> Vec<PathBuf> {
    // The test is <target>/<profile>/deps/<test>.
    let test = env::current_exe().ok();
    let target = test.as_deref().and_then(|test| test.ancestors().nth(3)).map(Path::to_path_buf);
    target.into_iter().chain([workspace().join("target")]).map(|target| target.join(path)).collect()
}

fn find(variable: &str, defaults: &[PathBuf], make_target: &str) -> PathBuf {
    let named = env::var_os(variable).map(PathBuf::from);
    let places = named.as_ref().map_or(defaults, std::slice::from_ref);
    places.iter().find(|place| place.is_file()).cloned().unwrap_or_else(|| {
        let place = places.last().map_or("?".into(), |place| place.display().to_string());
        panic!("there is no {place}: run `make {make_target}`, or name the file in {variable}")
    })
}
