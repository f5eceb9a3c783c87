//! The rule set that the fleet is to run: fetched by one worker, shared with the others, put in force.
//!
//! What a POP ran last stays in force while there is no better: a version that cannot be fetched is tried
//! again, one that cannot be used is refused once and for all. The rules of the plugin configuration are
//! in force until a version was pushed; a worker that starts later takes that from shared data.

use weir_limiter::document::{self, DOCUMENT_BYTES_MAX};
use weir_limiter::rules::RuleSet;
use weir_limiter::time::Time;
use weir_limiter::wire::Running;

use super::Worker;
use crate::answers::RuleAnswers;
use crate::nginx;
use crate::shared::{self, RulesWord};
use crate::sync::{FETCH_TIMEOUT_MS, Unread, read_answer};

/// A fetch that has not ended after so long never will, in nanoseconds: its worker is gone, or its host forgot it.
const FETCH_NS_MAX: u64 = (FETCH_TIMEOUT_MS as u64 + 1_000) * 1_000_000;

/// What a worker knows of pushed rule sets.
#[derive(Default)]
pub(super) struct Live {
    running: Running,
    /// The other workers' word, as it was last acted upon.
    seen: RulesWord,
    fetching: Option<Fetching>,
    /// Why the last fetch failed; logged when it changes, not at every attempt.
    trouble: Option<String>,
}

/// A fetch under way.
struct Fetching {
    call: u32,
    version: u64,
    begun_at: Time,
}

impl Worker {
    /// Takes the rule set that another worker fetched, or fetches it if it is this one's turn.
    pub(crate) fn follow_rules(&mut self, interval_ns: u64) {
        self.take_shared_rules();
        let (now, wanted) = (self.clock.now(), self.limiter.rule_set_wanted());
        let Running { version, refused } = self.live.running;
        let under_way = self.live.fetching.as_ref();
        let is_fetching = under_way.is_some_and(|fetch| now.nanos_since(fetch.begun_at) < FETCH_NS_MAX);
        if wanted == 0 || wanted == version || wanted == refused || is_fetching {
            return;
        }
        let Some(caller) = &self.caller else { return };
        if !shared::is_my_turn_to_fetch(now, FETCH_NS_MAX) {
            return;
        }
        match caller.fetch_rules(wanted) {
            Ok(call) => self.live.fetching = Some(Fetching { call, version: wanted, begun_at: now }),
            Err(trouble) => self.try_again(trouble, now, interval_ns),
        }
    }

    /// Takes what another worker fetched, if that is news.
    pub(super) fn take_shared_rules(&mut self) {
        if self.caller.is_none() {
            return;
        }
        let word = shared::rules_word();
        if word == core::mem::replace(&mut self.live.seen, word) {
            return;
        }
        let Running { version, refused } = self.live.running;
        if word.refused > 0 && word.refused != refused {
            self.note_running(Running { version, refused: word.refused });
        }
        if word.version == 0 || word.version == version {
            return;
        }
        let Some(bytes) = shared::rules(word.version) else { return };
        match document::parse(&bytes) {
            Ok(rules) => {
                self.limiter.note_rule_set_wanted(word.version);
                self.put_in_force(word.version, rules);
            }
            // It was readable for the worker that put it there. If it is wanted, it is fetched again.
            Err(_) => log::warn!("rule set {} in shared data is unreadable", word.version),
        }
    }

    /// Takes in the answer to a fetch; false if the call was none.
    pub(crate) fn fetched_rules(
        &mut self,
        call: u32,
        headers: usize,
        body_size: usize,
        interval_ns: u64,
    ) -> bool {
        let Some(Fetching { version, .. }) = self.live.fetching.take_if(|fetch| fetch.call == call) else {
            return false;
        };
        let now = self.clock.now();
        let document = match read_answer(headers, body_size, DOCUMENT_BYTES_MAX) {
            Ok(document) => document,
            Err(Unread::Failed(trouble)) => {
                self.try_again(trouble, now, interval_ns);
                return true;
            }
            Err(Unread::TooLarge(problem)) => {
                self.refuse(version, &[problem]);
                shared::end_fetch(now);
                return true;
            }
        };
        self.live.trouble = None;
        let parsed = document::parse(&document)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
            .and_then(|rules| {
                let refusals = nginx::refusals(&rules);
                if refusals.is_empty() { Ok(rules) } else { Err(refusals) }
            });
        match parsed {
            // Another worker was quicker.
            Ok(_) if self.live.running.version == self.limiter.rule_set_wanted() => {}
            Ok(rules) => {
                self.put_in_force(version, rules);
                self.share(version, &document);
            }
            Err(errors) => self.refuse(version, &errors),
        }
        shared::end_fetch(now);
        true
    }

    fn share(&mut self, version: u64, document: &[u8]) {
        let word = RulesWord { version, refused: self.live.running.refused };
        if shared::set_rules(version, document) {
            shared::set_rules_word(word);
            self.live.seen = word;
        }
    }

    /// Every request from now on is decided by `rules`.
    fn put_in_force(&mut self, version: u64, rules: RuleSet) {
        // What was counted is the rules' that counted it.
        self.flush_metrics();
        self.metrics.define_rules(&rules);
        self.answers = rules.rules().iter().map(RuleAnswers::of).collect();
        let count = rules.rules().len();
        self.limiter.replace_rules(rules);
        self.note_running(Running { version, refused: self.live.running.refused });
        log::info!("rule set {version} is in force, of {count} rules");
    }

    fn refuse(&mut self, version: u64, errors: &[String]) {
        for error in errors {
            log::error!("rule set {version}: {error}");
        }
        let running = self.live.running.version;
        log::error!("rule set {version} is refused: correct the places above; what ran before runs on");
        self.note_running(Running { version: running, refused: version });
        let word = RulesWord { refused: version, ..shared::rules_word() };
        shared::set_rules_word(word);
    }

    fn try_again(&mut self, trouble: String, now: Time, interval_ns: u64) {
        // Ticks come a little early now and then.
        shared::end_fetch(now + interval_ns / 10 * 9);
        if self.live.trouble.as_ref() != Some(&trouble) {
            log::warn!("no rule set: {trouble}; what ran before runs on, and it is tried again");
        }
        self.live.trouble = Some(trouble);
    }

    fn note_running(&mut self, running: Running) {
        let now = self.clock.now();
        self.live.running = running;
        self.limiter.note_running(running, now);
        self.metrics.show_rule_set(running);
    }
}
