//! Budget of a strict rule: a token is debited before a POP may spend it.
//!
//! This is the escrow method (O'Neil, "The Escrow Transactional Method", ACM TODS 11(4), 1986). A POP claims
//! tokens for an *epoch* of its own. The tokens that the budget gives are debited at once and leased to that
//! epoch, and the POP spends them while the lease lasts. Both sides send cumulative counts, so a message that
//! is lost, repeated or overtaken does no harm: the next one contains them again.
//!
//! **Nothing is spent twice.** Tokens that are leased and not known to be spent are *outstanding*. Level and
//! outstanding together are never more than the burst: the refill stops there. Otherwise a POP could hoard a
//! burst while the budget refills, and both could be spent at one moment. Proof: let S be the debt of an ideal
//! bucket from which each token is taken when it is actually spent, and U the tokens that POPs may still spend.
//! Then S + U <= deficit at all times. An acquire adds the same to U and to the deficit. A spent token moves from U
//! to S. Time lowers S as it lowers the deficit, unless S is zero already, and then U <= outstanding <=
//! deficit, where the refill stops. An acquire never raises the deficit above the burst, so S never exceeds it: in
//! any time t at most burst + rate x t are spent.
//!
//! **Obligations of a POP** (U <= outstanding):
//!
//! 1. It spends an epoch's tokens up to the largest `charged` it has received, and until the lease of the
//!    newest reply ends: `lease_ms` after it *made* the report, by a monotonic clock of its own.
//! 2. A reply whose lease is over when it arrives, or that is for another epoch, is ignored entirely.
//! 3. When a lease ends, its epoch ends, too: no reply brings it back, and the next report begins a new one,
//!    with a name never used before and nothing admitted.
//! 4. A reply with `lease_ms` zero, from a store in reach, means that the epoch is over.
//! 5. A report with `ahead` zero gives an epoch back, with its last count. It is made once the POP has begun a new one.
//!
//! **Held epochs.** A request whose cost is known only later acquires an estimate for an epoch of its own, and holds it
//! until then: no report before that counts any of it as spent. The proof covers it, since its tokens may be spent at
//! any moment of that time. Each report sets the length of its lease, and reports repeat that while the request is in
//! progress. When the request has ended, the epoch is given back, with the request's cost as its last count. If that is
//! more than was debited, the rest is debited then, whatever the level is, so that the deficit may exceed the burst.
//! That is debt, and no tokens are given until it is paid. It is charged only once, because the epoch stays on record
//! as over. If no such report arrives in time, the estimate counts as spent, and a cost beyond it is never charged.
//!
//! **Takes.** A claim may *take* tokens instead: all of them are debited, or none, and they count as spent when
//! they are debited. In the proof a take raises the deficit and S by the same amount at that moment, and U not
//! at all. So nothing of it is outstanding, no epoch is on record, and no lease has to end. Its request goes on
//! a little later, as with every limiter across a network: the bound applies to the times of the takes. The
//! loss of a reply costs its tokens. A take is never given back automatically: its tokens may have refilled
//! meanwhile, as no outstanding tokens held up the refill, and would then come back twice.
//!
//! **Charges and refunds.** A *charge* debits tokens that were spent without a claim. It is made whatever the
//! level is, so the deficit may exceed the burst, as with a held epoch. A *refund* is a caller's statement that
//! tokens were not spent. It lowers the deficit, but never below the outstanding tokens. In any time t at most
//! burst + rate x t + the refunds in t are spent.
//!
//! For the budget a lease lasts longer than for the POP by one part in [`DRIFT_PART`], and starts when the report
//! arrived, so the POP's ends first. Tokens not spent by the end count as spent, since they may have been.
//!
//! **Refill policies.** Each acquire contains a [`RefillPolicy`]; everything else is the same for all policies. The
//! above is continuous refill: a token bucket. Under [`RefillPolicy::Window`] nothing refills: the tokens debited in a
//! window and not given back are at most the quota's count, and zero again when the next window begins. Under
//! [`RefillPolicy::Sliding`], they are added to the same number of the previous window, scaled by the part of it that a
//! window ending now would still cover, and the sum is at most the quota's count. Under [`RefillPolicy::Log`] each
//! token counts from its debit until some time after it was spent.
//!
//! *No window gives more than its count.* A token is spent in the window it was debited in, since no lease ends
//! later than its window: leases are cut so that even a POP whose clock is slower by one part in [`DRIFT_PART`]
//! ends them in time. So nothing is outstanding when a window begins, and tokens that are given back were
//! debited in the same window. (Tokens that requests hold may be outstanding when a window begins, and so may
//! any tokens if the store's clock is observed to jump ahead: these count as debited in both windows.)
//!
//! *A sliding window counts no more when a token is spent than when it was debited.* Both are in one window, in which
//! the previous one only loses weight. So a limiter that counts spent tokens by the same policy would allow all.
//!
//! *A log never holds more spent tokens than the burst.* A token counts from its debit until its length after
//! the first acquire that reports it as spent, or after the end of its lease: at least its length after it was
//! spent. Of the tokens that are spent within the length, consider the one that was debited last. It was spent
//! after that, so all the others, which were spent less than a length before that or later, counted then. And
//! no debit raises the count above the burst.
//!
//! *No two turns overlap.* Under [`RefillPolicy::Queue`] nothing is leased: a turn counts as spent when it is
//! given, and the deficit is its only record, the time that all turns given so far still take. An acquire gives the
//! time after that, and time lowers the deficit by itself. So turns follow one another by the budget's clock,
//! whichever POP gets them, and the wait for one is never longer than the queue. A turn starts when its reply
//! arrives, so no request goes on before its turn. One reply may take as long as it is waited for, and the next one
//! less; so two requests may follow each other closer than their turns, by that difference. An unused turn passes:
//! a lost reply, or an acquire that is made twice, lets fewer requests through.
//!
//! *Current window.* The store's clock determines the window, so all agree. If windows have one length, it
//! determines their ends, too. For months, the weir-sync that acquires computes the boundaries, and its clock may
//! differ: the first of its boundaries after the store's time ends the store's window
//! ([`weir_protocol::calendar::Window::end_at`]). A window that was entered holds until it ends, so a weir-sync
//! with another clock can begin the next neither early nor twice. If the store's clock steps back, the window
//! lasts longer, but by less than its length: if windows have one length, its end is shifted with the clock by
//! whole lengths. The same applies if the clock is observed to jump ahead.

