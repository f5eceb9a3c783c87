//! A bucket, among clients that do what Envoy's filter does, and under a rule that is a plain token bucket.

use std::collections::VecDeque;

use super::*;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action;
use crate::proto::envoy::r#type::v3::TokenBucket;
use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use bucket_action::BucketAction as Action;

const TICK: Duration = Duration::from_millis(25);
/// Report interval of Envoy.
const REPORTS: Duration = Duration::from_secs(5);

/// A rule: a token bucket.
struct Rule {
    rate: f64,
    burst: f64,
    level: f64,
    is_prepaid: bool,
    /// All that it let through.
    taken: f64,
}

impl Rule {
    fn new(rate: f64, burst: f64, is_prepaid: bool) -> Self {
        Self { rate, burst, level: burst, is_prepaid, taken: 0.0 }
    }

    fn advance(&mut self) {
        self.level = (self.level + self.rate * TICK.as_secs_f64()).min(self.burst);
    }

    fn takes(&mut self, hits: u32) -> bool {
        if self.level < f64::from(hits) {
            return false;
        }
        self.level -= f64::from(hits);
        self.taken += f64::from(hits);
        true
    }

    fn take_due(&mut self, due: &Due) -> DueResult {
        let (mut asked, mut given) = (0, 0);
        while asked < due.count {
            let hits = due.at_once.min(due.count - asked);
            asked += hits;
            given += if self.takes(hits) { hits } else { 0 };
        }
        let Self { burst, rate, is_prepaid, .. } = *self;
        let decision = QuotaDecision::Counted(HolderTerms { burst, rate, is_prepaid, holders: 1.0 });
        DueResult { asked, given, decision }
    }
}

/// A client: Envoy's filter, which refuses what it has no assignment for.
#[derive(Default)]
struct Client {
    demand: f64,
    requests: f64,
    /// Its assignment, and the time at which that ends.
    strategy: Option<(Strategy, Duration)>,
    level: f64,
    admitted: u64,
    refused: u64,
    total: u64,
    asked: u64,
}

impl Client {
    fn of(demand: f64) -> Self {
        Self { demand, ..Self::default() }
    }

    fn apply(&mut self, now: Duration, action: &BucketAction) {
        let Some(Action::QuotaAssignmentAction(assigned)) = &action.bucket_action else { panic!("{action:?}") };
        let strategy = assigned.rate_limit_strategy.and_then(|it| it.strategy).expect("a strategy");
        if let Strategy::TokenBucket(bucket) = strategy {
            let most = f64::from(bucket.max_tokens);
            match self.strategy {
                Some((Strategy::TokenBucket(before), _)) => {
                    self.level = (self.level / f64::from(before.max_tokens) * most).floor();
                }
                _ => self.level = most,
            }
        }
        let lives = assigned.assignment_time_to_live.expect("a time to live").seconds;
        self.strategy = Some((strategy, now + Duration::from_secs(lives.unsigned_abs())));
    }

    fn lives_for(&mut self, now: Duration) {
        if self.strategy.is_some_and(|(_, until)| until <= now) {
            self.strategy = None;
        }
        if let Some((Strategy::TokenBucket(TokenBucket { max_tokens, tokens_per_fill, fill_interval }), _)) =
            self.strategy
        {
            #[allow(clippy::cast_precision_loss, reason = "seconds")]
            let seconds = fill_interval.expect("an interval").seconds as f64;
            let rate = f64::from(tokens_per_fill.expect("tokens")) / seconds;
            self.level = (self.level + rate * TICK.as_secs_f64()).min(f64::from(max_tokens));
        }
        self.requests += self.demand * TICK.as_secs_f64();
        while self.requests >= 1.0 {
            self.requests -= 1.0;
            self.asked += 1;
            let admits = match self.strategy {
                None => false,
                Some((Strategy::BlanketRule(rule), _)) => rule == i32::from(BlanketRule::AllowAll),
                Some((Strategy::TokenBucket(_), _)) => self.level >= 1.0,
            };
            self.level -= if admits { 1.0 } else { 0.0 };
            let counter = if admits { &mut self.admitted } else { &mut self.refused };
            *counter += 1;
            self.total += u64::from(admits);
        }
    }
}

/// The bucket, the rule, and clients by their numbers.
struct World {
    now: Duration,
    bucket: QuotaBucket,
    rule: Rule,
    clients: Vec<Client>,
    /// Requests a second at another API, and what of them was let through.
    elsewhere: f64,
    waiting: f64,
    let_through: u64,
    /// Assignments on their way to the clients, each for `delay`.
    sent: VecDeque<(Duration, usize, Assignment)>,
    delay: Duration,
}

impl World {
    fn new(rule: Rule, demands: &[f64]) -> Self {
        let mut bucket = QuotaBucket::new(BucketId::default(), CheckRequest::default(), Duration::ZERO);
        for (number, _) in (0..).zip(demands) {
            let mut holder = Holder::default();
            holder.report(Duration::ZERO, Duration::ZERO, 0, 1);
            bucket.holders.insert(number, holder);
        }
        let clients = demands.iter().map(|demand| Client::of(*demand)).collect();
        let (sent, delay) = (VecDeque::new(), Duration::ZERO);
        Self { now: Duration::ZERO, bucket, rule, clients, elsewhere: 0.0, waiting: 0.0, let_through: 0, sent, delay }
    }

