//! How many instructions each case takes, and whether that is more than it was: `make instructions`.
//!
//! The counts are callgrind's, and the same on every run. gungraun would need a runner of exactly its version, and
//! compares with whole outputs of callgrind that it keeps in `target/`, where one number for each case, in a file
//! that is reviewed with the change, is what there is to keep.

pub mod baseline;
pub mod callgrind;