mod acquire;
mod policies;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_protocol::calendar::Calendar;
use weir_protocol::messages::Leased;
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::refill_policy::RefillPolicy;

use self::acquire::price_ns;
pub use self::acquire::{
    ASK_AGAIN_US, AcquireRequest, AcquireResult, CALENDAR_LEASE_US_MAX, Claim, ClaimKind, DRIFT_PART, EscrowId,
    HELD_US_MAX, LEASE_US_MAX, LEASE_US_MIN, WINDOW_TOKEN_NS, longer_us,
};
pub use self::policies::STEP_US;
use self::policies::{Log, room_at_us, weighed};
use crate::budget::{COUNT_MAX, DEFICIT_NS_MAX, SourceId};
use crate::store_clock::StoreTime;

/// Maximum number of epochs with leased tokens per budget; beyond it nothing is leased.
pub const HOLDERS_MAX: usize = 1_024;
/// Time for which an epoch is remembered after its lease, in microseconds, unless its place is needed: a delayed report
/// then acquires no tokens that nobody would spend.
pub const ENDED_KEPT_US: u64 = LEASE_US_MAX;

/// No lease: the epoch is over, or the store is out of reach.
pub const NO_LEASE: Leased = Leased::NONE;

/// State of one strict budget; a new one is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Escrow {
    /// Nanoseconds of refill until full. For windows, [`WINDOW_TOKEN_NS`] for each token that was debited in
    /// the window and not given back; for a log, for each token that counts.
    deficit_ns: u64,
    /// End of the window; zero with continuous refill, and before any window was entered.
    end_us: u64,
    /// Time for which the window is remembered after its end; for a log, time for which a spent token counts.
    kept_us: u64,
    /// For sliding windows, tokens that were debited in the previous window and not given back.
    before: u64,
    log: Log,
    at_us: u64,
    holders: BTreeMap<SourceId, Holder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    charged: u64,
    /// Number of tokens known to be spent, at most `charged`.
    spent: u64,
    /// End of its lease, in microseconds of the store's clock.
    until_us: u64,
}

