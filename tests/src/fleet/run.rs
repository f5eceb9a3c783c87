//! The results of a load.

use std::time::Duration;

use weir_protocol::quota::Quota;

use super::POPS;
use super::generator::Sent;
use super::reference::Account;

/// Seconds that began before this are not counted among the fullest: what is new to all POPs may be
/// admitted by each.
const SETTLED: Duration = Duration::from_secs(2);

/// The head of a table of [`Run::row`]s.
pub const HEAD: &str = "\
| scenario | offered | admitted | ideal | ratio | overshoot at most | at the end | fullest second |
|---|---|---|---|---|---|---|---|";

/// All that was sent, and what became of it.
#[derive(Clone, Debug)]
pub struct Run {
    quota: Quota,
    sent: Vec<Sent>,
}

impl Run {
    pub(super) fn new(quota: Quota, sent: Vec<Sent>) -> Self {
        Self { quota, sent }
    }

    /// Panics unless every request was answered with 200 or 429.
    pub fn assert_only_decisions(&self) {
        let failed: Vec<&Sent> = self.sent.iter().filter(|sent| !matches!(sent.status, Ok(200 | 429))).collect();
        assert!(
            failed.is_empty(),
            "{} of {} requests were neither admitted nor limited, the first: {:?}",
            failed.len(),
            self.sent.len(),
            failed.first()
        );
    }

    /// The outcomes of one client's requests.
    pub fn account(&self, client: usize) -> Account {
        let requests = self.sent.iter().filter(|sent| sent.client == client);
        Account::of(self.quota, requests.map(|sent| (sent.at, sent.status == Ok(200))))
    }

    /// The figures of one client's requests, as a row of a table in Markdown: overshoots in tokens, the
    /// fullest second as a part of rate x 1 s + burst.
    pub fn row(&self, client: usize, name: &str) -> String {
        let account = self.account(client);
        let end = self.sent.last().map(|sent| sent.at).unwrap_or_default();
        format!(
            "| {name} | {} | {} | {} | {:.3} | {:.0} | {:.0} | {:.2} |",
            account.offered,
            account.admitted(),
            account.ideal,
            account.ratio(),
            account.overshoot_most(),
            account.overshoot_at(end),
            account.fullest_second(SETTLED),
        )
    }

    /// The part that each POP admitted between `from` and `to`.
    pub fn admitted_by_pop(&self, client: usize, from: Duration, to: Duration) -> [usize; POPS] {
        let mut counts = [0; POPS];
        for sent in self.sent.iter().filter(|sent| sent.client == client && sent.status == Ok(200)) {
            if let Some(count) = counts.get_mut(sent.pop).filter(|_| (from..to).contains(&sent.at)) {
                *count += 1;
            }
        }
        counts
    }

    /// The longest delay of a request after it was due: the machine's load shows in it, not Weir's.
    pub fn latest(&self) -> Duration {
        self.sent.iter().map(|sent| sent.late).max().unwrap_or_default()
    }

    /// The longest that a request waited for its answer.
    pub fn slowest(&self) -> Duration {
        self.sent.iter().map(|sent| sent.took).max().unwrap_or_default()
    }
}
