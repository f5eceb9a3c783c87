//! The events of the budget loop: a report goes to a weir-sync, its charges to the store, and the answers back.

use std::cell::RefCell;
use std::mem::replace;
use std::rc::Rc;

use weir_budget::budget::Account as StoreAccount;
use weir_budget::budget::PlanEntry;
use weir_budget::hub::StoreReplies;
use weir_budget::report_limits::{Refusal, RefusedClaimReason};
use weir_budget::store_clock::StoreTime;
use weir_limiter::engine;
use weir_protocol::messages::{BudgetRule, Message, Report};
use weir_protocol::time::SECOND_NS;

use super::invariants;
use super::store::Wrong;
use super::sync::{Answer, Next, Question, Sync, UnderWay};
use super::world::{Asker, Call, Event, WARM_UP_NS, World};

/// Time for which a weir-sync that restarted may refuse an honest POP tokens.
const RESTARTED_NS: u64 = 30 * SECOND_NS;

impl World {
    pub(super) fn tick(&mut self, now: u64, pop: usize, worker: usize) {
        let interval_ns = self.setup.interval_ns;
        let ticks = self.pops[pop].ticks_in(worker, interval_ns / 1_000_000);
        self.due(now + interval_ns / ticks, Event::Tick { pop, worker });
        if !self.pops[pop].is_up {
            return;
        }
        self.pops[pop].tick(worker, now);
        self.make_calls(now, pop);
    }

    /// Makes the calls that a POP's workers want made.
    pub(super) fn make_calls(&mut self, now: u64, pop: usize) {
        self.record_rule_set(now, pop);
        for wanted in self.pops[pop].take_calls() {
            self.calls += 1;
            let call = Call { id: self.calls, pop, worker: wanted.worker };
            let engine::SyncCall { body, timeout_ms, .. } = self.pops[pop].called(call.id, wanted, now);
            self.send(now, call, body, u64::from(timeout_ms) * 1_000_000);
        }
    }

    /// A report leaves its POP; an empty one asks for the rule set that weir-sync announced.
    fn send(&mut self, now: u64, call: Call, report: Vec<u8>, timeout_ns: u64) {
        let Call { pop, .. } = call;
        self.wire.reported(pop, &report);
        if self.setup.is_accounted
            && let Err(what) = self.confirmed.sent(call.id, pop, &report)
        {
            self.label.violated("I7", now.saturating_sub(WARM_UP_NS), &what);
        }
        self.due(now + timeout_ns, Event::TimedOut(call));
        let replicas = self.setup.syncs_per_region;
        let sync = self.pops[pop].region * replicas + self.pops[pop].next_turn(call.worker, replicas);
        let report: Rc<[u8]> = report.into();
        for delay in self.network.near(pop, now, &mut self.rng).into_iter().flatten() {
            self.due(now + delay, Event::ReportArrives { call, sync, report: Rc::clone(&report) });
        }
    }

    pub(super) fn report_arrives(&mut self, now: u64, call: Call, sync: usize, report: &[u8]) {
        if self.syncs[sync].is_up && report.is_empty() {
            match self.syncs[sync].document() {
                Some(document) => self.reply(now, call, &document, false),
                None => self.ask_store(now, sync, Question::Rules(call)),
            }
        } else if self.syncs[sync].is_up {
            let false_report = self.lied(now, call, report);
            let pending = self.syncs[sync].observe(false_report.as_deref().unwrap_or(report), now);
            let has_bans = pending.has_bans;
            self.ask_store(now, sync, Question::Report(call, Box::new(pending)));
            if has_bans {
                self.share_bans(now, sync);
            }
        }
    }

    /// The lying POP's version of its report at `now`, if it lies then.
    fn lied(&self, now: u64, call: Call, report: &[u8]) -> Option<Vec<u8>> {
        let (lie, [from, to]) = self.setup.lie.filter(|_| call.pop == 0)?;
        if !(WARM_UP_NS + from..WARM_UP_NS + to).contains(&now) {
            return None;
        }
        let mut report = Report::decode(report).expect("a good report");
        let account = self.reference.account(0, 0);
        let id = self.reference.id(0, 0);
        let rule = BudgetRule { name: id.rule.clone(), quota: account.quota, sharing: account.sharing.clone() };
        lie.add_to(&mut report, call.id, &rule, &id.value);
        Some(report.encode())
    }

