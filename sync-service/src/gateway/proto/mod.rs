//! The messages of Envoy's rate limit service, generated from the protos beside this file. `make proto` writes them anew,
//! and a test compares (tests/tests/protos.rs).

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

/// The protos, as reflection tells them.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
