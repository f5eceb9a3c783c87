//! Strict rules at several workers, which share a key's entry and its epoch.

use super::*;
use weir_protocol::messages::Leased;

const ADDRESS: &str = "192.0.2.1";

/// Workers over one table, and a budget of `budget` tokens.
struct Workers {
    limiters: Vec<Limiter>,
    slots: LocalSlots,
    budget: u64,
    debited: u64,
}

/// A request that waits at a worker.
struct Waiting {
    worker: usize,
    report: Report,
    acquire: u64,
}

impl Workers {
    fn new(workers: usize, budget: u64) -> Self {
        Self::of_burst(1_000, workers, budget)
    }

    fn of_burst(burst: u32, workers: usize, budget: u64) -> Self {
        let rule = json!([{"name": "login", "key": ["client_address"], "rate": "5/m", "burst": burst, "strict": true}]);
        let named = (1..).take(workers);
        let limiters = named.map(|worker| limiter(rules(&rule), Some(worker))).collect();
        Self { limiters, slots: LocalSlots::new(4), budget, debited: 0 }
    }

    fn ask(&mut self, worker: usize, now: Time) -> DecisionKind {
        ask(&mut self.limiters[worker], &mut self.slots, ADDRESS, now).outcome()
    }

    fn wait(&mut self, worker: usize, now: Time) -> Waiting {
        let (report, acquire) = waiting_for(ask(&mut self.limiters[worker], &mut self.slots, ADDRESS, now));
        Waiting { worker, report, acquire }
    }

    /// The budget is debited for the most that was wanted of the one epoch.
    fn debit(&mut self, report: &Report) -> Vec<u8> {
        let key = &report.keys[0];
        let wanted = key.admitted + u64::from(key.ahead);
        self.debited = self.debited.max(wanted.min(self.budget));
        let grants = vec![Allowance::Leased(Leased::of(self.debited, 9_000))];
        Reply { sequence: report.sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() }.encode()
    }

    /// The outcome of a request whose acquire is answered.
    fn answered(&mut self, waiting: &Waiting, reply: &[u8], now: Time) -> DecisionKind {
        let limiter = &mut self.limiters[waiting.worker];
        let answered = limiter.acquired(waiting.acquire, reply, &mut self.slots, now).unwrap();
        limiter.decide_again(answered, &mut Client(ADDRESS.into()), &mut self.slots, now).outcome()
    }

    fn end(&mut self, waiting: &Waiting, now: Time) -> DecisionKind {
        let reply = self.debit(&waiting.report);
        self.answered(waiting, &reply, now)
    }
}

fn ahead(waiting: &Waiting) -> u32 {
    waiting.report.keys[0].ahead
}

// I6
#[test]
fn requests_that_wait_at_several_workers_each_want_a_token() {
    for count in [1, 2, 4] {
        let mut workers = Workers::new(count, 1_000);
        let mut waiting: Vec<_> = (0..40).map(|n| workers.wait(n % count, T0)).collect();
        assert!(waiting.iter().map(ahead).eq(1..=40), "{count} workers");
        // The calls reach weir-sync in one order, and the answers come in another.
        waiting.sort_by_key(|waiting| ahead(waiting) * 7 % 41);
        let replies: Vec<_> = waiting.iter().map(|waiting| workers.debit(&waiting.report)).collect();
        let later = T0 + 90 * MS;
        for (waiting, reply) in waiting.into_iter().zip(replies).rev() {
            assert_eq!(workers.answered(&waiting, &reply, later), DecisionKind::Allow, "{count} workers");
        }
        assert_eq!(workers.debited, 40);
        let next = workers.wait(0, later);
        assert_eq!((next.report.keys[0].admitted, ahead(&next)), (40, 1), "and none wants more");
    }
}

// I6
#[test]
fn a_later_request_does_not_spend_awaited_tokens() {
    let mut workers = Workers::new(2, 1_000);
    let (first, second) = (workers.wait(0, T0), workers.wait(1, T0));
    // The answer to the first is under way: what it brought is on hand already.
    assert_eq!(workers.end(&second, T0), DecisionKind::Allow);
    let third = workers.wait(1, T0);
    assert_eq!((third.report.keys[0].admitted, ahead(&third)), (1, 2));
    assert_eq!(workers.end(&first, T0), DecisionKind::Allow);
    assert_eq!(workers.end(&third, T0), DecisionKind::Allow);
    assert_eq!(workers.debited, 3);
}

// I6
#[test]
fn tokens_awaited_at_an_ended_worker_become_free() {
    let mut workers = Workers::new(2, 1_000);
    let (lost, other) = (workers.wait(0, T0), workers.wait(1, T0));
    drop(lost);
    assert_eq!(workers.end(&other, T0), DecisionKind::Allow);
    let next = workers.wait(1, T0 + 1_900 * MS);
    assert_eq!(ahead(&next), 2, "it may still wait");
    assert_eq!(workers.end(&next, T0 + 1_900 * MS), DecisionKind::Allow);
    workers.limiters[1].sync.as_mut().unwrap().observe(1, false, T0 + 3_920 * MS);
    assert_eq!(workers.ask(1, T0 + 3_920 * MS), DecisionKind::Allow);
}
