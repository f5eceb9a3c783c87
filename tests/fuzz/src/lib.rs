//! What the fuzz targets are made of.

pub mod grammar;
pub mod mutate;
