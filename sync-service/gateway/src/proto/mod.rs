//! Messages of Envoy's rate limit service, generated from the protos beside this file. `make proto` regenerates
//! them, and tests/tests/rls/protos.rs verifies that they are up to date.

#![allow(
    clippy::all,
    clippy::pedantic,
    missing_docs,
    rust_2018_idioms,
    unreachable_pub,
    unused_qualifications,
    reason = "generated code"
)]

include!("generated.rs");

pub mod unknown;

/// Encoded descriptors of the protos, which name their fields.
const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