    fn tick(&mut self) {
        self.now += TICK;
        self.rule.advance();
        // Those elsewhere come before it as often as behind it.
        let is_first = (self.now.as_millis() / TICK.as_millis()).is_multiple_of(2);
        self.waiting += self.elsewhere * TICK.as_secs_f64();
        if is_first {
            self.ask_elsewhere();
        }
        if let Some(due) = self.bucket.due(self.now) {
            let result = self.rule.take_due(&due);
            self.bucket.apply(&due.of, result);
        }
        self.ask_elsewhere();
        for (number, assignment) in self.bucket.assign(self.now, |_| true) {
            self.sent.push_back((self.now + self.delay, usize::try_from(number).unwrap(), assignment));
        }
        while let Some((_, number, assignment)) = self.sent.pop_front_if(|(at, ..)| *at <= self.now) {
            for action in assignment.actions(&BucketId::default()) {
                self.clients[number].apply(self.now, &action);
            }
        }
        for (number, client) in (0..).zip(&mut self.clients) {
            client.lives_for(self.now);
            if self.now.as_millis().is_multiple_of(REPORTS.as_millis()) {
                let holder = self.bucket.holders.get_mut(&number).unwrap();
                let (admitted, refused) = (std::mem::take(&mut client.admitted), std::mem::take(&mut client.refused));
                holder.report(self.now, REPORTS, admitted, refused);
            }
        }
    }

    fn ask_elsewhere(&mut self) {
        while self.waiting >= 1.0 {
            self.waiting -= 1.0;
            self.let_through += u64::from(self.rule.takes(1));
        }
    }

    /// Goes on for so long; after each tick no more may be admitted in all than the rule gives, and `beyond`.
    fn run(&mut self, seconds: u64, beyond: f64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.tick();
            let given = self.rule.burst + self.rule.rate * self.now.as_secs_f64() + beyond;
            let all = self.admitted();
            assert!(f64::from(all) <= given, "{all} were admitted after {:?}, {given} at most", self.now);
            if self.rule.is_prepaid {
                self.assert_paid();
            }
        }
    }

    /// Checks that all tokens of a client, spent or not, were admitted by the rule before.
    fn assert_paid(&self) {
        for (number, client) in (0..).zip(&self.clients) {
            let holder = &self.bucket.holders[&number];
            let (paid, purse) = (holder.paid, holder.purse());
            let tokens = |(_, to, sent): &(Duration, usize, Assignment)| match sent {
                Assignment::Tokens(tokens) if u64::try_from(*to) == Ok(number) => f64::from(*tokens),
                _ => 0.0,
            };
            let on_their_way: f64 = self.sent.iter().map(tokens).sum();
            let is_bucket = matches!(client.strategy, Some((Strategy::TokenBucket(_), _)));
            let in_hand = if is_bucket { client.level } else { 0.0 };
            let spent = f64::from(u32::try_from(client.total).unwrap());
            let all = spent + in_hand + on_their_way + purse;
            assert!(all <= paid + 0.001, "{all} of {paid} at {:?}: {spent}, {in_hand}, {on_their_way}", self.now);
        }
    }

    fn admitted(&self) -> u32 {
        let all: u64 = self.clients.iter().map(|client| client.total).sum();
        u32::try_from(all + self.let_through).unwrap()
    }

    /// Tokens admitted in the next `seconds`: by each client, and elsewhere.
    fn admitted_in(&mut self, seconds: u64, beyond: f64) -> (Vec<u64>, u64) {
        let before: Vec<_> = self.clients.iter().map(|client| client.total).collect();
        let elsewhere = self.let_through;
        self.run(seconds, beyond);
        let each = self.clients.iter().zip(before).map(|(client, before)| client.total - before).collect();
        (each, self.let_through - elsewhere)
    }
}

/// Tokens that clients may admit beyond the rule before their reports count: a burst, and the rate until the next
/// report and a second.
fn late(rate: f64, burst: f64) -> f64 {
    burst + 6.0 * rate
}

#[test]
fn a_client_below_the_rate_is_refused_nothing() {
    for (demand, burst) in [(2.0, 100.0), (50.0, 100.0), (80.0, 100.0), (50.0, 20.0), (0.4, 100.0)] {
        for is_prepaid in [false, true] {
            let mut world = World::new(Rule::new(100.0, burst, is_prepaid), &[demand]);
            world.run(15, late(100.0, burst));
            let (each, _) = world.admitted_in(100, late(100.0, burst));
            assert!(f64::from(u32::try_from(each[0]).unwrap()) >= 98.0 * demand - 1.0, "{is_prepaid}: {each:?}");
        }
    }
}

