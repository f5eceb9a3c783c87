//! The limiter of one worker: request in, decision out.
//!
//! ```text
//! request -> rules it meets -> keys -> [deny cache] -> slots -> judge -> commit -> decision
//! ```
//!
//! **All or nothing.** A request that meets several rules takes from all their buckets or from none.
//! Buckets in one slot change together, by one compare-and-swap. The limiter commits several slots
//! one after the other, and gives back what it took if a later one turns out short.

mod afterwards;
mod answer;
mod calls;
mod cells;
mod counting;
mod decide;
mod draw;
mod exchange;
mod finish;
mod give_back;
mod grants;
mod in_hand;
mod inspect;
mod jitter;
mod judge;
mod judged;
mod keys;
mod meet;
mod parting;
mod penalty;
mod place;
mod replace;
mod reporter;
mod reporting;
mod ruling;
mod saying;
mod shadow;
mod spend;
mod state;
mod terms;
#[cfg(test)]
mod tests;
mod touch;
mod versions;
mod watched;
mod wish;

pub use afterwards::{Afterwards, What};
pub use calls::{DRAWS_MAX, Purpose, REPORTS_MAX};
pub use parting::PARTING_BYTES_MAX;
pub use reporter::{Reporter, TableIdentity};
pub use state::Limiter;
