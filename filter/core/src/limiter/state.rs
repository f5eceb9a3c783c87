//! The limiter of one worker.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::identity::{Reporter, TableIdentity};
use crate::RuleIndex;
use crate::counters::Counters;
use crate::decide::Plain;
use crate::decide::{EndAction, KeyCache, RuleTerms, Scratch};
#[cfg(feature = "takes")]
use crate::fleet::ConsumeState;
use crate::fleet::{AcquiredTokens, OwnEpoch, SyncState};
use crate::key::HashSecret;
use crate::local::{LocalCache, WatchList};
use crate::table::slot::{Slot, Tag};
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::{Rule, RuleSet};

/// The limiter of one worker.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub struct Limiter {
    /// The rules in force; all limiters of a process may share them.
    pub(crate) rules: Arc<RuleSet>,
    /// The terms of each rule, in rule order.
    pub(crate) terms: Vec<RuleTerms>,
    /// True if a rule sends allowed clients their quota status.
    pub(crate) is_told: bool,
    /// True if a quota status may have [more](crate::decide::Beside) than its rule's policy.
    pub(crate) tells_more: bool,
    /// Number of rule sets that were in force. A rule's index is valid in one of them only.
    pub(crate) generation: u32,
    pub(crate) secret: HashSecret,
    pub(crate) keys: KeyCache,
    /// Secret that hides the parts of keys that leave the POP.
    pub(crate) fleet_secret: FleetSecret,
    pub(crate) local_cache: LocalCache,
    pub(crate) watch: WatchList,
    /// The budget loop; none if nothing is ever reported.
    pub(crate) exchange: Option<SyncState>,
    /// The POP's connectivity, as of the current request.
    pub(crate) touch: ConnectivityReading,
    /// Tokens that the last call acquired for its own request.
    pub(crate) in_hand: Vec<AcquiredTokens>,
    /// Keys that the last call got no answer for from the store. Its request decides them as offline.
    pub(crate) in_vain: Vec<Tag>,
    /// True if a request can be held until its turn.
    pub(crate) may_hold: bool,
    /// True while a peek is decided: its refusals count for nothing, and rules in shadow are not judged.
    pub(crate) only_asks: bool,
    /// True while past requests are booked: their refusals count for nothing.
    pub(crate) is_booking: bool,
    /// True while requests reserve what they take, because the host states their cost later.
    pub(crate) is_reserving: bool,
    /// True if any request may do so. A refused key may then have tokens again at any time.
    pub(crate) may_reserve: bool,
    /// Epochs that one request acquired for itself: the request holds them, or weir-sync has not confirmed
    /// their end.
    pub(crate) own: Vec<OwnEpoch>,
    /// State for consuming directly from the budget; none if the host cannot.
    #[cfg(feature = "takes")]
    pub(crate) takes: Option<Box<ConsumeState>>,
    /// Number from which the last jitter was computed.
    pub(crate) dealt: u64,
    pub(crate) counters: Counters,
    pub(crate) afterwards: Vec<EndAction>,
    /// Rules in shadow that would refuse the current request.
    pub(crate) would_refuse: Vec<RuleIndex>,
    /// Scratch of the last decision; none before the first one, during one, and after the rules were
    /// replaced.
    pub(crate) scratch: Option<Box<Scratch>>,
    /// A spare slot to read into.
    pub(crate) room: Option<Slot>,
    /// State of the quick path; none if the rules are not plain.
    pub(crate) plain: Option<Box<Plain>>,
}

/// Progress of acquiring a strict rule's tokens for the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireState {
    NotYet,
    /// The lease had ended when the reply arrived: the request acquires again.
    Over,
    Answered,
    /// weir-sync did not reply, or has no store.
    InVain,
}

/// The POP's connectivity, read once in each decision that reads the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectivityReading {
    /// Bounded rules apply their `on_sync_loss`.
    pub(crate) is_lost: bool,
    /// Strict rules apply their `on_sync_loss`.
    pub(crate) is_lost_for_strict: bool,
    pub(crate) drawn: AcquireState,
}

impl ConnectivityReading {
    /// True if the current request may acquire tokens.
    pub(crate) fn may_draw(self) -> bool {
        matches!(self.drawn, AcquireState::NotYet | AcquireState::Over)
    }
}

impl Limiter {
    /// Creates a limiter for `rules`. Without a `reporter` nothing is ever reported, and keys are hidden with
    /// this process's secret. With one, they are hashed without a secret until [`Limiter::hide_keys_with`]
    /// sets one.
    pub fn new(rules: impl Into<Arc<RuleSet>>, identity: TableIdentity, reporter: Option<Reporter>) -> Self {
        let rules = rules.into();
        let (keys, terms) = RuleTerms::of(&rules, &identity.secret, reporter.is_some());
        Self {
            plain: Plain::of(&rules, &terms),
            counters: Counters::new(rules.rules().len()),
            is_told: terms.iter().any(|terms| terms.is_told),
            tells_more: RuleTerms::tell_more(&terms),
            terms,
            rules,
            generation: 0,
            secret: identity.secret,
            keys,
            fleet_secret: if reporter.is_some() {
                FleetSecret::UNKEYED
            } else {
                identity.secret.on_its_own()
            },
            local_cache: LocalCache::new(),
            watch: WatchList::default(),
            exchange: reporter.map(|reporter| SyncState::new(reporter, identity.table_id)),
            touch: ConnectivityReading {
                is_lost: true,
                is_lost_for_strict: true,
                drawn: AcquireState::NotYet,
            },
            in_hand: Vec::new(),
            in_vain: Vec::new(),
            may_hold: true,
            only_asks: false,
            is_booking: false,
            is_reserving: false,
            may_reserve: false,
            own: Vec::new(),
            #[cfg(feature = "takes")]
            takes: None,
            dealt: 0,
            afterwards: Vec::new(),
            would_refuse: Vec::new(),
            scratch: None,
            room: None,
        }
    }

    /// Sets the secret for the parts of keys, which is the same at every POP. Call it before any decision.
    pub fn hide_keys_with(&mut self, secret: FleetSecret) {
        self.fleet_secret = secret;
        self.keys.forget();
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Counts since they were last taken.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(crate) fn rule(&self, rule: RuleIndex) -> Option<&Rule> {
        self.rules.rules().get(usize::from(rule))
    }
}
