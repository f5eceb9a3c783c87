//! The budget of a calendar's quota: so many tokens in each day or month, debited before they are spent.
//!
//! It is an escrow (see [`crate::escrow`], whose claims and leases it answers, and what it asks of a POP) that
//! does not refill: what was debited in a window and not given back is its *tally*, which is at most the
//! quota's count, and zero again when the next window begins.
//!
//! **No window is given more than its count.** A token is spent in the window it was debited in, for no
//! lease ends later than its window: it is cut so that even a clock that is slower by one part in
//! [`DRIFT_PART`] ends it in time. So nothing is outstanding when a window begins, and what is given back
//! was debited in the same window.
//!
//! **Whose window.** The store's clock says when a window ends, so all agree. Where windows begin and end is
//! looked up by the weir-sync that draws, whose clock may be another: of the boundaries that it names, the first after the
//! store's time ends the store's window ([`weir_limiter::calendar::Window::end_at`]). A window that was entered holds until it ends, so
//! one that draws with another clock cannot begin the next before its time, nor a second time; and where
//! the store's clock steps back, it holds for longer.

use alloc::collections::BTreeMap;

use weir_limiter::wire::Leased;

use crate::budget::{COUNT_MAX, SourceId};
use crate::escrow::{Claim, DRIFT_PART, Draw, Drawn, ENDED_KEPT_US, HOLDERS_MAX, Holder, NO_LEASE};

/// How long a tally is remembered after its window, in microseconds: by so much may the store's clock step
/// back without a window beginning again.
pub const WINDOW_KEPT_US: u64 = 3_600_000_000;
/// When to ask again for what is given out and may yet be given back, in microseconds.
pub const ASK_AGAIN_US: u64 = 60_000_000;

/// The state of one calendar's quota; a new one is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tokens debited in the window and not given back.
    used: u64,
    /// When the window ends; zero before any was entered.
    end_us: u64,
    at_us: u64,
    holders: BTreeMap<SourceId, Holder>,
}

/// What leases of one draw are given.
#[derive(Clone, Copy)]
struct Terms {
    now_us: u64,
    /// Tokens that a whole window has.
    count: u64,
    lease_ms: u32,
    /// When a lease given now ends for the budget.
    until_us: u64,
}

impl Tally {
    /// Answers the claims of `pop` in order: debits what they want and the window has left.
    ///
    /// A claim is refused as [`crate::escrow::Escrow::draw`] does; and where the draw's window does not say when
    /// the one ends that the store is in, or that is so soon that no lease would be left.
    pub fn draw(&mut self, now_us: u64, pop: &str, draw: &Draw) -> Drawn {
        self.step_back(now_us);
        let count = u64::from(draw.quota.burst());
        let drawn = |used, outstanding, given, leases| Drawn {
            deficit_ns: draw.price_ns(used),
            outstanding,
            given,
            now_us,
            leases,
        };
        let end_us = if now_us < self.end_us {
            Some(self.end_us)
        } else {
            draw.window.and_then(|window| window.end_at(now_us))
        };
        let left_us = end_us.map_or(0, |end_us| end_us - now_us);
        let is_cut = left_us < draw.held_us();
        let leased_us = if is_cut { left_us * DRIFT_PART / (DRIFT_PART + 1) } else { draw.leased_us() };
        let (Some(end_us), Ok(lease_ms @ 1..)) = (end_us, u32::try_from(leased_us / 1_000)) else {
            let leases = draw.claims.iter().map(|_| NO_LEASE).collect();
            return drawn(self.used, self.outstanding(now_us), 0, leases);
        };
        let is_new = self.end_us == 0;
        if self.end_us != end_us {
            (self.used, self.end_us) = (0, end_us);
        }
        self.holders.retain(|_, holder| now_us.saturating_sub(holder.until_us) < ENDED_KEPT_US);
        let until_us = now_us.saturating_add(draw.held_us()).min(end_us);
        let terms = Terms { now_us, count, lease_ms, until_us };
        let mut given = 0;
        let mut leases: alloc::vec::Vec<_> = draw
            .claims
            .iter()
            .map(|claim| {
                let id = SourceId { epoch: claim.epoch, pop: pop.into() };
                let (lease, tokens) = self.answer(id, *claim, &terms);
                given += tokens;
                lease
            })
            .collect();
        let left = u32::try_from(count.saturating_sub(self.used)).unwrap_or(u32::MAX);
        leases.iter_mut().filter(|lease| lease.lease_ms > 0).for_each(|lease| lease.left = left);
        let answered = drawn(self.used, self.outstanding(now_us), given, leases);
        if is_new && given == 0 {
            // Nothing happened that is worth a record.
            *self = Self::default();
        }
        answered
    }

