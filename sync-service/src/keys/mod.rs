//! Who is limited, and how a key stands.
//!
//! Each weir-sync tells the others through the store of the keys that it hears most of ([`shared`]); [`asked`] reads what an
//! operator asks for, [`found`] finds the keys of a request, [`orders`] the orders about one, and [`answer`] writes what is known of keys.

pub mod answer;
pub mod asked;
pub mod found;
pub mod name;
pub mod orders;
pub mod shared;
pub mod verdict;
pub mod which;
