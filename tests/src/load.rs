//! Load: bounded, on loopback, and told apart by outcome.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::{Answer, Ask, Client};

/// How many answers had which status.
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

/// What an open loop saw.
#[derive(Debug)]
pub struct Run {
    /// The statuses.
    pub tally: Tally,
    /// From the first request to the last answer.
    pub lasted: Duration,
    /// The longest that a request waited for its answer.
    pub slowest: Duration,
}

impl Run {
    /// Admitted per second.
    pub fn admitted_per_second(&self) -> f64 {
        // A count of requests in a test is far below 2^52.
        #[allow(clippy::cast_precision_loss, reason = "see above")]
        let admitted = self.tally.admitted() as f64;
        admitted / self.lasted.as_secs_f64()
    }
}

/// Sends `ask` `per_second` times a second for `span`, whatever the answers; after a stall it
/// catches up, so that the rate holds over the whole span.
pub async fn open_loop(client: &mut Client, ask: &Ask, per_second: u32, span: Duration) -> Run {
    let mut tick = interval(Duration::from_secs(1) / per_second);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut tally, mut slowest) = (Tally::default(), Duration::ZERO);
    let start = Instant::now();
    while start.elapsed() < span {
        tick.tick().await;
        let sent = Instant::now();
        tally.add(client.send(ask).await.status);
        slowest = slowest.max(sent.elapsed());
    }
    Run { tally, lasted: start.elapsed(), slowest }
}
