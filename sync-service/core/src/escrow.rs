//! The budget of a strict rule: a token is debited before a POP may spend it.
//!
//! This is the escrow method (O'Neil, "The Escrow Transactional Method", ACM TODS 11(4), 1986). A POP
//! claims tokens for an *epoch* of its own; what the budget gives is debited at once and leased to that
//! epoch, and the POP spends it while the lease lasts. What is said is cumulative on both sides, so a
//! message that is lost, repeated or overtaken does no harm: the next one says it again.
//!
//! **Nothing is spent twice.** Tokens that are leased and not known to be spent are *outstanding*. Level
//! and outstanding together are never more than the burst: the refill stops there. Otherwise a POP
//! could hoard a burst while the budget refills, and both be spent at one moment. In a proof: let S be
//! the debt of an ideal bucket from which each token is taken when it is truly spent, and U what POPs
//! may still spend. Then S + U <= deficit at all times. A draw adds the same to U and to the deficit; a
//! spent token moves from U to S; time takes from S what it takes from the deficit, or S is zero
//! already, and then U <= outstanding <= deficit is what the refill stops for. The deficit is never
//! raised beyond the burst by a draw, so S never is: in any time t at most burst + rate x t are spent.
//!
//! **What a POP owes for it** (U <= outstanding):
//!
//! 1. It spends an epoch's tokens up to the largest `charged` it has heard, and until the lease of the
//!    newest answer ends: `lease_ms` after it *made* the report, by a monotonic clock of its own.
//! 2. An answer whose lease is over when it arrives, or that is for another epoch, is ignored whole.
//! 3. Where a lease has ended, so has its epoch: no answer brings it back, and the next report begins a
//!    new one, with a name never used before and nothing admitted.
//! 4. An answer with `lease_ms` zero, from a store in reach, says that the epoch is over.
//! 5. A report with `ahead` zero gives an epoch back: it is made once the POP has begun a new one, with
//!    the last count of the old.
//!
//! The budget holds a lease longer than the POP by one part in [`DRIFT_PART`], and from when the report
//! arrived, so it ends here last. What was not spent by then counts as spent: it may have been.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_limiter::calendar::Window;
use weir_limiter::quota::Quota;
use weir_limiter::wire::Leased;

use crate::budget::{BudgetId, COUNT_MAX, DEFICIT_NS_MAX, SourceId};

/// The most epochs that tokens of one budget are leased to at a time; beyond it nothing is leased.
pub const HOLDERS_MAX: usize = 1_024;
/// The shortest lease, in microseconds: none is told from it by its milliseconds.
pub const LEASE_US_MIN: u64 = 1_000;
/// The longest lease, in microseconds.
pub const LEASE_US_MAX: u64 = 10_000_000;
/// The longest lease of a calendar's quota, in microseconds.
pub const CALENDAR_LEASE_US_MAX: u64 = 600_000_000;
/// A lease lasts longer for the budget than for the POP by one part in this many: by so much may the
/// POP's clock be slower.
pub const DRIFT_PART: u64 = 64;
/// How long an epoch whose lease has ended is remembered, in microseconds, unless its place is needed.
/// Only so that a report which was held up takes no tokens that nobody would spend.
pub const ENDED_KEPT_US: u64 = LEASE_US_MAX;

/// When to ask again for what is given out and may yet be given back, in microseconds.
pub const ASK_AGAIN_US: u64 = 1_000_000;

/// What one report wants of one strict budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Which budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// How long the POP may spend what it is given, in microseconds; cut to what is between
    /// [`LEASE_US_MIN`] and [`LEASE_US_MAX`], of a calendar's quota [`CALENDAR_LEASE_US_MAX`].
    pub lease_us: u64,
    /// The window that a calendar's quota (see [`crate::tally`]) is in by the clock of the weir-sync that draws.
    pub window: Option<Window>,
    /// A claim for each of the POP's epochs, usually one.
    pub claims: Vec<Claim>,
}

/// What a POP wants for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch.
    pub epoch: u64,
    /// Tokens spent since the epoch began.
    pub admitted: u64,
    /// How many tokens beyond those it wants debited. Zero gives the epoch back.
    pub ahead: u32,
}

