//! The events of the budget loop: a report goes to a weir-sync, its charges to the store, and the
//! answers back.

use std::rc::Rc;

use weir_budget::budget::Account as StoreAccount;
use weir_budget::region::Entry;

use super::invariants;
use super::store::Wrong;
use super::sync::Settled;
use super::world::{Asker, Call, Event, Query, Told, WARM_UP_NS, World};

impl World {
    pub(super) fn tick(&mut self, now: u64, pop: usize, worker: usize) {
        self.queue.push(now + self.setup.interval_ns, Event::Tick { pop, worker });
        if !self.pops[pop].is_up {
            return;
        }
        let id = self.calls + 1;
        let Some(report) = self.pops[pop].report(worker, id, self.setup.interval_ns, now) else { return };
        self.calls = id;
        self.send(now, Call { id, pop, worker }, report);
    }

    /// A report leaves its POP.
    pub(super) fn send(&mut self, now: u64, call: Call, report: Vec<u8>) {
        let Call { pop, .. } = call;
        self.wire.reported(pop, &report);
        self.queue.push(now + self.setup.timeout_ns, Event::TimedOut(call));
        let replicas = self.setup.syncs_per_region;
        self.pops[pop].turn = (self.pops[pop].turn + 1) % replicas;
        let sync = self.pops[pop].region * replicas + self.pops[pop].turn;
        let report: Rc<[u8]> = report.into();
        for delay in self.network.near(pop, now, &mut self.rng).into_iter().flatten() {
            self.queue.push(now + delay, Event::Heard { call, sync, report: Rc::clone(&report) });
        }
    }

    pub(super) fn heard(&mut self, now: u64, call: Call, sync: usize, report: &[u8]) {
        if self.syncs[sync].is_up {
            let heard = self.syncs[sync].hear(report, now);
            self.ask_store(now, sync, Query::Charge(call, Box::new(heard)));
        }
    }

    pub(super) fn listen(&mut self, now: u64, sync: usize) {
        self.queue.push(now + self.setup.interval_ns, Event::Listen(sync));
        if self.syncs[sync].is_up {
            let mine = self.syncs[sync].hot(now);
            self.wire.are_hot(&mine);
            self.ask_store(now, sync, Query::Hot(mine));
        }
    }

    fn ask_store(&mut self, now: u64, sync: usize, query: Query) {
        let asker = Asker { sync, life: self.syncs[sync].life, at: now };
        let query = Rc::new(query);
        let arrivals = self.network.far(self.syncs[sync].region, &mut self.rng);
        if arrivals[0].is_none() {
            self.gives_up(asker, query);
            return;
        }
        for delay in arrivals.into_iter().flatten() {
            self.queue.push(now + delay, Event::AtStore { asker, query: Rc::clone(&query) });
        }
    }

    /// No answer will come.
    fn gives_up(&mut self, asker: Asker, query: Rc<Query>) {
        self.queue
            .push(asker.at + self.setup.store_timeout_ns, Event::FromStore { asker, query, told: None });
    }

    pub(super) fn at_store(&mut self, now: u64, asker: Asker, query: &Rc<Query>) {
        let member = self.syncs[asker.sync].member.clone();
        let told = self.store.is_up.then(|| match &**query {
            Query::Charge(call, heard) => {
                let pop = self.pops[call.pop].name.clone();
                let accounts = self.charge(now, &member, &pop, heard.entries());
                let drawn = self.store.draw(&pop, heard.draws(), now);
                Told::Settled(Settled { accounts, drawn, pops: self.store.register(&pop, now) })
            }
            Query::Hot(mine) => Told::Fleet(self.store.hot(mine, now)),
            Query::Peek(entries) => Told::Looked(self.charge(now, &member, "", entries)),
        });
        let [delay, _] = self.network.far(self.syncs[asker.sync].region, &mut self.rng);
        let back = delay.map(|delay| now + self.store.slow_ns + delay);
        match back.filter(|back| *back <= asker.at + self.setup.store_timeout_ns) {
            Some(back) => self.queue.push(back, Event::FromStore { asker, query: Rc::clone(query), told }),
            // An answer that is too late is none.
            None => self.gives_up(
                Asker { at: asker.at.max(now.saturating_sub(self.setup.store_timeout_ns)), ..asker },
                Rc::clone(query),
            ),
        }
    }

    fn charge(&mut self, now: u64, member: &str, pop: &str, entries: &[Entry]) -> Vec<StoreAccount> {
        let since = now.saturating_sub(WARM_UP_NS);
        let accounts = match self.store.charge(member, pop, entries, now) {
            Ok(accounts) => accounts,
            Err(Wrong::Time(what)) => self.label.violated("I8", since, &what),
            Err(Wrong::Charge(what)) => self.label.violated("I7", since, &what),
        };
        for (entry, account) in entries.iter().zip(&accounts) {
            let Some((rule, key)) = self.reference.named(&entry.id).filter(|_| account.charged > 0) else {
                continue;
            };
            self.reference.account_mut(rule, key).spread = account.spread;
            let (known, charged) = (self.reference.account(rule, key), self.store.charged(&entry.id));
            // What a budget charges again that was forgotten is stated.
            let charged = charged - self.store.charged_twice(&entry.id);
            invariants::nothing_is_charged_twice(&self.label, known, &entry.id, charged, since);
        }
        accounts
    }

    pub(super) fn told(&mut self, now: u64, asker: Asker, query: &Query, told: Option<Told>) {
        let sync = &mut self.syncs[asker.sync];
        if !sync.is_up || sync.life != asker.life {
            return;
        }
        match (query, told) {
            (Query::Charge(call, heard), told) => {
                let settled = match &told {
                    Some(Told::Settled(settled)) => Some(settled),
                    _ => None,
                };
                let is_settled = settled.is_some();
                let reply = sync.answer(heard, settled, now);
                self.reply(now, *call, &reply.into(), is_settled);
            }
            (Query::Hot(mine), Some(Told::Fleet(fleet))) => {
                let entries = sync.peeks(mine, &fleet, now);
                if !entries.is_empty() {
                    self.ask_store(now, asker.sync, Query::Peek(entries));
                }
            }
            (Query::Peek(entries), Some(Told::Looked(accounts))) => sync.peeked(entries, &accounts, now),
            _ => {}
        }
    }

    fn reply(&mut self, now: u64, call: Call, reply: &Rc<[u8]>, is_settled: bool) {
        self.wire.replied(call.pop, reply);
        for delay in self.network.near(call.pop, now, &mut self.rng).into_iter().flatten() {
            self.queue.push(now + delay, Event::Answered { call, reply: Rc::clone(reply), is_settled });
        }
    }
}