#[derive(Clone, Copy)]
struct Lease {
    /// Length of the lease for the POP, in milliseconds; 0 if none can be given.
    ms: u32,
    /// End of the lease for the budget; without a lease, the end of the window.
    until_us: u64,
}

impl Escrow {
    /// Answers the claims of `pop` in order: debits the wanted tokens as far as the level allows.
    ///
    /// A claim is refused if its epoch's lease has ended, or if it reports more tokens as spent than are on record: the
    /// record was lost, and the POP must begin a new epoch. If the end of the store's window is unknown, or too soon
    /// for any lease, only epochs that requests hold get tokens. A take needs a known window, but no lease.
    pub fn acquire(&mut self, time: impl Into<StoreTime>, pop: &str, acquire: &AcquireRequest) -> AcquireResult {
        let time = time.into();
        let (now_us, is_new) = (time.now_us, *self == Self::default());
        self.step(time, acquire);
        let lease = self.refill(now_us, acquire);
        self.holders.retain(|_, holder| now_us.saturating_sub(holder.until_us) < ENDED_KEPT_US);
        let mut given = 0;
        let answer = |claim: &Claim| {
            let id = SourceId { epoch: claim.epoch, pop: pop.into() };
            let (leased, tokens) = self.answer(now_us, id, acquire, *claim, lease);
            given += tokens;
            leased
        };
        let mut leases: Vec<_> = acquire.claims.iter().map(answer).collect();
        let left = u32::try_from(self.level(now_us, acquire)).unwrap_or(u32::MAX);
        let may_take = self.may_take(now_us, acquire.refill_policy);
        let gets_level = |claim: &Claim| match claim.kind {
            ClaimKind::Lease => false,
            ClaimKind::Charge => may_take || acquire.refill_policy == RefillPolicy::Queue,
            ClaimKind::Take | ClaimKind::Refund => may_take,
        };
        for (lease, claim) in leases.iter_mut().zip(&acquire.claims) {
            if lease.lease_ms > 0 || gets_level(claim) {
                lease.left = left;
            }
        }
        let counts_ns = self.deficit_ns.saturating_add(self.before_ns(now_us, acquire));
        let (deficit_ns, outstanding) = (acquire.reply_deficit_ns(counts_ns), self.held_after(now_us));
        acquire.record_returns(&mut leases, outstanding);
        if is_new && given == 0 {
            // Nothing happened that needs a record.
            *self = Self::default();
        }
        AcquireResult { deficit_ns, outstanding, given, now_us, leases }
    }

    /// Time of the store's clock at which this budget may be dropped, in microseconds: by then it equals a new one.
    pub fn full_us(&self) -> u64 {
        let last_us = self.holders.values().map(|holder| holder.until_us).fold(self.at_us, u64::max);
        if let Some(end_us) = self.window_ends_us() {
            return end_us.max(last_us).saturating_add(self.kept_us);
        }
        last_us.saturating_add(self.deficit_ns.div_ceil(1_000)).saturating_add(self.kept_us)
    }

    /// End of the budget's window, in microseconds of the store's clock; `None` before the first window.
    pub fn window_ends_us(&self) -> Option<u64> {
        (self.end_us > 0).then_some(self.end_us)
    }

    pub fn deficit_ns(&self) -> u64 {
        self.deficit_ns
    }