/// What a strict budget is after a draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Nanoseconds of refill until full.
    pub deficit_ns: u64,
    /// Tokens leased and not known to be spent.
    pub outstanding: u64,
    /// Tokens that this draw debited.
    pub given: u64,
    /// The store's clock at the draw, in microseconds.
    pub now_us: u64,
    /// An answer to each claim, in order.
    pub leases: Vec<Leased>,
}

/// No lease: the epoch is over, or the store is out of reach.
pub const NO_LEASE: Leased = Leased::NONE;

/// The state of one strict budget; a new one is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Escrow {
    deficit_ns: u64,
    at_us: u64,
    holders: BTreeMap<SourceId, Holder>,
}

/// An epoch that tokens were leased to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// All that was debited for it.
    pub(crate) charged: u64,
    /// What it is known to have spent, at most `charged`.
    pub(crate) spent: u64,
    /// When its lease ends, on the store's clock in microseconds.
    pub(crate) until_us: u64,
}

impl Draw {
    /// For how long a POP may spend what it is given, in milliseconds.
    pub fn lease_ms(&self) -> u32 {
        u32::try_from(self.leased_us() / 1_000).unwrap_or(u32::MAX)
    }

    /// For how long it counts as outstanding, in microseconds: longer.
    pub fn held_us(&self) -> u64 {
        self.leased_us() + self.leased_us().div_ceil(DRIFT_PART)
    }

    /// What `tokens` of it are worth, in nanoseconds of refill.
    pub fn price_ns(&self, tokens: u64) -> u64 {
        price_ns(tokens, self.quota.token_ns())
    }

    /// For how long a POP may spend what it is given, in microseconds.
    pub fn leased_us(&self) -> u64 {
        let most_us = if self.window.is_some() { CALENDAR_LEASE_US_MAX } else { LEASE_US_MAX };
        self.lease_us.clamp(LEASE_US_MIN, most_us)
    }
}

impl Claim {
    /// Tokens spent, within what a record holds.
    pub fn spent(&self) -> u64 {
        self.admitted.min(COUNT_MAX)
    }
}

impl Escrow {
    /// Answers the claims of `pop` in order: debits what they want and the level has.
    ///
    /// A claim is refused where its epoch's lease has ended, or it says that more was spent than was
    /// ever debited, or its epoch is not on record and yet has spent something: then the record was
    /// lost or forgotten, and the POP must begin a new epoch.
    pub fn draw(&mut self, now_us: u64, pop: &str, draw: &Draw) -> Drawn {
        self.refill(now_us, draw.quota.token_ns());
        self.holders.retain(|_, holder| now_us.saturating_sub(holder.until_us) < ENDED_KEPT_US);
        let mut given = 0;
        let answer = |claim: &Claim| {
            let id = SourceId { epoch: claim.epoch, pop: pop.into() };
            let (lease, tokens) = self.answer(now_us, id, draw, *claim);
            given += tokens;
            lease
        };
        let leases = draw.claims.iter().map(answer).collect();
        let outstanding = self.outstanding(now_us);
        Drawn { deficit_ns: self.deficit_ns, outstanding, given, now_us, leases }
    }

    /// When it is full and nothing is leased, if nobody draws until then, on the store's clock in
    /// microseconds: no sooner than that may it be forgotten.
    pub fn full_us(&self) -> u64 {
        let last_us = self.holders.values().map(|holder| holder.until_us).fold(self.at_us, u64::max);
        last_us.saturating_add(self.deficit_ns.div_ceil(1_000))
    }

    /// When it is worth nothing any more, on the store's clock in microseconds.
    pub fn expires_us(&self) -> u64 {
        self.full_us().saturating_add(ENDED_KEPT_US)
    }

    /// Nanoseconds of refill until full, as of the last draw.
    pub fn deficit_ns(&self) -> u64 {
        self.deficit_ns
    }

    /// How many epochs are on record.
    pub fn holders_len(&self) -> usize {
        self.holders.len()
    }

