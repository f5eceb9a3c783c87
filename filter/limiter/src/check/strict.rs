//! Spending a strict rule's tokens, for which the budget was debited beforehand.

use crate::algorithms::concurrency::RETRY_NS;
use crate::algorithms::{Admitted, Bucket, BucketStatus, Receipt, concurrency, leaky_bucket};
use crate::check::cells::{Cells, take_cells};
use crate::check::decision::{AcquireState, Hit, HitDecision, HitResult};
use crate::check::evaluate::Evaluation;
use crate::check::terms::RuleTerms;
use crate::table::slot::{BAR_STEP_NS, Entry, Placement, Slot, Tag};
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::{Algorithm, Concurrency};

/// Maximum wait, in nanoseconds, for a client whose key got neither tokens nor a time for the next ones from weir-sync.
/// The wait is the refill time of its tokens, up to this.
const UNPAID_WAIT_NS_MAX: u64 = SECOND_NS;
/// Time in nanoseconds after which tokens are requested again for a strict rule's key that got none, so that a manual
/// change of its budget takes effect. For a calendar quota they are not requested before its window ends.
const BARRED_NS_MAX: u64 = 60 * SECOND_NS;

impl Evaluation<'_> {
    /// Spends leased tokens if there are enough. Otherwise the decision is to acquire some, or to wait.
    pub(crate) fn spend(
        &self,
        hit: &Hit,
        placement: Placement,
        terms: &RuleTerms,
        slot: &mut Slot,
        now: Time,
    ) -> HitResult {
        if terms.has_turns {
            return self.take_turn(hit, terms, now);
        }
        let (quota, cost) = (&terms.quota, hit.cost);
        let refused = |decision| HitResult::refused(decision, hit.tag);
        let timeout_ns = self.sync.map_or(0, |sync| sync.timeout_ns);
        // A request in flight may last until its epoch ends, so it must begin that much earlier.
        let begins_by = now + terms.in_flight.map_or(0, |flight| flight.expires_ns());
        let tokens = self.current.acquired.iter().find(|tokens| tokens.tag == hit.tag && begins_by < tokens.until);
        // A request that reserves does not spend shared tokens, because they could not be given back separately.
        let (on_hand, elsewhere, awaited) = match placement.entry {
            Entry::Watched(w) if !self.rules.reserves(hit.rule, self.current.is_reserving) => {
                // Tokens that others wait for are reserved. After a wait, all answered requests find enough.
                let acquired = tokens.filter(|tokens| tokens.reported.epoch == w.epoch);
                let reserved = if acquired.is_some() { 0 } else { w.awaited(timeout_ns, now) };
                let on_hand = w.on_hand(begins_by).saturating_sub(reserved);
                (on_hand, w.left(), acquired.map_or(0, |acquired| acquired.reported.awaited))
            }
            _ => (0, tokens.map_or(0, |tokens| tokens.left), 0),
        };
        // Clients are shown the sum of the tokens held here and those left in the budget at the last reply.
        let fits = |left: u32| {
            let bucket = Bucket::FULL.held_to(quota, left.saturating_add(elsewhere), now);
            refused(HitDecision::Fits(BucketStatus::allowed(bucket, quota, now)))
        };
        if let (Entry::Watched(mut watched), true) = (placement.entry, on_hand >= cost) {
            watched.spend(cost, now);
            watched.end_waiting(awaited);
            // The bucket is used only while the POP is offline, by `on_sync_loss`. The entry stays in its slot until
            // the bucket is full, which could take a month for a calendar quota.
            if terms.on_sync_loss != OnSyncLoss::Deny && !terms.is_calendar && terms.in_flight.is_none() {
                watched.bucket = watched.bucket.charged(quota, cost, now);
            }
            // Always fits: the entry exists already.
            let _ = slot.put_back(&placement, &Entry::Watched(watched), now);
            let left = watched.on_hand(begins_by).saturating_sub(watched.awaited(timeout_ns, now));
            return match &terms.in_flight {
                Some(flight) => {
                    let left = left.saturating_add(elsewhere);
                    begin(hit, &Algorithm::Concurrency(*flight), left, slot, now)
                }
                None => fits(left),
            };
        }
        let acquired = tokens.map_or(0, |tokens| tokens.tokens);
        // Tokens that a request acquired for itself are given back if it acquires again.
        let is_over = self.current.connectivity.acquired == AcquireState::Over;
        if acquired >= cost && !is_over {
            return fits(0);
        }
        let (barred_ns, since_ns) = match placement.entry {
            Entry::Watched(watched) => (watched.barred_ns(now), watched.since_update_ns(now)),
            Entry::Cold(_) => (0, 0),
        };
        if self.current.connectivity.may_acquire() && (barred_ns == 0 || since_ns >= BARRED_NS_MAX) {
            return refused(HitDecision::Unpaid);
        }
        let refill_ns = |tokens: u32| quota.token_ns().saturating_mul(tokens.into());
        // Missing tokens refill one after another, but those of a window all at once.
        let missing_ns = |tokens: u32| if terms.is_calendar { 0 } else { refill_ns(tokens.saturating_sub(1)) };
        let known_ns = if barred_ns > 0 { barred_ns.saturating_add(BAR_STEP_NS) } else { 0 };
        let wait_ns = match tokens.map_or(known_ns, |acquired| acquired.more_at.nanos_since(now)) {
            0 => refill_ns(cost).min(UNPAID_WAIT_NS_MAX),
            more_ns => {
                let lacks = cost.saturating_sub(on_hand).saturating_sub(acquired).min(quota.burst());
                more_ns.saturating_add(missing_ns(lacks))
            }
        };
        refused(HitDecision::Short { wait_ns })
    }
}