    /// Shifts all times by a step of the clock, so that nothing refills, and leases last for as long as they
    /// had left. A window is shifted by whole windows, so that it ends where windows do.
    fn step(&mut self, time: StoreTime, acquire: &AcquireRequest) {
        let ahead_us = time.skipped_us(self.at_us);
        let back_us = self.at_us.saturating_sub(time.now_us);
        let move_on = |us: &mut u64| *us = us.saturating_add(ahead_us).saturating_sub(back_us);
        if ahead_us > 0 || back_us > 0 {
            move_on(&mut self.at_us);
            self.holders.values_mut().for_each(|holder| move_on(&mut holder.until_us));
            self.log.times_mut().for_each(move_on);
            if self.end_us > 0 {
                // Zero if windows differ in length.
                let even = acquire.refill_policy.windows().filter(|calendar| calendar.even().is_some());
                let length_us = even.map_or(0, Calendar::longest_us);
                let whole = |us: u64| us.checked_div(length_us).map_or(0, |windows| windows * length_us);
                self.end_us = self.end_us.saturating_add(whole(ahead_us)).saturating_sub(whole(back_us));
            }
        }
    }

    /// Refills up to `now_us` under the policy of `acquire`. Returns the lease for claims at that time; its length
    /// is zero if its window ends too soon, or at an unknown time.
    fn refill(&mut self, now_us: u64, acquire: &AcquireRequest) -> Lease {
        let (mut leased_us, mut until_us) = (acquire.leased_us(), now_us.saturating_add(acquire.held_us()));
        if acquire.refill_policy.is_by_rate() {
            self.refill_steadily(now_us, acquire.token_ns());
        } else if let Some(counts_us) = acquire.refill_policy.counts_us() {
            self.refill_one_by_one(now_us, counts_us);
        } else {
            self.at_us = now_us;
            let known_us = if now_us < self.end_us { Some(self.end_us) } else { acquire.end_us(now_us) };
            let Some(end_us) = known_us else { return Lease { ms: 0, until_us: now_us } };
            // An acquire that leases nothing applies to the current window, however soon that ends.
            let is_of_the_moment = acquire.claims.is_empty() || acquire.claims.iter().any(Claim::is_at_once);
            let left_us = end_us - now_us;
            if left_us < acquire.held_us() {
                (leased_us, until_us) = (left_us * DRIFT_PART / (DRIFT_PART + 1), end_us);
            }
            if (leased_us >= LEASE_US_MIN || is_of_the_moment) && self.end_us != end_us {
                self.enter(now_us, end_us, acquire);
            }
        }
        Lease { ms: u32::try_from(leased_us / 1_000).unwrap_or(u32::MAX), until_us }
    }

    fn enter(&mut self, now_us: u64, end_us: u64, acquire: &AcquireRequest) {
        let is_next = |length_us| self.end_us > 0 && self.end_us.checked_add(length_us) == Some(end_us);
        self.before = match sliding_us(acquire) {
            Some(length_us) if is_next(length_us) => (self.deficit_ns / WINDOW_TOKEN_NS).min(TOKENS_MAX.into()),
            // The previous window had no acquires, but tokens held by requests may have been spent in it.
            Some(length_us) => self.held_after(end_us.saturating_sub(2 * length_us)).min(TOKENS_MAX.into()),
            None => 0,
        };
        self.deficit_ns = price_ns(self.held_after(now_us), WINDOW_TOKEN_NS);
        (self.end_us, self.kept_us) = (end_us, acquire.kept_us());
    }

    /// Tokens that may have been spent later than at `us`: those not given back, of leases that end after it.
    fn held_after(&self, us: u64) -> u64 {
        self.holders.values().filter(|holder| holder.until_us > us).map(Holder::unspent).sum()
    }

    /// Weight of the previous window, in units of the deficit.
    fn before_ns(&self, now_us: u64, acquire: &AcquireRequest) -> u64 {
        let left_us = self.end_us.saturating_sub(now_us);
        sliding_us(acquire).map_or(0, |length_us| weighed(self.before, left_us, length_us) * WINDOW_TOKEN_NS)
    }

    /// Refills continuously up to `now_us`, never to more than the burst less the tokens outstanding *at each
    /// moment*: refill that a lease held up begins when the lease ends, and is not made up for.
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

