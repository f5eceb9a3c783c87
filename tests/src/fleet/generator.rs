//! An open loop over many connections: each request is sent when it is due, however long the answers to
//! those before it take.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::scenario::Arrival;
use crate::client::{Ask, Client};

/// Connections to each POP that are open before the load begins.
const CONNECTIONS_READY: usize = 8;
/// The most requests that wait for their answers at a time. With that many, something stands still.
const IN_FLIGHT_MAX: usize = 1_000;

/// A request that was sent, and what became of it.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The time at which it was sent, from the beginning of the load.
    pub at: Duration,
    /// Its delay after it was due.
    pub late: Duration,
    /// The time until its answer.
    pub took: Duration,
    /// Its client.
    pub client: usize,
    /// Its POP.
    pub pop: usize,
    /// The answer's status, or why there is none.
    pub status: Result<u16, String>,
}

/// The connections of a load to its POPs, those that nobody uses at the moment.
#[derive(Clone)]
pub struct Generator {
    pops: Vec<SocketAddr>,
    free: Arc<Mutex<Vec<Vec<Client>>>>,
}

impl Generator {
    /// Opens connections to the POPs at these addresses.
    pub async fn new(pops: Vec<SocketAddr>) -> Self {
        let mut free = vec![];
        for address in &pops {
            let mut clients = vec![];
            for _ in 0..CONNECTIONS_READY {
                let mut client = Client::of_port(address.port());
                client.send(&Ask::from("192.0.2.254")).await;
                clients.push(client);
            }
            free.push(clients);
        }
        Self { pops, free: Arc::new(Mutex::new(free)) }
    }

    /// Sends each client's schedule, counted from `began`, and returns all of it in the order in
    /// which it was sent. `asks` are the clients' requests.
    pub async fn run(self, asks: Vec<Ask>, schedules: Vec<Vec<Arrival>>, began: Instant) -> Vec<Sent> {
        let mut due: Vec<(Duration, usize, usize)> = vec![];
        for (client, schedule) in schedules.into_iter().enumerate() {
            due.extend(schedule.into_iter().map(|(at, pop)| (at, pop, client)));
        }
        due.sort_unstable();
        let (mut under_way, mut sent) = (JoinSet::new(), Vec::with_capacity(due.len()));
        for (at, pop, client) in due {
            sleep_until(began + at).await;
            while let Some(done) = under_way.try_join_next() {
                sent.push(finished(done));
            }
            assert!(under_way.len() < IN_FLIGHT_MAX, "{IN_FLIGHT_MAX} requests wait for their answers");
            let ask = asks.get(client).cloned().unwrap_or_else(|| panic!("no client {client}"));
            under_way.spawn(self.clone().send(ask, client, pop, began, at));
        }
        while let Some(done) = under_way.join_next().await {
            sent.push(finished(done));
        }
        sent.sort_by_key(|sent| sent.at);
        sent
    }

    async fn send(self, ask: Ask, client: usize, pop: usize, began: Instant, due: Duration) -> Sent {
        let mut connection = self.connection(pop);
        let at = began.elapsed();
        let answer = connection.try_send(&ask).await;
        let took = began.elapsed().saturating_sub(at);
        if let Some(free) = self.free().get_mut(pop) {
            free.push(connection);
        }
        Sent { at, late: at.saturating_sub(due), took, client, pop, status: answer.map(|answer| answer.status) }
    }

    /// One that is free, or a new one.
    fn connection(&self, pop: usize) -> Client {
        let free = self.free().get_mut(pop).and_then(Vec::pop);
        let address = self.pops.get(pop).unwrap_or_else(|| panic!("no POP {pop}"));
        free.unwrap_or_else(|| Client::of_port(address.port()))
    }

    /// A request that failed while it held the lock must not hide its reason behind a second panic.
    fn free(&self) -> MutexGuard<'_, Vec<Vec<Client>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn finished(done: Result<Sent, tokio::task::JoinError>) -> Sent {
    done.unwrap_or_else(|e| panic!("a request broke off: {e}"))
}
