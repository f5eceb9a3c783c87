//! The instructions that each case takes, compared with a baseline: `make instructions`.
//!
//! The counts are callgrind's, and the same on every run. gungraun would need a runner of exactly its version, and
//! compares with whole outputs of callgrind that it keeps in `target/`, where one number for each case, in a file
//! that is reviewed with the change, is what there is to keep.

pub mod baseline;
pub mod callgrind;
