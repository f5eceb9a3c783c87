//! The outcome of a load.

use std::time::Duration;

use weir_protocol::quota::Quota;
use weir_tests::fleet::generator::Sent;
use weir_tests::fleet::reference::{Account, earned};

use super::watch::FORGOTTEN;
use super::{AT, Asker};

/// Admissions that a rule without `strict` must have, as a part of those of one ideal bucket for each client.
const RATIO: std::ops::RangeInclusive<f64> = 0.98..=1.02;
/// The admissions of clients in any three seconds, from those before something happens to those after it, as a part of
/// their rate.
const UNDISTURBED: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// The same of those whose master is concerned: they go on with their regions' shares, and a region that admitted
/// less than its own for a while catches up. Any three seconds of a quota allow its rate and a burst, a second's
/// worth here.
const ALONE: std::ops::RangeInclusive<f64> = 0.8..=4.0 / 3.0;
/// These three seconds.
const SPAN: Duration = Duration::from_secs(3);
/// For how long strict requests may be denied after the new master has a replica again.
const STRICT_WITHIN: Duration = Duration::from_secs(2);

/// A load that is over.
pub(super) struct Outcome {
    askers: Vec<Asker>,
    sent: Vec<Sent>,
    lasts: Duration,
}

/// Some of the clients.
type Which<'a> = &'a dyn Fn(&Asker) -> bool;

impl Outcome {
    pub(super) fn new(askers: Vec<Asker>, sent: Vec<Sent>, lasts: Duration) -> Self {
        Self { askers, sent, lasts }
    }