    /// Honest POPs are refused nothing, but for tokens of reports that were held up while weir-sync restarted
    /// (docs/secrets.md).
    fn nothing_is_refused(&mut self, sync: usize, now: u64) {
        let Sync { restarted_at, refused, checked, .. } = &mut self.syncs[sync];
        let is_new = restarted_at.is_some_and(|at| now < at + RESTARTED_NS);
        let new = &refused[replace(checked, refused.len())..];
        let counts = |(pop, refusal): &&(String, Refusal)| {
            let is_honest = self.setup.lie.is_none() || *pop != self.pops[0].name;
            is_honest && !(is_new && refusal.reason == RefusedClaimReason::Tokens)
        };
        if let Some((pop, refusal)) = new.iter().find(counts) {
            self.label.violated("claims", now.saturating_sub(WARM_UP_NS), &format!("{pop}: {refusal:?}"));
        }
    }

    pub(super) fn listen(&mut self, now: u64, sync: usize) {
        self.due(now + self.setup.interval_ns, Event::Listen(sync));
        if self.syncs[sync].is_up {
            let (hub, time) = self.syncs[sync].hub(now);
            let tick = hub.tick(time);
            self.wire.are_hot(&tick.listing.items);
            self.ask_store(now, sync, Question::Tick(tick));
            if self.has_penalties || self.setup.reset_at.is_some() {
                self.share_bans(now, sync);
            }
        }
    }

    pub(super) fn share_bans(&mut self, now: u64, sync: usize) {
        let (hub, time) = self.syncs[sync].hub(now);
        let mine = hub.share_bans(time);
        self.ask_store(now, sync, Question::Bans(mine));
    }

    pub(super) fn ask_store(&mut self, now: u64, sync: usize, question: Question) {
        let bounds = self.syncs[sync].store_bounds(now);
        let asker = Asker { sync, life: self.syncs[sync].life, at: now, sent_at: now, bounds };
        if self.syncs[sync].is_store_lost() && !matches!(question, Question::Probe) {
            return self.act(now, asker, question, None);
        }
        self.ask(now, asker, question);
    }

    /// Puts a question on its way to the store.
    fn ask(&mut self, now: u64, asker: Asker, question: Question) {
        let question = Rc::new(RefCell::new(Some(question)));
        let arrivals = self.network.far(self.syncs[asker.sync].region, &mut self.rng);
        if arrivals[0].is_none() {
            self.gives_up(asker, question);
            return;
        }
        for delay in arrivals.into_iter().flatten() {
            self.due(now + delay, Event::AtStore { asker, question: Rc::clone(&question) });
        }
    }

    /// No answer will come.
    fn gives_up(&mut self, asker: Asker, question: UnderWay) {
        let at = asker.at + self.setup.store_timeout_ns;
        self.due(at, Event::FromStore { asker, question, answer: None });
    }

    pub(super) fn at_store(&mut self, now: u64, asker: Asker, question: UnderWay) {
        let answer = match &*question.borrow() {
            Some(question) => self.store.is_up.then(|| self.answer(now, asker, question)),
            // The network repeated it, and it was answered before.
            None => return,
        };
        let [delay, _] = self.network.far(self.syncs[asker.sync].region, &mut self.rng);
        let back = delay.map(|delay| now + self.store.slow_ns + delay);
        match back.filter(|back| *back <= asker.at + self.setup.store_timeout_ns) {
            Some(back) => self.due(back, Event::FromStore { asker, question, answer }),
            // An answer that comes too late is no answer.
            None => self.gives_up(
                Asker { at: asker.at.max(now.saturating_sub(self.setup.store_timeout_ns)), ..asker },
                question,
            ),
        }
    }

    fn answer(&mut self, now: u64, asker: Asker, question: &Question) -> Answer {
        let replica = self.syncs[asker.sync].replica.clone();
        let now_us = self.store.clock.at_us(now);
        let time = asker.bounds.at(now_us);
        match question {
            Question::Report(_, pending) => {
                let Some(time) = time else { return Answer::Late(now_us) };
                let pop = &pending.report.pop;
                let accounts = self.charge(now, time, &replica, pop, pending.entries()).into_iter().map(Ok).collect();
                let acquired = self.store.acquire(pop, pending.acquires(), time);
                if let Some(what) = self.store.ends_early(pending.acquires(), &acquired) {
                    self.label.violated("I6", now.saturating_sub(WARM_UP_NS), &what);
                }
                let acquired = acquired.into_iter().map(Ok).collect();
                Answer::Report(StoreReplies { accounts, acquired, pops: Ok(self.store.register(pop, now)) })
            }
            Question::Tick(tick) => {
                let fleet = self.store.hot.exchange(&tick.listing.items, now_us);
                Answer::Tick(fleet, self.store.rule_set.clone())
            }
            Question::Look(look) => {
                let Some(time) = time else { return Answer::Late(now_us) };
                Answer::Look(self.charge(now, time, &replica, "", &look.items).into_iter().map(Ok).collect())
            }
            Question::Rules(_) => Answer::Rules(self.store.rule_set.clone()),
            Question::Forget(id) => {
                self.forget(id, now.saturating_sub(WARM_UP_NS));
                Answer::Forget
            }
            Question::Bans(mine) => Answer::Bans(self.store.bans.exchange(&mine.items, now_us)),
            Question::Probe => Answer::Probe,
        }
    }