    /// Counts the unspent tokens of ended leases as spent; drops tokens that were spent more than `counts_us` ago.
    fn refill_one_by_one(&mut self, now_us: u64, counts_us: u64) {
        let ended = |holder: &&Holder| (self.at_us + 1..=now_us).contains(&holder.until_us);
        let mut ends: Vec<_> =
            self.holders.values().filter(ended).map(|holder| (holder.until_us, holder.unspent())).collect();
        ends.sort_unstable();
        (self.at_us, self.kept_us) = (now_us, counts_us);
        for (until_us, unspent) in ends {
            self.log.add(until_us.saturating_add(counts_us), unspent);
        }
        self.fade(now_us);
    }

    /// Adds `tokens` that may have been spent as late as `us`, if the policy has a log.
    fn record_spent(&mut self, us: u64, tokens: u64, refill_policy: RefillPolicy) {
        if refill_policy.counts_us().is_some() {
            self.log.add(us.saturating_add(self.kept_us), tokens);
        }
    }

    fn fade(&mut self, now_us: u64) {
        let faded = price_ns(self.log.fade(now_us), WINDOW_TOKEN_NS);
        self.deficit_ns = self.deficit_ns.saturating_sub(faded);
    }

    fn pass(&mut self, to_us: u64, outstanding: u64, token_ns: u64) {
        let refilled = self.deficit_ns.saturating_sub((to_us - self.at_us).saturating_mul(1_000));
        self.deficit_ns = refilled.max(price_ns(outstanding, token_ns));
        self.at_us = to_us;
    }

    /// Returns the result of a claim, and the number of tokens that it debited.
    fn answer(
        &mut self,
        now_us: u64,
        id: SourceId,
        acquire: &AcquireRequest,
        claim: Claim,
        lease: Lease,
    ) -> (Leased, u64) {
        match claim.kind {
            ClaimKind::Charge => return self.charge(now_us, acquire, claim.ahead),
            ClaimKind::Refund => return self.refund(now_us, acquire, claim.ahead),
            ClaimKind::Lease | ClaimKind::Take if acquire.refill_policy == RefillPolicy::Queue => {
                return self.take_turn(acquire, claim, lease);
            }
            ClaimKind::Take => return self.take(now_us, acquire, claim.ahead),
            ClaimKind::Lease => {}
        }
        let mut holder = match self.holders.get(&id).copied() {
            Some(known) if claim.is_settled() && claim.spent() > known.charged && !known.is_over(now_us) => {
                return (NO_LEASE, self.overdraw(now_us, id, known, claim, acquire));
            }
            // Leases begin again with the next window, which is near.
            _ if lease.ms == 0 && claim.ahead > 0 && claim.held_us.is_none() => {
                return (Leased { wait_ms: (lease.until_us - now_us).div_ceil(1_000), ..NO_LEASE }, 0);
            }
            Some(known) if known.until_us > now_us && claim.spent() <= known.charged => known,
            None if claim.spent() == 0 && claim.ahead > 0 && lease.ms > 0 && self.has_room(now_us) => Holder::NEW,
            _ => return (NO_LEASE, 0),
        };
        let more = claim.spent().saturating_sub(holder.spent);
        holder.spent += more;
        self.record_spent(now_us, more, acquire.refill_policy);
        self.fade(now_us);
        if claim.ahead == 0 {
            self.take_back(now_us, id, holder, acquire.token_ns());
            return (NO_LEASE, 0);
        }
        let wanted = if lease.ms > 0 { (claim.spent() + u64::from(claim.ahead)).min(COUNT_MAX) } else { 0 };
        let lease = claim.leased_us().map_or(lease, |us| Lease::held(us, now_us));
        let need = wanted.saturating_sub(holder.charged);
        let tokens = need.min(self.level(now_us, acquire));
        self.deficit_ns += tokens * acquire.token_ns();
        holder.charged += tokens;
        holder.until_us = holder.until_us.max(lease.until_us);
        // An epoch without tokens needs no record.
        if holder.charged > 0 {
            self.holders.insert(id, holder);
        }
        let wait_us = if tokens < need { self.wait_us(now_us, 1, holder.unspent(), acquire) } else { 0 };
        (Leased { wait_ms: wait_us.div_ceil(1_000), ..Leased::of(holder.charged, lease.ms) }, tokens)
    }

