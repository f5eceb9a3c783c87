//! Charges of budgets, and the exchanges with one server that they go in. Reports that wait at the same moment are sent
//! together: counts of one budget are joined, and several budgets go in one call.

use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use weir_budget::budget::Account;
use weir_budget::id::Hashed;

use super::charge::{Charging, accounts};
use super::cluster::Servers;
use super::script::Lua;
use crate::StoreError;

/// Maximum number of counts in one call, during which Redis does nothing else.
const COUNTS_MAX: usize = 64;
/// Maximum number of budgets in one call. At this number, the overhead of a call is small compared to its charges.
const BUDGETS_MAX: usize = 16;

/// Sends charges to one server (see [`Trips`]).
#[derive(Debug)]
pub(super) struct Charger(Trips<Asked>);

#[derive(Debug)]
struct Asked {
    charges: Vec<Charging>,
    answer: oneshot::Sender<Vec<Result<Account, StoreError>>>,
}

/// The joined charge of one budget, and the indexes of its charges in the trip.
struct Joined {
    charging: Charging,
    charges: Vec<usize>,
}

impl Charger {
    pub(super) fn new(servers: Arc<Servers>, script: Arc<Lua>) -> Self {
        Self(Trips::new(
            |asked: &Asked| asked.answer.is_closed(),
            move |asked| {
                // A task of its own, as reading the answers to many charges takes a while.
                let mut tasks = JoinSet::new();
                tasks.spawn(trip(asked, Arc::clone(&servers), Arc::clone(&script)));
                async move { drop(tasks.join_next().await) }
            },
        ))
    }

    pub(super) async fn charge(&self, charges: Vec<Charging>) -> Vec<Result<Account, StoreError>> {
        let (count, (answer, answered)) = (charges.len(), oneshot::channel());
        self.0.ask(Asked { charges, answer }).await;
        answered.await.unwrap_or_else(|_| iter::repeat_n(Err(StoreError::Connecting), count).collect())
    }
}

async fn trip(asked: Vec<Asked>, servers: Arc<Servers>, script: Arc<Lua>) {
    let (mut charges, mut waiting) = (Vec::new(), Vec::with_capacity(asked.len()));
    for asked in asked {
        waiting.push((asked.charges.len(), asked.answer));
        charges.extend(asked.charges);
    }
    let mut known: Vec<_> = iter::repeat_n(Err(StoreError::Invalid("no answer")), charges.len()).collect();
    let (calls, waiting_for): (Vec<_>, Vec<_>) = in_calls(join(charges))
        .into_iter()
        .map(|joined| {
            let (charges, numbers): (Vec<_>, Vec<_>) =
                joined.into_iter().map(|Joined { charging, charges }| (charging, charges)).unzip();
            let (call, implied) = Charging::call(&script, charges);
            (call, (numbers, implied))
        })
        .unzip();
    let answer = servers.send::<Vec<u8>>(calls, &script).await;
    for ((numbers, implied), answer) in waiting_for.into_iter().zip(answer) {
        let each = match answer.and_then(|answer| accounts(&answer, implied)) {
            Ok(each) => each.into_iter().flatten().map(Ok).collect::<Vec<_>>(),
            Err(reason) => numbers.iter().flatten().map(|_| Err(reason.clone())).collect(),
        };
        for (n, account) in numbers.into_iter().flatten().zip(each) {
            if let Some(place) = known.get_mut(n) {
                *place = account;
            }
        }
    }
    let mut known = known.into_iter();
    for (count, answer) in waiting {
        // The report may have timed out meanwhile.
        let _ = answer.send(known.by_ref().take(count).collect());
    }
}

