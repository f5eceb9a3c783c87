//! The budget of a strict rule: a token is debited before a POP may spend it.
//!
//! This is the escrow method (O'Neil, "The Escrow Transactional Method", ACM TODS 11(4), 1986). A POP claims tokens for
//! an *epoch* of its own; what the budget gives is debited at once and leased to that epoch, and the POP spends it
//! while the lease lasts. Both sides state cumulative counts, so a message that is lost, repeated or overtaken does no
//! harm: the next one states them again.
//!
//! **Nothing is spent twice.** Tokens that are leased and not known to be spent are *outstanding*. Level and
//! outstanding together are never more than the burst: the refill stops there. Otherwise a POP could hoard a burst
//! while the budget refills, and both be spent at one moment. Proof: let S be the debt of an ideal bucket from which
//! each token is taken when it is truly spent, and U what POPs may still spend. Then S + U <= deficit at all times. A
//! draw adds the same to U and to the deficit; a spent token moves from U to S; time lowers S as it lowers the deficit,
//! or S is zero already, and then U <= outstanding <= deficit, where the refill stops. A draw never raises the deficit
//! above the burst, so S never exceeds it: in any time t at most burst + rate x t are spent.
//!
//! **What a POP must do for it** (U <= outstanding):
//!
//! 1. It spends an epoch's tokens up to the largest `charged` it has heard, and until the lease of the
//!    newest answer ends: `lease_ms` after it *made* the report, by a monotonic clock of its own.
//! 2. An answer whose lease is over when it arrives, or that is for another epoch, is ignored whole.
//! 3. When a lease ends, so does its epoch: no answer brings it back, and the next report begins a new one, with a name
//!    never used before and nothing admitted.
//! 4. An answer with `lease_ms` zero, from a store in reach, says that the epoch is over.
//! 5. A report with `ahead` zero gives an epoch back: it is made once the POP has begun a new one, with
//!    the last count of the old.
//!
//! **Held epochs.** A request whose cost is known only later draws an estimate for an epoch of its own, and holds it until
//! then: no report says before that any of it is spent. So the above covers it: its tokens may be spent at any moment of
//! that time. It is leased for as long as the report says, and that is said again while the request goes on. When it has
//! ended, the epoch is given back, with what the request cost as its last count. If that is more than was debited, the
//! rest is debited then, whatever the level is: the one way for a deficit to exceed the burst. That is debt, and nobody is
//! given anything until it is paid. It is charged once, as the epoch is on record, and over. If no such report arrives in
//! time, the estimate counts as spent, and what the request cost beyond it is never charged.
//!
//! **Takes.** A claim may *take* instead: all that it wants is debited, or nothing, and counts as spent when the budget is
//! debited. In the proof it raises the deficit and S by the same at that moment, and U not at all. So nothing of it is
//! outstanding, no epoch is on record, and no lease has to end. Its request goes on a little later, as with every limiter
//! that is asked over a network: what is bounded is what is taken. An answer that is lost costs its tokens. A take is never
//! given back by itself: its tokens may have refilled meanwhile, as nothing held that up, and would then come back twice.
//!
//! **Charges and refunds.** A *charge* says what was spent without asking. It is debited whatever the level is, so the deficit
//! may exceed the burst, as with a held epoch. A *refund* is a caller's word that tokens were not spent. It lowers the deficit,
//! but never below what is outstanding. In any time t at most burst + rate x t + what was refunded in t are spent.
//!
//! The budget holds a lease for one part in [`DRIFT_PART`] longer than the POP, and from when the report arrived, so
//! the POP's ends first. What was not spent by the end counts as spent, since it may have been.
//!
//! **How it refills** is a [`Law`] that each draw names; all else is the same for all laws. The above is the
//! steady law: a token bucket. Under [`Law::Window`] nothing refills: what was debited in a window and not
//! given back is at most the quota's count, and zero again when the next window begins. Under [`Law::Sliding`], what was
//! debited in a window and not given back, and the part of the same of the window before that a window ending now would
//! still cover, are at most the quota's count. Under [`Law::Log`] each token counts from its debit until some time after it
//! was spent.
//!
//! *No window is given more than its count.* A token is spent in the window it was debited in, since no lease ends
//! later than its window: leases are cut so that even a POP whose clock is slower by one part in [`DRIFT_PART`] ends
//! them in time. So nothing is outstanding when a window begins, and what is given back was debited in the same window.
//! (What requests hold may be outstanding when a window begins, and so may anything if the store's clock is seen to jump
//! ahead: that counts as debited in both windows.)
//!
//! *Nor does more count when it is spent than when it was debited.* As both are in one window, the window before counts
//! for no more by then. So a limiter that counts what is spent, by the same law, would let all of it through.
//!
//! *Nor is more in a log than fits.* A token counts from its debit until its length after the draw that first says that it is
//! spent, or after the end of its lease: no earlier than its length after it was. Of those that are spent within the length,
//! look at the one that was debited last. It was spent after that, so all the others, which were spent less than a length
//! before that or later, counted then. And no debit makes more count than the burst.
//!
//! *Nor do two turns overlap.* Under [`Law::Turns`] nothing is leased: what a draw gives is spent, and on no record but the
//! deficit, which is how long all turns that were given still take. A draw gives the time after that, and time lowers the
//! deficit by itself. So turns follow one another by the budget's clock, whoever gets them, and none begins later than the
//! queue is long. A turn is counted from when its answer arrives, so no request goes on before its turn. The answer may take
//! as long as it is waited for, and the next one less; so two requests may go on closer to one another than their turns, by
//! that much. A turn that is not used passes: an answer that is lost, or a draw that is made twice, lets fewer through.
//!
//! *Whose window.* The store's clock says which window it is, so all agree. Where windows are of one length, it says when
//! they end, too. Where months begin, the weir-sync that draws looks up, and its clock may differ: of the boundaries
//! that it names, the first after the store's time ends the store's window ([`weir_wire::calendar::Window::end_at`]). A
//! window that was entered holds until it ends, so a weir-sync with another clock can begin the next neither early nor
//! twice. If the store's clock steps back, the window lasts longer, but by less than its length: where windows are of one
//! length, its end steps with the clock by as many lengths as fit. So it does if the clock is seen to jump ahead.