    /// Consumes all of `tokens`, or none; returns the same as [`Escrow::answer`].
    fn take(&mut self, now_us: u64, acquire: &AcquireRequest, tokens: u32) -> (Leased, u64) {
        if !self.may_take(now_us, acquire.refill_policy) {
            return (NO_LEASE, 0);
        }
        let wanted = u64::from(tokens);
        if wanted > self.level(now_us, acquire) {
            let wait_ms = self.wait_us(now_us, tokens, u64::MAX, acquire).div_ceil(1_000);
            return (Leased { wait_ms, ..NO_LEASE }, 0);
        }
        self.deficit_ns += wanted * acquire.token_ns();
        self.record_spent(now_us, wanted, acquire.refill_policy);
        (Leased::of(wanted, 0), wanted)
    }

    fn charge(&mut self, now_us: u64, acquire: &AcquireRequest, tokens: u32) -> (Leased, u64) {
        if !self.may_take(now_us, acquire.refill_policy) && acquire.refill_policy != RefillPolicy::Queue {
            return (NO_LEASE, 0);
        }
        let wanted = u64::from(tokens);
        let price_ns = price_ns(wanted, acquire.token_ns());
        self.deficit_ns = self.deficit_ns.saturating_add(price_ns).min(DEFICIT_NS_MAX);
        self.record_spent(now_us, wanted, acquire.refill_policy);
        (Leased::of(wanted, 0), wanted)
    }

    /// Gives `tokens` back, at most the deficit less the outstanding ones. Fails for turns and places in flight.
    fn refund(&mut self, now_us: u64, acquire: &AcquireRequest, tokens: u32) -> (Leased, u64) {
        if !self.may_take(now_us, acquire.refill_policy) {
            return (NO_LEASE, 0);
        }
        let mut back = u64::from(tokens);
        if acquire.refill_policy.counts_us().is_some() {
            back = self.log.remove(back);
        }
        let least_ns = price_ns(self.held_after(now_us), acquire.token_ns());
        let after_ns = self.deficit_ns.saturating_sub(price_ns(back, acquire.token_ns()));
        self.deficit_ns = self.deficit_ns.min(after_ns.max(least_ns));
        (Leased::of(tokens.into(), 0), 0)
    }

    /// True if tokens can be consumed at once: their window must be known, and they must not be places or turns.
    fn may_take(&self, now_us: u64, refill_policy: RefillPolicy) -> bool {
        match refill_policy {
            RefillPolicy::Continuous | RefillPolicy::Log(_) => true,
            RefillPolicy::Window(_) | RefillPolicy::Sliding(_) => now_us < self.end_us,
            RefillPolicy::InFlight(_) | RefillPolicy::Queue => false,
        }
    }

    /// Time until the level is `tokens`, which is more than now. If other claims may give back tokens of a window or
    /// places in flight, it is the time to ask again; `own` is this claim's part of the outstanding tokens.
    fn wait_us(&self, now_us: u64, tokens: u32, own: u64, acquire: &AcquireRequest) -> u64 {
        let is_elsewhere = self.held_after(now_us) > own;
        let given_back = |us: u64| if is_elsewhere { us.min(acquire.ask_again_us()) } else { us };
        match acquire.refill_policy {
            RefillPolicy::Continuous | RefillPolicy::Queue => {
                let lacking_ns = self.deficit_ns.saturating_add(price_ns(tokens.into(), acquire.token_ns()));
                lacking_ns.saturating_sub(full_ns(acquire)).div_ceil(1_000)
            }
            RefillPolicy::Sliding(_) => self.fades_us(now_us, tokens, acquire),
            RefillPolicy::Log(length_s) => {
                // Leased tokens count for a length after the end of their lease.
                let leased_us = acquire.held_us() + u64::from(length_s) * 1_000_000;
                self.log.first_us().map_or(leased_us, |end_us| end_us - now_us)
            }
            RefillPolicy::Window(_) => given_back(self.end_us - now_us),
            RefillPolicy::InFlight(_) => {
                given_back(self.log.first_us().map_or(acquire.ask_again_us(), |end_us| end_us - now_us))
            }
        }
    }

