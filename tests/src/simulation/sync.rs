//! A weir-sync: the real `Hub`. Nothing else calls it.

use std::cell::RefCell;
use std::rc::Rc;

use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, BudgetId};
use weir_budget::divide::GrantSettings;
use weir_budget::hot::HotKey;
use weir_budget::hub::{BanListing, Hub, HubSettings, Look, Pending, ReportResult, StoreReplies, Tick};
use weir_budget::report_limits::{KnownRule, Refusal, ReporterKind};
use weir_budget::store_clock::{Bounds, StoreClock};
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::{SECOND_NS, Time};

use super::setup::{Clock, Setup, WallClock};
use super::world::Call;

/// Time for which a silent POP counts as one of the region, in nanoseconds (weir-sync's default).
const POP_TTL_NS: u64 = 10 * SECOND_NS;
/// The first pause before a store that is out of reach is asked again, in nanoseconds (weir-sync's).
const BACKOFF_NS_MIN: u64 = SECOND_NS / 20;
/// The longest such pause, in nanoseconds (weir-sync's).
pub(super) const BACKOFF_NS_MAX: u64 = 2 * SECOND_NS;

/// A weir-sync's call to the store.
#[derive(Debug)]
pub(super) enum Question {
    Report(Call, Box<Pending>),
    Tick(Tick),
    Look(Look),
    Forget(BudgetId),
    Bans(BanListing),
    /// The text of the rule set that a POP asks for.
    Rules(Call),
    Probe,
}

/// A question on its way to the store and back, until it is answered. The network may repeat it.
pub(super) type UnderWay = Rc<RefCell<Option<Question>>>;

#[derive(Debug)]
pub(super) enum Answer {
    Report(StoreReplies<()>),
    Tick(Vec<HotKey>, RuleSet),
    Rules(RuleSet),
    Look(Vec<Result<Account, ()>>),
    Forget,
    Bans(Vec<BannedKey>),
    Probe,
    /// The store's clock shows this, which is later than the call's latest time: nothing was done.
    Late(u64),
}

/// The next step once the store has answered.
#[derive(Debug)]
pub(super) enum Next {
    Ask(Box<Question>),
    /// The encoded reply, and whether it is settled.
    Reply(Call, Vec<u8>, bool),
    Nothing,
}

/// A version of the fleet's rule set.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// Its number; 0 if there is none.
    pub version: u64,
    pub document: Rc<[u8]>,
}

pub struct Sync {
    pub region: usize,
    pub replica: String,
    pub is_up: bool,
    /// Counts its starts: an answer to a question of an earlier life is dropped.
    pub life: u32,
    clock: Clock,
    wall: WallClock,
    terms: GrantSettings,
    known_rules: Vec<KnownRule>,
    hub: Hub,
    link: Link,
    store_clock: Option<StoreClock>,
    /// The rule set that POPs are to run, as last read from the store.
    rule_set: RuleSet,
    pub restarted_at: Option<u64>,
    /// The refused claims of POPs, by their names.
    pub refused: Vec<(String, Refusal)>,
    pub checked: usize,
}

impl Sync {
    pub fn new(region: usize, number: usize, clock: Clock, setup: &Setup, known_rules: Vec<KnownRule>) -> Self {
        let (replicas, terms) = (setup.syncs_per_region, setup.terms);
        let wall = WallClock::beginning(setup.begins_us);
        let replica = if replicas == 1 { format!("region-{region}") } else { format!("region-{region}/{number}") };
        let (hub, link) = (hub(&replica, terms, &known_rules), Link::default());
        Self {
            region,
            replica,
            is_up: true,
            life: 0,
            clock,
            wall,
            terms,
            known_rules,
            hub,
            link,
            store_clock: None,
            rule_set: RuleSet::default(),
            restarted_at: None,
            refused: Vec::new(),
            checked: 0,
        }
    }

    /// True if it only probes the store: everything else is answered at once, without the store.
    pub fn is_store_lost(&self) -> bool {
        self.link.pause_ns.is_some()
    }

    /// A call of `asked_at` was answered by `now`, or failed. Returns the pause before the next probe, if any.
    pub(super) fn observe_store(
        &mut self,
        question: &Question,
        is_answered: bool,
        asked_at: u64,
        now: u64,
    ) -> Option<u64> {
        self.link.observe(matches!(question, Question::Probe), is_answered, asked_at, now)
    }

    pub fn store_bounds(&mut self, now: u64) -> Bounds {
        let (own_us, unix_us) = (self.own_us(now), self.wall.at_us(now));
        self.store_clock.get_or_insert(StoreClock::new(unix_us, own_us)).bounds(own_us)
    }

    /// True if it is in touch with the store, and has asked it before.
    pub(super) fn knows_the_stores_clock(&self) -> bool {
        self.is_up && !self.is_store_lost() && self.store_clock.is_some()
    }