    /// When it may be forgotten, on the store's clock in microseconds.
    pub fn expires_us(&self) -> u64 {
        if self.end_us == 0 { 0 } else { self.end_us.saturating_add(WINDOW_KEPT_US) }
    }

    /// When its window ends, on the store's clock in microseconds; none before any was entered.
    pub fn window_ends_us(&self) -> Option<u64> {
        (self.end_us > 0).then_some(self.end_us)
    }

    /// Tokens debited in its window and not given back, as of the last draw.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// How many epochs are on record.
    pub fn holders_len(&self) -> usize {
        self.holders.len()
    }

    /// Where the store's clock stepped back, leases last as long as they had left.
    fn step_back(&mut self, now_us: u64) {
        let back_us = self.at_us.saturating_sub(now_us);
        self.at_us = now_us;
        for holder in self.holders.values_mut().filter(|_| back_us > 0) {
            holder.until_us = holder.until_us.saturating_sub(back_us);
        }
    }

    fn outstanding(&self, now_us: u64) -> u64 {
        let live = self.holders.values().filter(|holder| holder.until_us > now_us);
        live.map(Holder::unspent).sum()
    }

    /// The answer to a claim, and how many tokens were debited for it.
    fn answer(&mut self, id: SourceId, claim: Claim, terms: &Terms) -> (Leased, u64) {
        let now_us = terms.now_us;
        let mut holder = match self.holders.get(&id).copied() {
            Some(known) if known.until_us > now_us && claim.spent() <= known.charged => known,
            None if claim.spent() == 0 && claim.ahead > 0 && self.has_room(now_us) => Holder::NEW,
            _ => return (NO_LEASE, 0),
        };
        holder.spent = holder.spent.max(claim.spent());
        if claim.ahead == 0 {
            self.used = self.used.saturating_sub(holder.unspent());
            (holder.spent, holder.until_us) = (holder.charged, now_us);
            self.holders.insert(id, holder);
            return (NO_LEASE, 0);
        }
        let need = (claim.spent() + u64::from(claim.ahead)).min(COUNT_MAX).saturating_sub(holder.charged);
        let tokens = need.min(terms.count.saturating_sub(self.used));
        self.used += tokens;
        holder.charged += tokens;
        holder.until_us = holder.until_us.max(terms.until_us);
        // One that has got nothing yet needs no record.
        if holder.charged > 0 {
            self.holders.insert(id, holder);
        }
        let wait_ms = if tokens < need { self.wait_us(now_us, &holder).div_ceil(1_000) } else { 0 };
        (Leased { charged: holder.charged, lease_ms: terms.lease_ms, wait_ms, left: 0 }, tokens)
    }

    /// When `holder` may ask again, of a window with nothing left: in the next, or sooner where others hold
    /// what they may give back.
    fn wait_us(&self, now_us: u64, holder: &Holder) -> u64 {
        let left_us = self.end_us - now_us;
        let is_elsewhere = self.outstanding(now_us) > holder.unspent();
        if is_elsewhere { left_us.min(ASK_AGAIN_US) } else { left_us }
    }

    /// Whether one more epoch can be put on record; where it is tight, those that have ended make room.
    fn has_room(&mut self, now_us: u64) -> bool {
        if self.holders.len() >= HOLDERS_MAX {
            self.holders.retain(|_, holder| holder.until_us > now_us);
        }
        self.holders.len() < HOLDERS_MAX
    }
}