    fn of(&self, client: usize) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(move |sent| sent.client == client)
    }

    /// The clients that `which` means, with their numbers.
    fn clients<'a>(&'a self, which: Which<'a>) -> impl Iterator<Item = (usize, &'a Asker)> {
        self.askers.iter().enumerate().filter(move |(_, asker)| which(asker))
    }

    fn account(&self, client: usize, asker: &Asker) -> Account {
        let requests = self.of(client).map(|sent| (sent.at, sent.status == Ok(200)));
        Account::of(asker.rule.quota(), requests)
    }

    /// Requests that were neither admitted nor limited, in the order in which they were sent.
    fn failed(&self, which: Which<'_>) -> Vec<&Sent> {
        let is_failed = |sent: &&Sent| which(&self.askers[sent.client]) && !matches!(sent.status, Ok(200 | 429));
        self.sent.iter().filter(is_failed).collect()
    }

    /// Admissions, as a part of those of one ideal bucket for each client with the same requests.
    fn ratio(&self, which: Which<'_>) -> f64 {
        let accounts: Vec<_> = self.clients(which).map(|(client, asker)| self.account(client, asker)).collect();
        let admitted: usize = accounts.iter().map(Account::admitted).sum();
        float(admitted) / float(accounts.iter().map(|account| account.ideal).sum())
    }

    /// Admissions between `from` and `to`, as a part of the quota's rate.
    fn part(&self, which: Which<'_>, from: Duration, to: Duration) -> f64 {
        let (mut admitted, mut rate) = (0.0, 0.0);
        for (client, asker) in self.clients(which) {
            admitted += self.account(client, asker).rate_between(from, to);
            rate += f64::from(asker.rule.rate);
        }
        admitted / rate
    }

    /// The least and the most that was admitted in any [`SPAN`] from just before [`AT`] until `end`, as a part of the
    /// quota's rate.
    fn spans(&self, which: Which<'_>, end: Duration) -> (f64, f64) {
        let (mut at, mut least, mut most) = (AT.saturating_sub(SPAN), f64::INFINITY, 0.0_f64);
        while at <= end {
            let part = self.part(which, at, at + SPAN);
            (least, most) = (least.min(part), most.max(part));
            at += Duration::from_millis(250);
        }
        (least, most)
    }

    /// Prints what a load was that something happened to until `end`; and what those clients of rules that are not
    /// strict got that it happened to, and the others. Panics if a request of theirs failed, or they did not get
    /// their quota.
    pub(super) fn assert_kept(&self, what: &str, struck: Which<'_>, end: Duration) {
        let slowest = self.sent.iter().map(|sent| sent.took).max().unwrap_or_default();
        let latest = self.sent.iter().map(|sent| sent.late).max().unwrap_or_default();
        let (count, lasts) = (self.sent.len(), self.lasts);
        println!("{what}: {count} requests in {lasts:?}, answered within {slowest:?}, sent at most {latest:?} late");
        let failed = self.failed(&|asker| !asker.rule.is_strict);
        assert!(failed.is_empty(), "{what}: {} failed, the first: {:?}", failed.len(), failed.first());
        let kinds: [(&str, Which<'_>, _); 2] = [
            ("clients of the master in question", &|asker| !asker.rule.is_strict && struck(asker), ALONE),
            ("other clients", &|asker| !asker.rule.is_strict && !struck(asker), UNDISTURBED),
        ];
        for (kind, which, expected) in kinds.into_iter().filter(|(_, which, _)| self.clients(which).next().is_some()) {
            let (ratio, (slow, fast)) = (self.ratio(which), self.spans(which, end));
            println!("  {kind}: ratio {ratio:.3}; in any {SPAN:?} meanwhile {slow:.2} to {fast:.2} of the rate");
            // Spans are by when requests were sent; each is decided between then and its answer.
            let late = slowest.as_secs_f64() / SPAN.as_secs_f64();
            let is_kept = slow >= expected.start() - late && fast <= expected.end() + late;
            assert!(RATIO.contains(&ratio) && is_kept, "{what}, {kind}: {ratio:.3}, {slow:.2} to {fast:.2}");
        }
    }

    /// Prints what clients of the strict rule got. Panics if one of them got more than its quota in any span, got no
    /// answer, or was denied although nothing had happened to its master, or not before `end`.
    pub(super) fn assert_strict(&self, what: &str, struck: Which<'_>, end: Duration) {
        let is_strict: Which<'_> = &|asker| asker.rule.is_strict;
        let over = self.clients(is_strict).map(|(client, asker)| {
            let admitted = self.of(client).filter(|sent| sent.status == Ok(200));
            overshoot(asker.rule.quota(), &admitted.map(|sent| (sent.at, sent.took)).collect::<Vec<_>>())
        });
        let over = over.fold(f64::NEG_INFINITY, f64::max);
        let (denied, ratio) = (self.failed(is_strict), self.ratio(is_strict));
        let last = denied.last().map(|sent| sent.at.saturating_sub(AT)).unwrap_or_default();
        println!("  strict: {} denied, the last after {last:?}; ratio {ratio:.3}", denied.len());
        assert!(over <= 0.0, "{what}: a client of the strict rule got {over:.2} tokens too many");
        for sent in denied {
            let (asker, within) = (&self.askers[sent.client], AT.saturating_sub(FORGOTTEN)..end + STRICT_WITHIN);
            assert_eq!(sent.status, Ok(503), "{what}: {sent:?}");
            assert!(struck(asker), "{what}: its master lived, but it was denied: {sent:?}, {asker:?}");
            assert!(within.contains(&sent.at), "{what}: denied, not within {within:?}: {sent:?}");
        }
    }
}

/// By how many tokens the requests of any span are above burst + rate x t: those that were sent and answered within it
/// were decided within it. Not above 0 if the quota was kept.
fn overshoot(quota: Quota, admitted: &[(Duration, Duration)]) -> f64 {
    let mut most = f64::NEG_INFINITY;
    for (from, _) in admitted {
        for to in admitted.iter().map(|(at, took)| *at + *took) {
            let within = admitted.iter().filter(|(at, took)| at >= from && *at + *took <= to).count();
            most = most.max(float(within) - earned(quota, to.saturating_sub(*from)));
        }
    }
    most
}

/// A count of requests, which is far below 2^32.
fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
