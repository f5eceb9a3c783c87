//! Envoy's rate limit quota service (`envoy.service.rate_limit_quota.v3`) over gRPC: clients decide for themselves, and are told
//! how much they may let through.
//!
//! What a client reports that it was asked for, the gateway's rules are asked for as well, as if each request had been checked
//! here. So its requests count in the same budgets as all others, and how much it may let through is what the rules do.
//!
//! ```text
//! service.rs      streams: reports in, assignments out; texts.rs, how they are read
//! asking.rs       a report; a bucket as a request of the rules
//! book.rs         all buckets and streams; bucket.rs, one bucket, divided among its clients
//! holder.rs       what one client has of a bucket, and may do
//! assignment.rs   the same as Envoy understands it
//! ```

mod asking;
mod assignment;
mod book;
mod bucket;
mod holder;
pub(super) mod service;
mod texts;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Status;
use weir_rules::RuleSet;
use weir_rules::algorithm::Algorithm;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::Missing;
use weir_rules::matching::Bits;
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Values};
use weir_wire::time::SECOND_NS;

use super::proto::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;
use super::{Ask, Decision, Gateway, Verdict};
use crate::metrics::Metrics;
use book::{Book, Reported, Sent};
use bucket::{Due, Ruling, Said};

/// How often the rules are asked for what is due: not much less evenly than requests come.
const TICK: Duration = Duration::from_millis(25);
/// How long after a report all of them are looked at: each look is at all buckets.
const TOGETHER: Duration = Duration::from_millis(2);
/// In how many checks at most.
const CHECKS_MAX: usize = 64;

/// Divides quotas among clients that decide for themselves.
pub(super) struct Quotas {
    gateway: Arc<Gateway>,
    metrics: Arc<Metrics>,
    book: Mutex<Book>,
    /// There is a report.
    reported: Notify,
    started: Instant,
}

impl std::fmt::Debug for Quotas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quotas").field("counts", &self.book().counts()).finish_non_exhaustive()
    }
}

impl Quotas {
    /// Of what the rules of `gateway` allow.
    pub(super) fn new(gateway: Arc<Gateway>, metrics: Arc<Metrics>) -> Arc<Self> {
        let (book, reported, started) = (Mutex::default(), Notify::new(), Instant::now());
        Arc::new(Self { gateway, metrics, book, reported, started })
    }

    /// Asks the rules and tells the clients, until it is aborted.
    pub(super) async fn run(self: Arc<Self>) {
        let mut asking = JoinSet::new();
        loop {
            tokio::select! {
                () = sleep(TICK) => {}
                // Reports that come at once are looked at together.
                () = self.reported.notified() => sleep(TOGETHER).await,
            }
            while asking.try_join_next().is_some() {}
            let due = self.book().due(self.now());
            for (name, due) in due {
                let this = Arc::clone(&self);
                asking.spawn(async move {
                    let said = this.ask(&due).await;
                    this.book().said(&name, &due, said);
                });
            }
            let counts = {
                let mut book = self.book();
                book.tell(self.now());
                book.counts()
            };
            self.metrics.set_quotas(counts);
        }
    }

    /// Ends all streams, for this reason.
    pub(super) fn close(&self, why: &'static str) {
        self.book().close(why);
    }

    fn open(&self, sender: Sender<Sent>, token: &str) -> Result<u64, Status> {
        self.book().open(sender, token, self.now())
    }

    fn end(&self, stream: u64) {
        self.book().end(stream);
    }

    fn look(&self, stream: u64) -> Result<(), Status> {
        self.book().look(stream)
    }

    fn report(&self, stream: u64, reports: RateLimitQuotaUsageReports) -> Result<(), Status> {
        let now = self.now();
        let Reported { admitted, refused, uncounted } = self.book().report(stream, reports, now)?;
        let counts = [(Decision::Allow, admitted), (Decision::Limit, refused), (Decision::Deny, uncounted)];
        for (decision, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.metrics.count_checks("quota", decision.as_str(), count);
        }
        self.reported.notify_one();
        Ok(())
    }

    /// Asks the rules for what is due, in several checks, each of which is let through as a whole or not.
    async fn ask(&self, due: &Due) -> Said {
        let (mut asked, mut given, mut last) = (0, 0, None);
        let pause = TICK / due.count.div_ceil(due.at_once);
        for _ in 0..CHECKS_MAX {
            let hits = due.at_once.min(due.count - asked);
            if hits == 0 {
                break;
            }
            if asked > 0 {
                // Whoever asks elsewhere meanwhile has the same chance.
                sleep(pause).await;
            }
            let verdict = self.gateway.check_alone(Ask { hits, ..due.ask.clone() }).await;
            asked += hits;
            if verdict.decision == Decision::Allow {
                given += hits;
            }
            last = Some(verdict);
        }
        let ruling = last.map_or(Ruling::Unchecked, |verdict| self.ruling(&verdict, due.ask.clone()));
        Said { asked, given, ruling }
    }

    fn ruling(&self, verdict: &Verdict, ask: Ask) -> Ruling {
        match (verdict.decision, &verdict.standing) {
            (Decision::Deny, _) => Ruling::Unchecked,
            (Decision::Allow, None) => Ruling::Free,
            (Decision::Block | Decision::Limit, None) => Ruling::Refused,
            (_, Some(_)) => self.gateway.with_rules(|rules| allowed(rules, ask)).unwrap_or(Ruling::Refused),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the rules that count such a request allow, all together; none if none does.
fn allowed(rules: &RuleSet, mut ask: Ask) -> Option<Ruling> {
    let (mut values, mut room, mut places) = (Values::default(), Bits::default(), Vec::new());
    let mut request = Fetched::new(&mut ask, rules.attributes(), &mut values);
    let met = rules.meet(&mut request, &mut room, &mut places);
    let rules = met.iter().filter_map(|place| rules.rules().get(usize::from(*place)));
    let enforced =
        rules.filter(|rule| rule.enforcement.mode == Mode::Enforce && !rule.variant.is_unlimited());
    // What the key is does not matter, only whether there is one.
    let secret = FleetSecret::derive(&[]);
    let ruling = enforced.filter_map(|rule| {
        if rule.missing == Missing::Skip && rule.key.value(&mut request, &secret).is_err() {
            return None;
        }
        let cost = f64::from(rule.cost.of(&mut request));
        #[allow(clippy::cast_precision_loss, reason = "a rate need not be exact here")]
        let rate = SECOND_NS as f64 / rule.quota.token_ns() as f64 / cost;
        let is_shared = matches!(rule.algorithm, Algorithm::TokenBucket(_)) && !rule.sharing.strict;
        Some((f64::from(rule.quota.burst()) / cost, rate, !is_shared))
    });
    let both = |one: (f64, f64, bool), other: (f64, f64, bool)| {
        (one.0.min(other.0), one.1.min(other.1), one.2 || other.2)
    };
    let (burst, rate, is_prepaid) = ruling.reduce(both)?;
    Some(Ruling::Counted { burst, rate, is_prepaid })
}
