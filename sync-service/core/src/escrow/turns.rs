//! Turns in a queue that the whole fleet keeps: virtual scheduling, as in ITU-T I.371, annex A.

use weir_wire::messages::Leased;

use super::draw::price_ns;
use super::{Claim, Draw, Escrow, Lease, NO_LEASE, full_ns};

/// Nanoseconds in a millisecond, in which a POP is told how long to wait.
const MS_NS: u64 = 1_000_000;

impl Escrow {
    /// Gives a claim a turn as long as all tokens that it wants, after all turns that were given before, if the queue has
    /// places for it; else nothing. Returns how many tokens that is, too. The answer says how long to wait for the turn, or
    /// for places, rounded up to a millisecond. One that wants nothing is told when a turn would come.
    pub(super) fn take_turn(&mut self, draw: &Draw, claim: Claim, lease: Lease) -> (Leased, u64) {
        if claim.spent() > 0 {
            return (NO_LEASE, 0);
        }
        let tokens = u64::from(claim.ahead);
        let ends_ns = self.deficit_ns.saturating_add(price_ns(tokens, draw.token_ns()));
        let beyond_ns = ends_ns.saturating_sub(full_ns(draw));
        if tokens > 0 && beyond_ns > 0 {
            return (Leased { wait_ms: beyond_ns.div_ceil(MS_NS), ..Leased::of(0, lease.ms) }, 0);
        }
        let begins_ns = core::mem::replace(&mut self.deficit_ns, ends_ns);
        (Leased { wait_ms: begins_ns.div_ceil(MS_NS), ..Leased::of(tokens, lease.ms) }, tokens)
    }
}