    fn charge(
        &mut self,
        now: u64,
        time: StoreTime,
        replica: &str,
        pop: &str,
        entries: &[PlanEntry],
    ) -> Vec<StoreAccount> {
        let since = now.saturating_sub(WARM_UP_NS);
        let accounts = match self.store.charge(replica, pop, entries, now, time) {
            Ok(accounts) => accounts,
            Err(Wrong::Time(what)) => self.label.violated("I8", since, &what),
            Err(Wrong::Charge(what)) => self.label.violated("I7", since, &what),
        };
        for (entry, account) in entries.iter().zip(&accounts) {
            let Some((rule, key)) = self.reference.named(&entry.id).filter(|_| account.charged > 0) else {
                continue;
            };
            let pops = u32::try_from(self.pops.len()).expect("few POPs");
            self.reference.account_mut(rule, key).fan_out = account.fan_out.min(pops);
            if self.setup.lie.is_some() {
                continue;
            }
            let (known, charged) = (self.reference.account(rule, key), self.store.charged(&entry.id));
            // A budget may charge again what was forgotten; that is stated.
            let charged = charged - self.store.charged_twice(&entry.id);
            invariants::nothing_is_charged_twice(&self.label, known, &entry.id, charged, since);
        }
        accounts
    }

    pub(super) fn store_answers(&mut self, now: u64, asker: Asker, question: &UnderWay, answer: Option<Answer>) {
        let sync = &mut self.syncs[asker.sync];
        if !sync.is_up || sync.life != asker.life {
            return;
        }
        if let Some(answer) = &answer {
            sync.observe_clock(asker.sent_at, now, answer);
        }
        // It is answered once, however often it arrived.
        let Some(question) = question.take() else { return };
        let answer = match answer {
            Some(Answer::Late(_)) if asker.sent_at == asker.at => {
                let bounds = sync.store_bounds(now);
                return self.ask(now, Asker { sent_at: now, bounds, ..asker }, question);
            }
            Some(Answer::Late(_)) => None,
            answer => answer,
        };
        if let Some(pause_ns) = sync.observe_store(&question, answer.is_some(), asker.at, now) {
            self.due(now + pause_ns, Event::Probe { sync: asker.sync, life: asker.life });
        }
        self.act(now, asker, question, answer);
    }

    fn act(&mut self, now: u64, asker: Asker, question: Question, answer: Option<Answer>) {
        let divided = self.divided(&question, answer.as_ref());
        let next = self.syncs[asker.sync].apply(question, answer, now);
        self.nothing_is_refused(asker.sync, now);
        if let (Some((report, ratios)), Next::Reply(_, reply, _)) = (divided, &next) {
            let since = now.saturating_sub(WARM_UP_NS);
            invariants::grants_are_by_the_formula((&self.label, since), &report, &ratios, reply);
        }
        match next {
            Next::Reply(call, reply, is_settled) => self.reply(now, call, &reply.into(), is_settled),
            Next::Ask(question) => self.ask_store(now, asker.sync, *question),
            Next::Nothing => {}
        }
    }

    /// The report that the store has answered, and the admit ratios that follow from its budgets.
    fn divided(&self, question: &Question, answer: Option<&Answer>) -> Option<(Report, Vec<(PlanEntry, f64)>)> {
        if !self.setup.is_accounted {
            return None;
        }
        let (Question::Report(_, pending), Some(Answer::Report(answers))) = (question, answer) else {
            return None;
        };
        let of = |(entry, account): (&PlanEntry, &Result<StoreAccount, ()>)| {
            Some((entry.clone(), invariants::ratio(entry, account.as_ref().ok()?, &self.setup.terms)?))
        };
        let ratios: Vec<_> = pending.entries().iter().zip(&answers.accounts).filter_map(of).collect();
        (!ratios.is_empty()).then(|| (pending.report.clone(), ratios))
    }

    pub(super) fn probe(&mut self, now: u64, sync: usize, life: u32) {
        if self.syncs[sync].is_up && self.syncs[sync].life == life {
            self.ask_store(now, sync, Question::Probe);
        }
    }

    fn reply(&mut self, now: u64, call: Call, reply: &Rc<[u8]>, is_settled: bool) {
        if call.pop == 0 && self.setup.lie.is_some_and(|(_, [from, _])| now >= WARM_UP_NS + from) {
            // Its reports are not its own, so it needs no replies.
            return;
        }
        self.wire.replied(call.pop, reply);
        for delay in self.network.near(call.pop, now, &mut self.rng).into_iter().flatten() {
            self.due(now + delay, Event::Answered { call, reply: Rc::clone(reply), is_settled });
        }
    }
}
