//! Load: bounded, on loopback, and counted by outcome.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::client::{Answer, Ask, Client};

/// The number of answers of each status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<u16, usize>);

impl Tally {
    /// Answers with status 200.
    pub fn admitted(&self) -> usize {
        self.of(200)
    }

    /// Answers with status 429.
    pub fn limited(&self) -> usize {
        self.of(429)
    }

    /// Answers with this status.
    pub fn of(&self, status: u16) -> usize {
        self.0.get(&status).copied().unwrap_or_default()
    }

    /// All answers.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Counts one more.
    pub fn add(&mut self, status: u16) {
        *self.0.entry(status).or_default() += 1;
    }

    /// Counts all of `other` too.
    pub fn merge(&mut self, other: &Self) {
        for (status, count) in &other.0 {
            *self.0.entry(*status).or_default() += count;
        }
    }

    /// Panics unless every answer was 200 or 429.
    pub fn assert_only_decisions(&self) {
        assert_eq!(self.total(), self.admitted() + self.limited(), "something but 200 and 429: {self:?}");
    }
}

/// Sends `ask` `count` times, one after the other.
pub async fn repeat(client: &mut Client, ask: &Ask, count: usize) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..count {
        tally.add(client.send(ask).await.status);
    }
    tally
}

/// Sends `ask` until it is limited, at most `most` times; gives the limited answer and the number
/// that was admitted before it.
pub async fn drain(client: &mut Client, ask: &Ask, most: usize) -> (Answer, usize) {
    for admitted in 0..most {
        let answer = client.send(ask).await;
        if answer.status == 429 {
            return (answer, admitted);
        }
        assert_eq!(answer.status, 200, "neither admitted nor limited: {answer:?}");
    }
    panic!("{most} requests and none was limited: {ask:?}");
}

/// All clients at once, each sending what `asks` gives it, one after the other.
pub async fn together<I>(clients: Vec<Client>, mut asks: impl FnMut(usize) -> I) -> Tally
where
    I: IntoIterator<Item = Ask>,
    I::IntoIter: Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (index, mut client) in clients.into_iter().enumerate() {
        let asks = asks(index).into_iter();
        tasks.spawn(async move {
            let mut tally = Tally::default();
            for ask in asks {
                tally.add(client.send(&ask).await.status);
            }
            tally
        });
    }
    let mut total = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        total.merge(&tally.unwrap_or_else(|e| panic!("a client failed: {e}")));
    }
    total
}

/// The results of an open loop.
#[derive(Debug)]
pub struct Run {
    /// The statuses.
    pub tally: Tally,
    /// From the first request to the last answer, or to when the next request would have been due.
    pub lasted: Duration,
    /// The longest that a request waited for its answer.
    pub slowest: Duration,
    /// The time at which it began.
    pub began: Instant,
    /// The time of each answer with status 200, in order.
    pub admitted_at: Vec<Instant>,
    /// The time of each answer with status 429, in order.
    pub limited_at: Vec<Instant>,
    /// The first answers with another status, and how long after the start each had come.
    pub others: Vec<(Duration, Answer)>,
}

/// The number of answers that are neither 200 nor 429 that a run keeps.
const OTHERS_MAX: usize = 3;

impl Run {
    /// Panics unless every answer was 200 or 429, and shows what else came, and when.
    pub fn assert_only_decisions(&self) {
        assert!(
            self.others.is_empty(),
            "something but 200 and 429: {:?}, the slowest answer took {:?}, first {:?}",
            self.tally,
            self.slowest,
            self.others
        );
    }

    /// Admitted per second over the `span` from `from` on.
    pub fn admitted_per_second_from(&self, from: Instant, span: Duration) -> f64 {
        let within = self.admitted_at.iter().filter(|at| (from..from + span).contains(at));
        count(within.count()) / span.as_secs_f64()
    }

    /// The most tokens that it was ahead of `burst` and `rate` a second since it began, at any time.
    /// Exact only where what is asked had a full bucket then; not above 0 where the limit was kept.
    pub fn most_ahead(&self, rate: f64, burst: f64) -> f64 {
        let ahead = self.admitted_at.iter().enumerate().map(|(index, at)| {
            let earned = burst + rate * at.duration_since(self.began).as_secs_f64();
            count(index + 1) - earned
        });
        ahead.fold(f64::NEG_INFINITY, f64::max)
    }
}

/// A count of requests in a test, which is far below 2^52.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn count(requests: usize) -> f64 {
    requests as f64
}

/// Sends `ask` `per_second` times a second for `span`, whatever the answers: request i at i periods
/// from the start, or as soon as the answer before it is there. So neither the number of requests
/// nor their rate over the whole span depends on how busy the machine is.
pub async fn open_loop(client: &mut Client, ask: &Ask, per_second: u32, span: Duration) -> Run {
    let period = Duration::from_secs(1) / per_second;
    let requests = span.as_nanos() / period.as_nanos().max(1);
    paced(client, ask, period, |sent| u128::from(sent) < requests).await
}

/// The same until `stop` is true (or its sender is gone).
pub async fn open_loop_until(client: &mut Client, ask: &Ask, per_second: u32, stop: watch::Receiver<bool>) -> Run {
    let go_on = |_| !*stop.borrow() && stop.has_changed().is_ok();
    paced(client, ask, Duration::from_secs(1) / per_second, go_on).await
}

async fn paced(client: &mut Client, ask: &Ask, period: Duration, go_on: impl Fn(u32) -> bool) -> Run {
    let (mut tally, mut slowest) = (Tally::default(), Duration::ZERO);
    let (mut admitted_at, mut limited_at, mut others) = (vec![], vec![], vec![]);
    let (began, mut sent) = (Instant::now(), 0);
    while go_on(sent) {
        let asked = Instant::now();
        let answer = client.send(ask).await;
        let answered = Instant::now();
        tally.add(answer.status);
        match answer.status {
            200 => admitted_at.push(answered),
            429 => limited_at.push(answered),
            _ if others.len() < OTHERS_MAX => others.push((answered - began, answer)),
            _ => {}
        }
        slowest = slowest.max(answered - asked);
        sent += 1;
        sleep_until((began + period * sent).into()).await;
    }
    Run { tally, lasted: began.elapsed(), slowest, began, admitted_at, limited_at, others }
}
