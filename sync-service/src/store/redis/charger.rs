//! Charges of budgets: reports that wait at the same moment go together, and their counts of one budget in one call.

use std::collections::HashMap;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::timeout;
use weir_budget::budget::Account;

use super::charge::{Charging, accounts};
use super::script::Lua;
use super::servers::Servers;
use crate::store::StoreError;

/// The most reports that wait to be sent.
const REPORTS_MAX: usize = 4_096;
/// The most trips that are under way at once.
const TRIPS_MAX: usize = 64;
/// Reports that come while a trip is under way wait for its end, so that they go together; but no longer than this: Redis may be
/// far away, and nobody's reply is to wait for long.
const NEAR: Duration = Duration::from_millis(5);
/// The most counts that go in one call: Redis does nothing else meanwhile.
const COUNTS_MAX: usize = 64;

/// Sends charges to one server, trip after trip: reports that come while one is under way go with the next, and while it takes
/// long, with one beside it. The background work ends when this is dropped.
#[derive(Debug)]
pub(super) struct Charger {
    asked: mpsc::Sender<Asked>,
    task: JoinHandle<()>,
}

/// What a report charges, and who waits for it.
struct Asked {
    charges: Vec<Charging>,
    answer: oneshot::Sender<Vec<Result<Account, StoreError>>>,
}

/// A call of the script, and whose charges are in it, by their numbers in the trip.
struct Joined {
    charging: Charging,
    charges: Vec<usize>,
}

impl Drop for Charger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Charger {
    /// Sends calls of `script` to `servers`, of which there is one. Must run inside tokio.
    pub(super) fn new(servers: Arc<Servers>, script: Arc<Lua>) -> Self {
        let (asked, asking) = mpsc::channel(REPORTS_MAX);
        Self { asked, task: tokio::spawn(run(asking, servers, script)) }
    }

    /// What became of each of `charges`, in their order.
    pub(super) async fn charge(&self, charges: Vec<Charging>) -> Vec<Result<Account, StoreError>> {
        let (count, (answer, answered)) = (charges.len(), oneshot::channel());
        // The other end is there for as long as this is.
        let _ = self.asked.send(Asked { charges, answer }).await;
        answered.await.unwrap_or_else(|_| iter::repeat_n(Err(StoreError::Connecting), count).collect())
    }
}

async fn run(mut asking: mpsc::Receiver<Asked>, servers: Arc<Servers>, script: Arc<Lua>) {
    let mut trips = JoinSet::new();
    let mut asked = Vec::new();
    loop {
        tokio::select! {
            count = asking.recv_many(&mut asked, REPORTS_MAX), if trips.len() < TRIPS_MAX => if count == 0 { return },
            Some(_) = trips.join_next() => continue,
        }
        // Reports that came with this one are about to ask, too.
        yield_now().await;
        let room = REPORTS_MAX.saturating_sub(asked.len());
        asked.extend(iter::from_fn(|| asking.try_recv().ok()).take(room));
        // Its POP may have given up meanwhile.
        asked.retain(|asked| !asked.answer.is_closed());
        // A call of nothing is refused, and the link would hear of it.
        if !asked.is_empty() {
            trips.spawn(trip(mem::take(&mut asked), Arc::clone(&servers), Arc::clone(&script)));
            let _ = timeout(NEAR, trips.join_next()).await;
        }
    }
}

/// Sends these, and tells their reports what became of them.
async fn trip(asked: Vec<Asked>, servers: Arc<Servers>, script: Arc<Lua>) {
    let (mut charges, mut waiting) = (Vec::new(), Vec::with_capacity(asked.len()));
    for asked in asked {
        waiting.push((asked.charges.len(), asked.answer));
        charges.extend(asked.charges);
    }
    let mut known: Vec<_> = iter::repeat_n(Err(StoreError::Nonsense("no answer")), charges.len()).collect();
    let (calls, joined): (Vec<_>, Vec<_>) = join(charges)
        .into_iter()
        .map(|Joined { charging, charges }| {
            let (call, says) = charging.call(&script);
            (call, (charges, says))
        })
        .unzip();
    let said = servers.send::<Vec<u8>>(calls, &script).await;
    for ((charges, says), said) in joined.into_iter().zip(said) {
        let each = said.and_then(|said| accounts(&said, &says));
        for (n, charge) in charges.into_iter().enumerate() {
            if let Some(place) = known.get_mut(charge) {
                *place = match &each {
                    Ok(each) => each.get(n).cloned().ok_or(StoreError::Nonsense("too few accounts")),
                    Err(reason) => Err(reason.clone()),
                };
            }
        }
    }
    let mut known = known.into_iter();
    for (count, answer) in waiting {
        // Its POP may have given up meanwhile.
        let _ = answer.send(known.by_ref().take(count).collect());
    }
}

/// Puts the counts of one budget into one call, as long as there is room and they go by one quota.
fn join(charges: Vec<Charging>) -> Vec<Joined> {
    let (mut calls, mut last_of): (Vec<Joined>, HashMap<String, usize>) = (Vec::new(), HashMap::new());
    for (n, charging) in charges.into_iter().enumerate() {
        let known = last_of.get(&charging.key).and_then(|at| calls.get_mut(*at));
        if let Some(call) = known.filter(|call| call.charging.takes(&charging, COUNTS_MAX)) {
            call.charging.join(charging);
            call.charges.push(n);
            continue;
        }
        last_of.insert(charging.key.clone(), calls.len());
        calls.push(Joined { charging, charges: vec![n] });
    }
    calls
}
