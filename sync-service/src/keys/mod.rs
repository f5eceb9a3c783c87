//! Keys, for operators.

pub mod name;