mod draw;
mod log;
pub mod sliding;
mod turns;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_wire::law::Law;
use weir_wire::messages::Leased;
use weir_wire::quota::TOKENS_MAX;

use self::draw::price_ns;
pub use self::draw::{
    ASK_AGAIN_US, CALENDAR_LEASE_US_MAX, Claim, DRIFT_PART, Draw, Drawn, EscrowId, HELD_US_MAX, Kind,
    LEASE_US_MAX, LEASE_US_MIN, WINDOW_TOKEN_NS, longer_us,
};
use self::log::Log;
use self::sliding::{room_at_us, weighed};
use crate::budget::{COUNT_MAX, DEFICIT_NS_MAX, SourceId};
use crate::store_clock::StoreTime;

/// The most epochs that tokens of one budget are leased to at a time; beyond it nothing is leased.
pub const HOLDERS_MAX: usize = 1_024;
/// How long an epoch whose lease has ended is remembered, in microseconds, unless its place is needed: only so that a
/// report which was held up takes no tokens that nobody would spend.
pub const ENDED_KEPT_US: u64 = LEASE_US_MAX;

/// No lease: the epoch is over, or the store is out of reach.
pub const NO_LEASE: Leased = Leased::NONE;

/// The state of one strict budget; a new one is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Escrow {
    /// Nanoseconds of refill until full; under a law of windows, [`WINDOW_TOKEN_NS`] for each token that was debited in
    /// the window and not given back; under a law of a log, for each that counts.
    deficit_ns: u64,
    /// When the window ends; zero under the steady law, and before any window was entered.
    end_us: u64,
    /// How long the window is remembered after its end; under a law of a log, how long a token counts once it is spent.
    kept_us: u64,
    /// Under the sliding law, tokens that were debited in the window before and not given back.
    before: u64,
    /// Under a law of a log, what is spent and counts.
    log: Log,
    at_us: u64,
    holders: BTreeMap<SourceId, Holder>,
}