    /// A call of `asked_at` was answered by `now`: takes in the time that the store's clock showed.
    pub(super) fn observe_clock(&mut self, asked_at: u64, now: u64, answer: &Answer) {
        let shown_us = match answer {
            Answer::Report(StoreReplies { accounts, acquired, .. }) => {
                let charged = accounts.iter().flatten().map(|account| account.now_us);
                charged.chain(acquired.iter().flatten().map(|acquired| acquired.now_us)).next()
            }
            Answer::Look(accounts) => accounts.iter().flatten().map(|account| account.now_us).next(),
            Answer::Late(now_us) => Some(*now_us),
            _ => None,
        };
        let (sent_us, own_us) = (self.own_us(asked_at), self.own_us(now));
        if let (Some(clock), Some(shown_us)) = (&mut self.store_clock, shown_us) {
            clock.observe(sent_us, own_us, shown_us);
        }
    }

    fn own_us(&self, now: u64) -> u64 {
        self.clock.at(now).as_nanos() / 1_000
    }

    pub fn observe(&mut self, report: &[u8], now: u64) -> Pending {
        let report = Report::decode(report).expect("a good report");
        self.hub.report(ReporterKind::Pop, self.clock.at(now), self.wall.at_us(now), report)
    }

    /// The rule set that POPs fetch, if it knows one.
    pub fn document(&self) -> Option<Rc<[u8]>> {
        (self.rule_set.version > 0).then(|| Rc::clone(&self.rule_set.document))
    }

    /// Its hub, and the time by its clock.
    pub(super) fn hub(&mut self, now: u64) -> (&mut Hub, Time) {
        (&mut self.hub, self.clock.at(now))
    }

    /// The store has answered, or has not.
    pub(super) fn apply(&mut self, question: Question, answer: Option<Answer>, now: u64) -> Next {
        let time = self.clock.at(now);
        match (question, answer) {
            (Question::Report(call, pending), answer) => {
                let answers = match answer {
                    Some(Answer::Report(answers)) => answers,
                    _ => StoreReplies::failed(&pending, ()),
                };
                let ReportResult { pop, reply, facts, .. } =
                    self.hub.settle(time, self.rule_set.version, *pending, answers);
                self.refused.extend(facts.refused.into_iter().map(|refusal| (pop.clone(), refusal)));
                return Next::Reply(call, reply.encode(), reply.settled.is_all());
            }
            (Question::Tick(tick), Some(Answer::Tick(fleet, rule_set))) => {
                self.rule_set = rule_set;
                if let Some(look) = self.hub.listed(time, tick.listing, &fleet) {
                    return Next::Ask(Box::new(Question::Look(look)));
                }
            }
            (Question::Look(look), Some(Answer::Look(accounts))) => self.hub.looked(time, look, accounts),
            (Question::Rules(call), Some(Answer::Rules(RuleSet { document, .. }))) if !document.is_empty() => {
                return Next::Reply(call, document.to_vec(), false);
            }
            (Question::Forget(id), Some(Answer::Forget)) => {
                self.hub.forget(time, id);
                return Next::Ask(Box::new(Question::Bans(self.hub.share_bans(time))));
            }
            (Question::Bans(mine), Some(Answer::Bans(fleet))) => self.hub.bans_listed(time, mine, &fleet),
            _ => {}
        }
        Next::Nothing
    }

    pub fn start(&mut self, now: u64) {
        (self.is_up, self.restarted_at) = (true, Some(now));
    }

    /// The process ends, and all it knew is lost.
    pub fn crash(&mut self) {
        self.is_up = false;
        self.life += 1;
        (self.hub, self.link) = (hub(&self.replica, self.terms, &self.known_rules), Link::default());
        (self.rule_set, self.store_clock) = (RuleSet::default(), None);
    }
}

/// The connection to the store, as weir-sync keeps it (`sync-service/store/src/link.rs`).
#[derive(Debug, Default)]
struct Link {
    /// While the store is out of reach: the pause before the next probe.
    pause_ns: Option<u64>,
    /// Failures of what was asked before this time are ignored, in simulated nanoseconds.
    since: u64,
}

impl Link {
    /// After how long to probe the store, if at all.
    fn observe(&mut self, is_probe: bool, is_answered: bool, asked_at: u64, now: u64) -> Option<u64> {
        match (self.pause_ns, is_answered) {
            (Some(_), true) if is_probe => {
                *self = Self { pause_ns: None, since: now };
                None
            }
            (Some(pause_ns), false) if is_probe => {
                self.pause_ns = Some((2 * pause_ns).min(BACKOFF_NS_MAX));
                Some(pause_ns)
            }
            (None, false) if asked_at >= self.since => {
                self.pause_ns = Some(BACKOFF_NS_MIN);
                Some(0)
            }
            _ => None,
        }
    }
}

fn hub(replica: &str, terms: GrantSettings, known_rules: &[KnownRule]) -> Hub {
    let settings = HubSettings { replica: replica.into(), terms, pop_ttl_ns: POP_TTL_NS, pops_expected: 0 };
    let mut hub = Hub::new(settings);
    hub.set_rules(u64::MAX, known_rules.to_vec());
    hub
}
