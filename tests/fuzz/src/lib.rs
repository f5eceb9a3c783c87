//! The fuzz targets. `make fuzz` searches with libFuzzer; `cargo test -p weir-fuzz` runs the same code on fixed inputs.
#![allow(clippy::missing_panics_doc, reason = "a panic is a finding")]

pub mod grammar;
pub mod matcher;
pub mod mutate;
pub mod parser;