/// An epoch that tokens were leased to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    /// All that was debited for it.
    charged: u64,
    /// What it is known to have spent, at most `charged`.
    spent: u64,
    /// When its lease ends, on the store's clock in microseconds.
    until_us: u64,
}

/// The lease that one draw gives.
#[derive(Clone, Copy)]
struct Lease {
    /// For how long a POP may spend it, in milliseconds; 0 if none can be given.
    ms: u32,
    /// When it ends for the budget, or if there is none, when its window does.
    until_us: u64,
}

impl Escrow {
    /// Answers the claims of `pop` in order: debits what they want and the level has.
    ///
    /// A claim is refused if its epoch's lease has ended, or if it says that more was spent than was ever debited, or
    /// if its epoch is not on record and yet has spent something: then the record was lost or forgotten, and the POP
    /// must begin a new epoch. If it is not known when the store's window ends, or if that is too soon to leave any lease,
    /// nothing is leased but to epochs that requests hold already. What takes needs to know the window, and no lease.
    pub fn draw(&mut self, time: impl Into<StoreTime>, pop: &str, draw: &Draw) -> Drawn {
        let time = time.into();
        let (now_us, is_new) = (time.now_us, *self == Self::default());
        self.step(time, draw);
        let lease = self.refill(now_us, draw);
        self.holders.retain(|_, holder| now_us.saturating_sub(holder.until_us) < ENDED_KEPT_US);
        let mut given = 0;
        let answer = |claim: &Claim| {
            let id = SourceId { epoch: claim.epoch, pop: pop.into() };
            let (leased, tokens) = self.answer(now_us, id, draw, *claim, lease);
            given += tokens;
            leased
        };
        let mut leases: Vec<_> = draw.claims.iter().map(answer).collect();
        let left = u32::try_from(self.level(now_us, draw)).unwrap_or(u32::MAX);
        let may_take = self.may_take(now_us, draw.law);
        let is_told = |claim: &Claim| match claim.kind {
            Kind::Lease => false,
            Kind::Charge => may_take || draw.law == Law::Turns,
            Kind::Take | Kind::Refund => may_take,
        };
        for (lease, claim) in leases.iter_mut().zip(&draw.claims) {
            if lease.lease_ms > 0 || is_told(claim) {
                lease.left = left;
            }
        }
        let counts_ns = self.deficit_ns.saturating_add(self.before_ns(now_us, draw));
        let (deficit_ns, outstanding) = (draw.told_ns(counts_ns), self.outstanding(now_us));
        draw.note_returns(&mut leases, outstanding);
        if is_new && given == 0 {
            // Nothing happened that is worth a record.
            *self = Self::default();
        }
        Drawn { deficit_ns, outstanding, given, now_us, leases }
    }

    /// When it may make room for another, if nobody draws until then, on the store's clock in microseconds: a new one
    /// would be the same, full and with nothing leased.
    pub fn full_us(&self) -> u64 {
        let last_us = self.holders.values().map(|holder| holder.until_us).fold(self.at_us, u64::max);
        if let Some(end_us) = self.window_ends_us() {
            return end_us.max(last_us).saturating_add(self.kept_us);
        }
        last_us.saturating_add(self.deficit_ns.div_ceil(1_000)).saturating_add(self.kept_us)
    }

    /// When it can be dropped, on the store's clock in microseconds.
    pub fn expires_us(&self) -> u64 {
        let kept_us = if self.window_ends_us().is_some() { 0 } else { ENDED_KEPT_US };
        self.full_us().saturating_add(kept_us)
    }

    /// When its window ends, on the store's clock in microseconds; none before any was entered.
    pub fn window_ends_us(&self) -> Option<u64> {
        (self.end_us > 0).then_some(self.end_us)
    }

    /// How far it is from full by its law, as of the last draw: nanoseconds of refill, or under a law of windows
    /// [`WINDOW_TOKEN_NS`] for each token debited in the window.
    pub fn deficit_ns(&self) -> u64 {
        self.deficit_ns
    }

    /// How many times its log tells apart.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// How many epochs are on record.
    pub fn holders_len(&self) -> usize {
        self.holders.len()
    }

