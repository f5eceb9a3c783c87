//! The gRPC code of weir-sync matches its protos. `make proto` writes it anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;

/// The protos, and beside them what is generated from them.
const FOLDER: &str = "../sync-service/gateway/src/proto";
/// The protos of the services, from which the others are found.
const SERVICES: [&str; 2] = ["envoy/service/ratelimit/v3/rls.proto", "envoy/service/rate_limit_quota/v3/rlqs.proto"];
/// Encoded descriptors, by which unknown fields of messages are found.
const DESCRIPTORS: &str = "descriptors.bin";
/// With this variable the code is written instead of compared.
const WRITE: &str = "WEIR_WRITE_PROTO";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)
}

/// Every file that the protos make, by its name.
fn generated() -> BTreeMap<String, Vec<u8>> {
    let descriptors = protox::compile(SERVICES, [folder()]).unwrap_or_else(|e| panic!("{e:?}"));
    let into = tempfile::tempdir().expect("a temporary folder");
    let builder = tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .include_file("generated.rs")
        .out_dir(into.path());
    builder.compile_fds(descriptors.clone()).unwrap_or_else(|e| panic!("{e}"));
    let entries = fs::read_dir(into.path()).expect("what was generated").flatten();
    let file = |entry: fs::DirEntry| {
        let text = fs::read(entry.path()).unwrap_or_else(|e| panic!("{}: {e}", entry.path().display()));
        (entry.file_name().to_string_lossy().into_owned(), text)
    };
    let mut files: BTreeMap<_, _> = entries.map(file).collect();
    // The comments are of no use there.
    let mut plain = descriptors;
    plain.file.iter_mut().for_each(|file| file.source_code_info = None);
    files.insert(DESCRIPTORS.into(), plain.encode_to_vec());
    files
}

#[test]
fn the_generated_code_is_current() {
    let files = generated();
    assert!(files.len() > 5, "expected a file for each package, found {:?}", files.keys());
    let is_writing = env::var_os(WRITE).is_some();
    for (name, bytes) in files {
        let path = folder().join(&name);
        if is_writing {
            fs::write(&path, &bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let known = fs::read(&path).unwrap_or_default();
        assert!(known == bytes, "{} is not what the protos make: run `make proto`", path.display());
    }
}