// Turns in a queue that the fleet's budget keeps: a strict leaky bucket. Each request acquires its own turn. Nothing
// about it is stored in the key's slot, and an unused turn is lost.

impl Evaluation<'_> {
    /// Uses the turn that was acquired for the request, if there is one and the request can be held until then.
    fn take_turn(&self, hit: &Hit, terms: &RuleTerms, now: Time) -> HitResult {
        let (quota, cost) = (&terms.quota, hit.cost);
        let refused = |decision| HitResult::refused(decision, hit.tag);
        if cost > quota.burst() {
            return refused(HitDecision::Short { wait_ns: quota.fill_ns() });
        }
        let turn_ns = quota.token_ns().saturating_mul(cost.into());
        let beyond = |until_ns: u64| until_ns.saturating_add(turn_ns).saturating_sub(quota.fill_ns());
        let acquired = self.current.acquired.iter().find(|tokens| tokens.tag == hit.tag);
        // A peek returns the time of its turn, but takes none.
        let (fits, left, wait_ns, short_ns) = match acquired {
            // The lease, and with it the turn, had ended when the reply arrived.
            _ if self.current.connectivity.acquired == AcquireState::Over => {
                return refused(HitDecision::Unpaid);
            }
            None if self.current.connectivity.may_acquire() => return refused(HitDecision::Unpaid),
            None => (false, 0, turn_ns, turn_ns),
            Some(acquired) => {
                let wait_ns = acquired.more_at.nanos_since(now);
                if self.current.only_asks {
                    (acquired.left >= cost, acquired.left.saturating_sub(cost), wait_ns, beyond(wait_ns))
                } else {
                    (acquired.tokens >= cost, acquired.left, wait_ns, wait_ns)
                }
            }
        };
        if fits && (wait_ns == 0 || self.current.may_hold || self.current.only_asks) {
            let bucket = Bucket::FULL.held_to(quota, left, now);
            let fits = HitDecision::Fits(BucketStatus::allowed(bucket, quota, now));
            return HitResult { taken: Some(Admitted { receipt: Receipt::NONE, hold_ns: wait_ns }), ..refused(fits) };
        }
        refused(HitDecision::Short { wait_ns: short_ns })
    }
}

// Requests in flight under a rule that the whole fleet counts. A key's entry holds the POP's places: `charged -
// admitted` are free, and `admitted` ones are taken by requests in flight or were given back. A cell beside the entry
// counts the requests in flight, so a request whose end is never seen expires. Reports state the difference between
// `admitted` and that cell: the places given back.

/// Tag of the cell that counts the requests in flight of the key `tag`.
pub(crate) const fn cell_of(tag: Tag) -> Tag {
    tag.beside(1)
}

pub(crate) fn in_flight(slot: &Slot, tag: Tag, flight: &Concurrency, now: Time) -> u32 {
    let Some(Entry::Cold(cold)) = slot.get(cell_of(tag)) else { return 0 };
    concurrency::in_flight(flight, cold.cell(), now)
}

pub(crate) fn free(slot: &mut Slot, tag: Tag, ended: u32, now: Time) {
    if let Some(Entry::Watched(mut watched)) = slot.get(tag) {
        watched.admitted = watched.admitted.saturating_sub(ended);
        // Always fits: the entry exists already.
        let _ = slot.put(tag, &Entry::Watched(watched), now);
    }
}

impl Evaluation<'_> {
    /// Evaluates a hit while the POP is offline, if the fleet counts the rule's queue or requests in flight: this POP's
    /// own count against the whole limit, or against its fair share if `is_share`.
    #[inline(never)]
    pub(super) fn evaluate_offline(
        &self,
        hit: &Hit,
        placement: &Placement,
        terms: &RuleTerms,
        is_share: bool,
        slot: &mut Slot,
        now: Time,
    ) -> Option<HitResult> {
        let pops = if is_share { self.pops() } else { 1 };
        let algorithm = match terms.in_flight {
            _ if terms.has_turns => Algorithm::LeakyBucket(leaky_bucket::shared_by(&terms.quota, pops)),
            flight => Algorithm::Concurrency(flight?.shared_by(pops)),
        };
        if let Entry::Watched(mut watched) = placement.entry {
            watched.spend(hit.cost, now);
            // Always fits: the entry exists already.
            let _ = slot.put_back(placement, &Entry::Watched(watched), now);
        }
        Some(begin(hit, &algorithm, u32::MAX, slot, now))
    }
}

/// Puts the request of `hit` in flight, or assigns it a turn. Its place is taken already; `left` remain free.
fn begin(hit: &Hit, algorithm: &Algorithm, left: u32, slot: &mut Slot, now: Time) -> HitResult {
    let cells = Cells::at(slot, cell_of(hit.tag), 1);
    let begun = take_cells(cells, hit, algorithm, slot, now);
    let no_room = HitDecision::Short { wait_ns: RETRY_NS };
    let mut result = begun.unwrap_or(HitResult::refused(no_room, hit.tag));
    result.tag = hit.tag;
    if let HitDecision::Fits(status) = &mut result.decision {
        *status = BucketStatus { remaining: left.min(status.remaining), ..*status };
    }
    result
}