    /// When the clock steps, nothing refills, and leases last for as long as they had left. So does the window, as far as
    /// the step is a whole number of windows: it ends where windows do.
    fn step(&mut self, time: StoreTime, draw: &Draw) {
        let ahead_us = time.skipped_us(self.at_us);
        let back_us = self.at_us.saturating_sub(time.now_us);
        let move_on = |us: &mut u64| *us = us.saturating_add(ahead_us).saturating_sub(back_us);
        if ahead_us > 0 || back_us > 0 {
            move_on(&mut self.at_us);
            self.holders.values_mut().for_each(|holder| move_on(&mut holder.until_us));
            self.log.times_mut().for_each(move_on);
            if self.end_us > 0 {
                let whole = |us| draw.whole_windows_us(us);
                self.end_us = self.end_us.saturating_add(whole(ahead_us)).saturating_sub(whole(back_us));
            }
        }
    }

    /// Refills up to `now_us` by the law of `draw`; returns what a lease is then. It is none if its window ends too soon, or
    /// at a time that is not known.
    fn refill(&mut self, now_us: u64, draw: &Draw) -> Lease {
        let (mut leased_us, mut until_us) = (draw.leased_us(), now_us.saturating_add(draw.held_us()));
        if draw.law.is_by_rate() {
            self.refill_steadily(now_us, draw.token_ns());
        } else if let Some(counts_us) = draw.law.counts_us() {
            self.refill_one_by_one(now_us, counts_us);
        } else {
            self.at_us = now_us;
            let known_us = if now_us < self.end_us { Some(self.end_us) } else { draw.end_us(now_us) };
            let Some(end_us) = known_us else { return Lease { ms: 0, until_us: now_us } };
            let left_us = end_us - now_us;
            if left_us < draw.held_us() {
                (leased_us, until_us) = (left_us * DRIFT_PART / (DRIFT_PART + 1), end_us);
            }
            if (leased_us >= LEASE_US_MIN || draw.is_of_the_moment()) && self.end_us != end_us {
                self.enter(now_us, end_us, draw);
            }
        }
        Lease { ms: u32::try_from(leased_us / 1_000).unwrap_or(u32::MAX), until_us }
    }

    /// The window that ends at `end_us` begins.
    fn enter(&mut self, now_us: u64, end_us: u64, draw: &Draw) {
        let is_next = |length_us| self.end_us > 0 && self.end_us.checked_add(length_us) == Some(end_us);
        self.before = match sliding_us(draw) {
            Some(length_us) if is_next(length_us) => {
                (self.deficit_ns / WINDOW_TOKEN_NS).min(TOKENS_MAX.into())
            }
            // Nobody drew in the window before, but what requests held may have been spent in it.
            Some(length_us) => self.held_after(end_us.saturating_sub(2 * length_us)).min(TOKENS_MAX.into()),
            None => 0,
        };
        self.deficit_ns = price_ns(self.outstanding(now_us), WINDOW_TOKEN_NS);
        (self.end_us, self.kept_us) = (end_us, draw.kept_us());
    }

    /// What may have been spent later than at `us`: what epochs did not give back whose leases ended after it, or go on.
    fn held_after(&self, us: u64) -> u64 {
        self.holders.values().filter(|holder| holder.until_us > us).map(Holder::unspent).sum()
    }

    /// What the window before still counts for.
    fn before_ns(&self, now_us: u64, draw: &Draw) -> u64 {
        let left_us = self.end_us.saturating_sub(now_us);
        sliding_us(draw).map_or(0, |length_us| weighed(self.before, left_us, length_us) * WINDOW_TOKEN_NS)
    }

    /// Refills up to `now_us`, never to more than the burst less what is outstanding *at each moment*: when a lease
    /// ends, the refill that it held up begins, and is not made up for.
    fn refill_steadily(&mut self, now_us: u64, token_ns: u64) {
        let live = self.holders.values().filter(|holder| holder.until_us > self.at_us);
        let mut ends: Vec<_> = live.map(|holder| (holder.until_us, holder.unspent())).collect();
        ends.sort_unstable();
        let mut outstanding = ends.iter().map(|(_, unspent)| unspent).sum();
        for (until_us, unspent) in ends.into_iter().take_while(|(until_us, _)| *until_us <= now_us) {
            self.pass(until_us, outstanding, token_ns);
            outstanding -= unspent;
        }
        self.pass(now_us, outstanding, token_ns);
    }