    /// Time until `tokens` fit a sliding window: enough of the previous window, or later of this one, must have faded.
    fn fades_us(&self, now_us: u64, tokens: u32, acquire: &AcquireRequest) -> u64 {
        let Some(length_us) = sliding_us(acquire) else { return 0 };
        let (left_us, used) = (self.end_us - now_us, self.deficit_ns / WINDOW_TOKEN_NS);
        let room = u64::from(acquire.quota.burst()).saturating_sub(tokens.into());
        match room.checked_sub(used) {
            Some(room) => left_us.saturating_sub(room_at_us(self.before, room, length_us)),
            None => left_us.saturating_add(length_us - room_at_us(used, room, length_us)),
        }
    }

    /// Ends a lease early, and refunds its unspent tokens, which the POP will no longer spend.
    fn take_back(&mut self, now_us: u64, id: SourceId, mut holder: Holder, token_ns: u64) {
        self.deficit_ns = self.deficit_ns.saturating_sub(price_ns(holder.unspent(), token_ns));
        (holder.spent, holder.until_us) = (holder.charged, now_us);
        self.holders.insert(id, holder);
    }

    /// Ends an epoch whose request cost more than was debited for it, and debits the rest; returns that number
    /// of tokens. If its lease has ended already, its tokens count as spent.
    fn overdraw(
        &mut self,
        now_us: u64,
        id: SourceId,
        mut holder: Holder,
        claim: Claim,
        acquire: &AcquireRequest,
    ) -> u64 {
        let tokens = (claim.spent() - holder.charged).min(TOKENS_MAX.into());
        let price_ns = price_ns(tokens, acquire.token_ns());
        self.deficit_ns = self.deficit_ns.saturating_add(price_ns).min(DEFICIT_NS_MAX);
        let unspent = if holder.until_us > now_us { holder.unspent() } else { 0 };
        self.record_spent(now_us, unspent + tokens, acquire.refill_policy);
        // The last count stays on record, so a report that repeats it charges nothing.
        (holder.charged, holder.spent) = (claim.spent(), claim.spent());
        holder.until_us = holder.until_us.min(now_us);
        self.holders.insert(id, holder);
        tokens
    }

    fn level(&self, now_us: u64, acquire: &AcquireRequest) -> u64 {
        let left_ns = full_ns(acquire).saturating_sub(self.deficit_ns);
        left_ns.saturating_sub(self.before_ns(now_us, acquire)) / acquire.token_ns()
    }

    /// True if one more epoch can be recorded; if there is no room, those that have ended are dropped.
    fn has_room(&mut self, now_us: u64) -> bool {
        if self.holders.len() >= HOLDERS_MAX {
            self.holders.retain(|_, holder| holder.until_us > now_us);
        }
        self.holders.len() < HOLDERS_MAX
    }
}

impl Lease {
    /// Lease for an epoch that a request holds for another `leased_us`; it may outlast its window.
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

    /// True if its final count is known: a request's cost is charged once.
    fn is_over(&self, now_us: u64) -> bool {
        self.until_us <= now_us && self.unspent() == 0
    }
}

/// Value of the full budget under its policy, in nanoseconds of refill.
fn full_ns(acquire: &AcquireRequest) -> u64 {
    price_ns(u64::from(acquire.quota.burst()), acquire.token_ns())
}

/// Length of sliding windows in microseconds; `None` under other policies.
fn sliding_us(acquire: &AcquireRequest) -> Option<u64> {
    if let RefillPolicy::Sliding(calendar) = acquire.refill_policy { Some(calendar.longest_us()) } else { None }
}
