//! Requests in the middle: those that the filter holds until a call of theirs is answered, and those
//! whose upstream has not answered yet.

use super::host::{Ask, CallAnswer, Created, HttpCall};
use super::worker::{CONTINUE, Decision, PAUSE, Served, Worker, expect};

/// A request after its headers.
#[derive(Debug)]
pub enum Begun {
    /// It is decided, and over.
    Served(Served),
    /// It is held.
    Waiting(Waiting),
}

/// A request that is held.
#[derive(Clone, Debug)]
pub struct Waiting {
    context: u32,
    ask: Ask,
    /// The call whose answer it waits for.
    pub call: HttpCall,
}

/// A request whose upstream has not answered yet.
#[derive(Clone, Copy, Debug)]
pub struct Passing(u32);

impl Worker {
    /// A request before it begins.
    pub fn to_come(&mut self) -> Created {
        Created { id: self.next_context(), root: self.root() }
    }

    /// A request that has begun.
    pub fn created(&mut self) -> Created {
        let created = self.to_come();
        self.created_again(created)
    }

    /// Another with the same number.
    pub fn created_again(&mut self, created: Created) -> Created {
        expect(self.create(created.id, self.root()));
        created
    }

    /// The headers of a request come, and it goes on to its upstream, which has not answered yet; none where the filter
    /// answers it.
    pub fn passes(&mut self, created: Created, ask: &Ask) -> Option<Passing> {
        let action = expect(self.headers(created.id, ask));
        (expect(self.decision(action)) == Decision::Continue).then_some(Passing(created.id))
    }

    /// A request ends before its headers come.
    pub fn given_up(&mut self, created: Created) {
        expect(self.delete(created.id));
    }

    /// A request up to its decision, or until it is held with a call under way.
    pub fn begin_request(&mut self, ask: &Ask) -> Begun {
        let before = self.host().http_calls.len();
        let (context, action) = expect(self.begin(ask));
        let host = self.host();
        if action == PAUSE && host.responses.is_empty() && host.http_calls.len() == before + 1 {
            let call = host.http_calls[before].clone();
            return Begun::Waiting(Waiting { context, ask: ask.clone(), call });
        }
        let decision = expect(self.decision(action));
        Begun::Served(expect(self.end(context, decision)))
    }

    /// A request that has to be held; panics if it is not.
    pub fn held(&mut self, ask: &Ask) -> Waiting {
        match self.begin_request(ask) {
            Begun::Waiting(waiting) => waiting,
            Begun::Served(served) => panic!("it was decided at once: {served:?}"),
        }
    }

    /// Answers the call that a request waits for; what becomes of the request. Panics unless that is one
    /// answer, or to go on, once.
    pub fn answer_waiting(&mut self, waiting: &Waiting, answer: CallAnswer) -> Served {
        let host = self.host_mut();
        host.ask = waiting.ask.clone();
        host.responses.clear();
        host.added_headers.clear();
        let resumed_before = host.resumed;
        self.answer_call(waiting.call.token, answer);
        let action = match self.host().resumed - resumed_before {
            0 => PAUSE,
            1 => CONTINUE,
            times => panic!("let go on {times} times"),
        };
        let decision = expect(self.decision(action));
        expect(self.end(waiting.context, decision))
    }

    /// Its upstream answers.
    pub fn respond(&mut self, passing: Passing) -> Served {
        let host = self.host_mut();
        host.responses.clear();
        host.added_headers.clear();
        expect(self.end(passing.0, Decision::Continue))
    }

    /// The client of a request that is held goes away.
    pub fn abandon(&mut self, waiting: &Waiting) {
        self.host_mut().http_calls.retain(|call| call.token != waiting.call.token);
        expect(self.delete(waiting.context));
    }
}