    /// Takes what leases that have ended held for spent, and lets go what counts no more: a token counts for `counts_us`
    /// once it is spent.
    fn refill_one_by_one(&mut self, now_us: u64, counts_us: u64) {
        let ended = |holder: &&Holder| (self.at_us + 1..=now_us).contains(&holder.until_us);
        let mut ends: Vec<_> =
            self.holders.values().filter(ended).map(|holder| (holder.until_us, holder.unspent())).collect();
        ends.sort_unstable();
        (self.at_us, self.kept_us) = (now_us, counts_us);
        for (until_us, unspent) in ends {
            self.note_spent(until_us, unspent);
        }
        self.fade(now_us);
    }

    /// Under a law of a log: so many tokens may have been spent as late as at `us`.
    fn note_spent(&mut self, us: u64, tokens: u64) {
        self.log.add(us.saturating_add(self.kept_us), tokens);
    }

    fn fade(&mut self, now_us: u64) {
        let faded = price_ns(self.log.fade(now_us), WINDOW_TOKEN_NS);
        self.deficit_ns = self.deficit_ns.saturating_sub(faded);
    }

    /// Refills up to `to_us` while so much is outstanding.
    fn pass(&mut self, to_us: u64, outstanding: u64, token_ns: u64) {
        let refilled = self.deficit_ns.saturating_sub((to_us - self.at_us).saturating_mul(1_000));
        self.deficit_ns = refilled.max(price_ns(outstanding, token_ns));
        self.at_us = to_us;
    }

    fn outstanding(&self, now_us: u64) -> u64 {
        self.held_after(now_us)
    }

    /// The answer to a claim, and how many tokens were debited for it.
    fn answer(
        &mut self,
        now_us: u64,
        id: SourceId,
        draw: &Draw,
        claim: Claim,
        lease: Lease,
    ) -> (Leased, u64) {
        match claim.kind {
            Kind::Charge => return self.charge(now_us, draw, claim.ahead),
            Kind::Refund => return self.refund(now_us, draw, claim.ahead),
            Kind::Lease | Kind::Take if draw.law == Law::Turns => return self.take_turn(draw, claim, lease),
            Kind::Take => return self.take(now_us, draw, claim.ahead),
            Kind::Lease => {}
        }
        let mut holder = match self.holders.get(&id).copied() {
            Some(known) if claim.is_settled() && claim.spent() > known.charged && !known.is_over(now_us) => {
                return (NO_LEASE, self.overdraw(now_us, id, known, claim, draw));
            }
            // The next window has a lease, and begins soon.
            _ if lease.ms == 0 && claim.ahead > 0 && claim.held_us.is_none() => {
                return (Leased { wait_ms: (lease.until_us - now_us).div_ceil(1_000), ..NO_LEASE }, 0);
            }
            Some(known) if known.until_us > now_us && claim.spent() <= known.charged => known,
            None if claim.spent() == 0 && claim.ahead > 0 && lease.ms > 0 && self.has_room(now_us) => {
                Holder::NEW
            }
            _ => return (NO_LEASE, 0),
        };
        let more = claim.spent().saturating_sub(holder.spent);
        holder.spent += more;
        if draw.law.counts_us().is_some() {
            self.note_spent(now_us, more);
            self.fade(now_us);
        }
        if claim.ahead == 0 {
            self.take_back(now_us, id, holder, draw.token_ns());
            return (NO_LEASE, 0);
        }
        let wanted = if lease.ms > 0 { (claim.spent() + u64::from(claim.ahead)).min(COUNT_MAX) } else { 0 };
        let lease = claim.leased_us().map_or(lease, |us| Lease::held(us, now_us));
        let need = wanted.saturating_sub(holder.charged);
        let tokens = need.min(self.level(now_us, draw));
        self.deficit_ns += tokens * draw.token_ns();
        holder.charged += tokens;
        holder.until_us = holder.until_us.max(lease.until_us);
        // One that has got nothing yet needs no record.
        if holder.charged > 0 {
            self.holders.insert(id, holder);
        }
        // With no whole token left.
        let wait_us = if tokens < need { self.wait_us(now_us, 1, holder.unspent(), draw) } else { 0 };
        (Leased { wait_ms: wait_us.div_ceil(1_000), ..Leased::of(holder.charged, lease.ms) }, tokens)
    }