    /// Refills up to `now_us`, never to more than the burst less what is outstanding *at each moment*:
    /// where a lease ends, the refill that it held up begins then, and is not made up for.
    fn refill(&mut self, now_us: u64, token_ns: u64) {
        // A clock that stepped back refills nothing, and the leases last as long as they had left.
        let back_us = self.at_us.saturating_sub(now_us);
        self.at_us -= back_us;
        for holder in self.holders.values_mut() {
            holder.until_us = holder.until_us.saturating_sub(back_us);
        }
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

    /// Refills up to `to_us` while so much is outstanding.
    fn pass(&mut self, to_us: u64, outstanding: u64, token_ns: u64) {
        let refilled = self.deficit_ns.saturating_sub((to_us - self.at_us).saturating_mul(1_000));
        self.deficit_ns = refilled.max(price_ns(outstanding, token_ns));
        self.at_us = to_us;
    }

    fn outstanding(&self, now_us: u64) -> u64 {
        let live = self.holders.values().filter(|holder| holder.until_us > now_us);
        live.map(Holder::unspent).sum()
    }

    /// The answer to a claim, and how many tokens were debited for it.
    fn answer(&mut self, now_us: u64, id: SourceId, draw: &Draw, claim: Claim) -> (Leased, u64) {
        let mut holder = match self.holders.get(&id).copied() {
            Some(known) if known.until_us > now_us && claim.spent() <= known.charged => known,
            None if claim.spent() == 0 && claim.ahead > 0 && self.has_room(now_us) => Holder::NEW,
            _ => return (NO_LEASE, 0),
        };
        holder.spent = holder.spent.max(claim.spent());
        if claim.ahead == 0 {
            self.take_back(now_us, id, holder, draw.quota.token_ns());
            return (NO_LEASE, 0);
        }
        let need = (claim.spent() + u64::from(claim.ahead)).min(COUNT_MAX).saturating_sub(holder.charged);
        let tokens = need.min(self.level(draw.quota));
        self.deficit_ns += tokens * draw.quota.token_ns();
        holder.charged += tokens;
        holder.until_us = holder.until_us.max(now_us.saturating_add(draw.held_us()));
        // One that has got nothing yet needs no record.
        if holder.charged > 0 {
            self.holders.insert(id, holder);
        }
        let wait_ms =
            if tokens < need { self.wait_us(now_us, &holder, draw.quota).div_ceil(1_000) } else { 0 };
        (Leased { wait_ms, ..Leased::of(holder.charged, draw.lease_ms()) }, tokens)
    }

    /// When `holder` may ask again, with no whole token left: when one has refilled, or sooner where others hold
    /// what they may give back.
    fn wait_us(&self, now_us: u64, holder: &Holder, quota: Quota) -> u64 {
        let missing_ns = self.deficit_ns.saturating_add(quota.token_ns()).saturating_sub(quota.fill_ns());
        let refill_us = missing_ns.div_ceil(1_000);
        let is_elsewhere = self.outstanding(now_us) > holder.unspent();
        if is_elsewhere { refill_us.min(ASK_AGAIN_US) } else { refill_us }
    }

    /// Ends a lease before its time, and refunds what was not spent: the POP has said that it never
    /// will be.
    fn take_back(&mut self, now_us: u64, id: SourceId, mut holder: Holder, token_ns: u64) {
        self.deficit_ns = self.deficit_ns.saturating_sub(price_ns(holder.unspent(), token_ns));
        (holder.spent, holder.until_us) = (holder.charged, now_us);
        self.holders.insert(id, holder);
    }

    /// Whole tokens that may be given.
    fn level(&self, quota: Quota) -> u64 {
        quota.fill_ns().saturating_sub(self.deficit_ns) / quota.token_ns()
    }

    /// Whether one more epoch can be put on record; where it is tight, those that have ended make room.
    fn has_room(&mut self, now_us: u64) -> bool {
        if self.holders.len() >= HOLDERS_MAX {
            self.holders.retain(|_, holder| holder.until_us > now_us);
        }
        self.holders.len() < HOLDERS_MAX
    }
}

impl Holder {
    pub(crate) const NEW: Self = Self { charged: 0, spent: 0, until_us: 0 };

    pub(crate) fn unspent(&self) -> u64 {
        self.charged - self.spent
    }
}

/// What tokens are worth, in nanoseconds of refill, within what a deficit holds.
fn price_ns(tokens: u64, token_ns: u64) -> u64 {
    tokens.saturating_mul(token_ns).min(DEFICIT_NS_MAX)
}
