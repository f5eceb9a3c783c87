//! Turns in a queue of the whole fleet: virtual scheduling, as in ITU-T I.371, annex A.

use weir_protocol::messages::Leased;

use super::acquire::price_ns;
use super::{AcquireRequest, Claim, Escrow, Lease, NO_LEASE, full_ns};

/// Nanoseconds in a millisecond, the unit of a POP's wait.
const MS_NS: u64 = 1_000_000;

impl Escrow {
    /// Gives a claim a turn for all its tokens, after all earlier turns, if the queue has places for it; else
    /// nothing. Also returns the number of tokens.
    ///
    /// The result contains the wait for the turn, or for places, rounded up to a millisecond. For a claim of
    /// zero tokens it is the wait that a turn would have.
    pub(super) fn take_turn(
        &mut self,
        acquire: &AcquireRequest,
        claim: Claim,
        lease: Lease,
    ) -> (Leased, u64) {
        if claim.spent() > 0 {
            return (NO_LEASE, 0);
        }
        let tokens = u64::from(claim.ahead);
        let ends_ns = self.deficit_ns.saturating_add(price_ns(tokens, acquire.token_ns()));
        let beyond_ns = ends_ns.saturating_sub(full_ns(acquire));
        if tokens > 0 && beyond_ns > 0 {
            return (Leased { wait_ms: beyond_ns.div_ceil(MS_NS), ..Leased::of(0, lease.ms) }, 0);
        }
        let begins_ns = core::mem::replace(&mut self.deficit_ns, ends_ns);
        (Leased { wait_ms: begins_ns.div_ceil(MS_NS), ..Leased::of(tokens, lease.ms) }, tokens)
    }
}