    /// Debits all of `tokens` as spent, or nothing; the same as [`Escrow::answer`].
    fn take(&mut self, now_us: u64, draw: &Draw, tokens: u32) -> (Leased, u64) {
        if !self.may_take(now_us, draw.law) {
            return (NO_LEASE, 0);
        }
        let wanted = u64::from(tokens);
        if wanted > self.level(now_us, draw) {
            let wait_ms = self.wait_us(now_us, tokens, u64::MAX, draw).div_ceil(1_000);
            return (Leased { wait_ms, ..NO_LEASE }, 0);
        }
        self.deficit_ns += wanted * draw.token_ns();
        if draw.law.counts_us().is_some() {
            self.note_spent(now_us, wanted);
        }
        (Leased::of(wanted, 0), wanted)
    }

    /// Debits all of `tokens` as spent, whatever is left.
    fn charge(&mut self, now_us: u64, draw: &Draw, tokens: u32) -> (Leased, u64) {
        if !self.may_take(now_us, draw.law) && draw.law != Law::Turns {
            return (NO_LEASE, 0);
        }
        let wanted = u64::from(tokens);
        let price_ns = price_ns(wanted, draw.token_ns());
        self.deficit_ns = self.deficit_ns.saturating_add(price_ns).min(DEFICIT_NS_MAX);
        if draw.law.counts_us().is_some() {
            self.note_spent(now_us, wanted);
        }
        (Leased::of(wanted, 0), wanted)
    }

    /// Gives `tokens` back, as many as are missing and not outstanding. A turn or a place in flight does not come back so.
    fn refund(&mut self, now_us: u64, draw: &Draw, tokens: u32) -> (Leased, u64) {
        if !self.may_take(now_us, draw.law) {
            return (NO_LEASE, 0);
        }
        let mut back = u64::from(tokens);
        if draw.law.counts_us().is_some() {
            back = self.log.remove(back);
        }
        let least_ns = price_ns(self.outstanding(now_us), draw.token_ns());
        let after_ns = self.deficit_ns.saturating_sub(price_ns(back, draw.token_ns()));
        self.deficit_ns = self.deficit_ns.min(after_ns.max(least_ns));
        (Leased::of(tokens.into(), 0), 0)
    }

    /// Whether a token can be spent as it is debited: it is known which window it counts in. A place in flight is held.
    fn may_take(&self, now_us: u64, law: Law) -> bool {
        match law {
            Law::Steady | Law::Log(_) => true,
            Law::Window(_) | Law::Sliding(_) => now_us < self.end_us,
            Law::InFlight(_) | Law::Turns => false,
        }
    }

    /// How soon there are so many `tokens`, more than there are, if nobody gives any back. POPs keep tokens of a window, and
    /// places, in reserve: if others than the one that asks, which has `own`, hold any, it is when to ask again for those.
    fn wait_us(&self, now_us: u64, tokens: u32, own: u64, draw: &Draw) -> u64 {
        let is_elsewhere = self.outstanding(now_us) > own;
        let given_back = |us: u64| if is_elsewhere { us.min(draw.ask_again_us()) } else { us };
        match draw.law {
            Law::Steady | Law::Turns => {
                let lacking_ns = self.deficit_ns.saturating_add(price_ns(tokens.into(), draw.token_ns()));
                lacking_ns.saturating_sub(full_ns(draw)).div_ceil(1_000)
            }
            Law::Sliding(_) => self.fades_us(now_us, tokens, draw),
            Law::Log(length_s) => {
                // Tokens that are leased count for a length from when that is over.
                let leased_us = draw.held_us() + u64::from(length_s) * 1_000_000;
                self.log.first_us().map_or(leased_us, |end_us| end_us - now_us)
            }
            Law::Window(_) => given_back(self.end_us - now_us),
            Law::InFlight(_) => {
                given_back(self.log.first_us().map_or(draw.ask_again_us(), |end_us| end_us - now_us))
            }
        }
    }