// I6
#[test]
fn tokens_given_in_advance_never_exceed_the_rule() {
    for (rate, burst) in [(100.0, 100.0), (100.0, 10.0), (5.0, 20.0), (0.1, 5.0), (1_000.0, 1_000.0)] {
        let mut world = World::new(Rule::new(rate, burst, true), &[3.0 * rate]);
        world.run(15, 0.0);
        let (each, _) = world.admitted_in(120, 0.0);
        assert!(f64::from(u32::try_from(each[0]).unwrap()) >= 0.97 * rate * 120.0 - 1.0, "{rate}/s: {each:?}");
    }
}

#[test]
fn tokens_reported_afterwards_are_paid_back() {
    for (rate, burst) in [(100.0, 100.0), (100.0, 10.0), (5.0, 20.0), (0.1, 5.0), (1_000.0, 1_000.0)] {
        let mut world = World::new(Rule::new(rate, burst, false), &[3.0 * rate]);
        world.run(30, late(rate, burst));
        let (each, _) = world.admitted_in(120, late(rate, burst));
        let part = f64::from(u32::try_from(each[0]).unwrap()) / (rate * 120.0);
        assert!((0.95..=1.03).contains(&part) || rate < 1.0 && part >= 0.9, "{rate}/s: {each:?}");
    }
}

#[test]
fn clients_share_by_what_they_are_asked_for() {
    for is_prepaid in [false, true] {
        let mut world = World::new(Rule::new(100.0, 100.0, is_prepaid), &[100.0, 200.0, 300.0]);
        let beyond = if is_prepaid { 0.0 } else { late(100.0, 100.0) };
        world.run(30, beyond);
        let (each, _) = world.admitted_in(120, beyond);
        for (admitted, part) in each.iter().zip([2_000_u64, 4_000, 6_000]) {
            assert!(admitted.abs_diff(part) <= part / 10, "{is_prepaid}: {each:?}");
        }
    }
}

#[test]
fn clients_elsewhere_get_a_part_of_the_rate() {
    for is_prepaid in [false, true] {
        let mut world = World::new(Rule::new(100.0, 100.0, is_prepaid), &[200.0]);
        world.elsewhere = 200.0;
        let beyond = if is_prepaid { 0.0 } else { late(100.0, 100.0) };
        world.run(30, beyond);
        let (each, elsewhere) = world.admitted_in(120, beyond);
        let all = each[0] + elsewhere;
        assert!((11_400..=12_400).contains(&all), "{is_prepaid}: {each:?} and {elsewhere}");
        assert!((4_000..=8_000).contains(&each[0]), "{is_prepaid}: {each:?} and {elsewhere}");
    }
}

#[test]
fn a_client_that_asks_again_after_a_pause_finds_tokens() {
    let mut world = World::new(Rule::new(1.0, 40.0, true), &[0.2]);
    world.run(40, 0.0);
    let client = &world.clients[0];
    assert!(client.total + 2 >= client.asked, "{} of {}", client.total, client.asked);
    world.clients[0].demand = 0.0;
    world.run(30, 0.0);
    world.clients[0].demand = 200.0;
    let before = world.clients[0].total;
    world.run(1, 0.0);
    assert!(world.clients[0].total - before >= 4, "{}", world.clients[0].total - before);
}

// I6
#[test]
fn tokens_long_under_way_are_not_given_twice() {
    let mut world = World::new(Rule::new(100.0, 100.0, true), &[20.0, 20.0]);
    world.delay = Duration::from_millis(1_500);
    for turn in 0..40 {
        world.clients[turn % 2].demand = 300.0;
        world.clients[1 - turn % 2].demand = 5.0;
        world.run(3, 0.0);
    }
    assert!(world.admitted() > 6_000, "{}", world.admitted());
}

#[test]
fn rules_let_through_what_clients_do() {
    for is_prepaid in [false, true] {
        let mut world = World::new(Rule::new(100.0, 100.0, is_prepaid), &[300.0, 20.0]);
        world.run(30, late(100.0, 100.0));
        for client in &mut world.clients {
            client.demand = 40.0;
        }
        world.run(60, late(100.0, 100.0));
        let beyond = world.rule.taken - f64::from(world.admitted());
        // Those that are paid in advance hold some, as much is there for them, and as much as they lost is not
        // known yet. Of the others, all was just reported.
        let most = if is_prepaid { 400.0 } else { 20.0 };
        assert!((-20.0..=most).contains(&beyond), "{is_prepaid}: {beyond}");
    }
}

#[test]
fn a_client_that_reports_no_more_is_asked_for_no_more() {
    for is_prepaid in [false, true] {
        let mut world = World::new(Rule::new(100.0, 100.0, is_prepaid), &[80.0]);
        world.run(20, late(100.0, 100.0));
        for second in 21..60 {
            world.now = Duration::from_secs(second);
            let due = world.bucket.due(world.now);
            assert!(second < 31 || due.is_none(), "after {second} s: {due:?}");
            if let Some(due) = due {
                let decision =
                    QuotaDecision::Counted(HolderTerms { burst: 100.0, rate: 100.0, is_prepaid, holders: 1.0 });
                world.bucket.apply(&due.of, DueResult { asked: due.count, given: 0, decision });
            }
        }
    }
}