/// Joins the counts of each budget, as long as there is room and they have the same quota.
fn join(charges: Vec<Charging>) -> Vec<Joined> {
    let before = same_before(&charges);
    let mut budgets: Vec<Joined> = Vec::with_capacity(charges.len());
    // Index of each charge among these.
    let mut places: Vec<usize> = Vec::with_capacity(charges.len());
    for (n, (charging, before)) in charges.into_iter().zip(before).enumerate() {
        let place = before.and_then(|before| places.get(before).copied());
        let known = place.and_then(|place| Some((place, budgets.get_mut(place)?)));
        if let Some((place, budget)) = known.filter(|(_, budget)| budget.charging.takes(&charging, COUNTS_MAX)) {
            budget.charging.join(charging);
            budget.charges.push(n);
            places.push(place);
            continue;
        }
        places.push(budgets.len());
        budgets.push(Joined { charging, charges: vec![n] });
    }
    budgets
}

/// For each charge, the index of the previous one of the same budget.
fn same_before(charges: &[Charging]) -> Vec<Option<usize>> {
    let mut last_of: Hashed<&str, usize> = Hashed::with_capacity(charges.len());
    charges.iter().enumerate().map(|(n, charging)| last_of.insert(&charging.key, n)).collect()
}

/// Divides budgets among calls, in order: a call takes budgets of one replica while there is room.
fn in_calls(budgets: Vec<Joined>) -> Vec<Vec<Joined>> {
    let (mut calls, mut call, mut counts) = (Vec::new(), Vec::<Joined>::new(), 0);
    for budget in budgets {
        let more = budget.charging.counts_len();
        let is_same = |last: &Joined| last.charging.is_of_replica(&budget.charging);
        if call.len() >= BUDGETS_MAX || counts + more > COUNTS_MAX || !call.last().is_none_or(is_same) {
            calls.push(mem::take(&mut call));
            counts = 0;
        }
        counts += more;
        call.push(budget);
    }
    calls.push(call);
    calls.retain(|call| !call.is_empty());
    calls
}

const ASKED_MAX: usize = 4_096;
const TRIPS_MAX: usize = 64;
/// Maximum time for which requests wait for the end of the current exchange, so that they are sent together.
const NEAR: Duration = Duration::from_millis(5);

/// Sends requests in exchanges. Requests that arrive during an exchange are sent with the next one, or beside
/// it if it takes long. The background task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Trips<T> {
    asked: mpsc::Sender<T>,
    _task: JoinSet<()>,
}

impl<T: Send + 'static> Trips<T> {
    /// Creates the sender; `go` makes an exchange. Requests given up according to `is_given_up` are not sent.
    pub(super) fn new<G, F>(is_given_up: fn(&T) -> bool, go: G) -> Self
    where
        G: Fn(Vec<T>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (asked, asking) = mpsc::channel(ASKED_MAX);
        Self { asked, _task: JoinSet::from_iter([run(asking, is_given_up, go)]) }
    }

    pub(super) async fn ask(&self, asked: T) {
        // The receiver lives as long as this sender.
        let _ = self.asked.send(asked).await;
    }
}

async fn run<T, G, F>(mut asking: mpsc::Receiver<T>, is_given_up: fn(&T) -> bool, go: G)
where
    G: Fn(Vec<T>) -> F,
    F: Future<Output = ()>,
{
    let mut trips = FuturesUnordered::new();
    let mut asked = Vec::new();
    loop {
        tokio::select! {
            count = asking.recv_many(&mut asked, ASKED_MAX), if trips.len() < TRIPS_MAX => if count == 0 { return },
            Some(()) = trips.next() => continue,
        }
        // Tasks woken together with this one may be about to send as well.
        yield_now().await;
        let room = ASKED_MAX.saturating_sub(asked.len());
        asked.extend(iter::from_fn(|| asking.try_recv().ok()).take(room));
        asked.retain(|asked| !is_given_up(asked));
        // A call without requests would be refused, and the link would report a failure.
        if !asked.is_empty() {
            trips.push(go(mem::take(&mut asked)));
            let _ = timeout(NEAR, trips.next()).await;
        }
    }
}