    /// How soon so many `tokens` fit a sliding window: once enough of the window before has faded, or of this one when it
    /// is the one before.
    fn fades_us(&self, now_us: u64, tokens: u32, draw: &Draw) -> u64 {
        let Some(length_us) = sliding_us(draw) else { return 0 };
        let (left_us, used) = (self.end_us - now_us, self.deficit_ns / WINDOW_TOKEN_NS);
        let room = u64::from(draw.quota.burst()).saturating_sub(tokens.into());
        match room.checked_sub(used) {
            Some(room) => left_us.saturating_sub(room_at_us(self.before, room, length_us)),
            None => left_us.saturating_add(length_us - room_at_us(used, room, length_us)),
        }
    }

    /// Ends a lease before its time, and refunds what was not spent: the POP has said that it never
    /// will be.
    fn take_back(&mut self, now_us: u64, id: SourceId, mut holder: Holder, token_ns: u64) {
        self.deficit_ns = self.deficit_ns.saturating_sub(price_ns(holder.unspent(), token_ns));
        (holder.spent, holder.until_us) = (holder.charged, now_us);
        self.holders.insert(id, holder);
    }

    /// Ends an epoch whose request cost more than was debited for it, and debits the rest; returns how much. If its lease
    /// has ended already, it counts as spent.
    fn overdraw(&mut self, now_us: u64, id: SourceId, mut holder: Holder, claim: Claim, draw: &Draw) -> u64 {
        let tokens = (claim.spent() - holder.charged).min(TOKENS_MAX.into());
        let price_ns = price_ns(tokens, draw.token_ns());
        self.deficit_ns = self.deficit_ns.saturating_add(price_ns).min(DEFICIT_NS_MAX);
        if draw.law.counts_us().is_some() {
            let unspent = if holder.until_us > now_us { holder.unspent() } else { 0 };
            self.note_spent(now_us, unspent + tokens);
        }
        // Its last count: a report that says it again charges nothing.
        (holder.charged, holder.spent) = (claim.spent(), claim.spent());
        holder.until_us = holder.until_us.min(now_us);
        self.holders.insert(id, holder);
        tokens
    }

    /// Whole tokens that may be given.
    fn level(&self, now_us: u64, draw: &Draw) -> u64 {
        let left_ns = full_ns(draw).saturating_sub(self.deficit_ns);
        left_ns.saturating_sub(self.before_ns(now_us, draw)) / draw.token_ns()
    }

    /// Whether one more epoch can be put on record; if there is no room, those that have ended make some.
    fn has_room(&mut self, now_us: u64) -> bool {
        if self.holders.len() >= HOLDERS_MAX {
            self.holders.retain(|_, holder| holder.until_us > now_us);
        }
        self.holders.len() < HOLDERS_MAX
    }
}

impl Lease {
    /// For an epoch that a request holds for `leased_us` more: longer than its window, if need be.
    fn held(leased_us: u64, now_us: u64) -> Self {
        let ms = u32::try_from(leased_us / 1_000).unwrap_or(u32::MAX);
        Self { ms, until_us: now_us.saturating_add(longer_us(leased_us)) }
    }
}

impl Holder {
    const NEW: Self = Self { charged: 0, spent: 0, until_us: 0 };

    fn unspent(&self) -> u64 {
        self.charged - self.spent
    }

    /// Whether its last count is known: what it cost was said, and is said once.
    fn is_over(&self, now_us: u64) -> bool {
        self.until_us <= now_us && self.unspent() == 0
    }
}

/// What the whole of a budget is worth by its law.
fn full_ns(draw: &Draw) -> u64 {
    price_ns(u64::from(draw.quota.burst()), draw.token_ns())
}

/// The length of the windows, in microseconds, if they slide.
fn sliding_us(draw: &Draw) -> Option<u64> {
    if let Law::Sliding(calendar) = draw.law { Some(calendar.longest_us()) } else { None }
}
