//! The budget loop in a deterministic simulation: the real limiter and the real budget, simulated
//! time, network and store. One seed reproduces a run to the bit.
//!
//! ```text
//! traffic.rs   when requests arrive, and where
//! network.rs   delay, jitter, loss, duplication
//! world.rs     POPs, weir-syncs and a store, and the events between them
//! account.rs   what was offered and admitted, beside what one ideal bucket would have admitted
//! ```

pub mod account;
pub mod network;
pub mod traffic;
pub mod world;
