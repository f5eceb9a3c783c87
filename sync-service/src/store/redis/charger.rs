//! Charges of budgets: reports that wait at the same moment go together, and their counts of one budget in one call.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use weir_budget::budget::Account;

use super::charge::{Charging, accounts};
use super::script::Lua;
use super::servers::Servers;
use super::trips::Trips;
use crate::store::StoreError;

/// The most counts that go in one call: Redis does nothing else meanwhile.
const COUNTS_MAX: usize = 64;

/// Sends charges to one server (see [`Trips`]).
#[derive(Debug)]
pub(super) struct Charger(Trips<Asked>);

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

impl Charger {
    /// Sends calls of `script` to `servers`, of which there is one. Must run inside tokio.
    pub(super) fn new(servers: Arc<Servers>, script: Arc<Lua>) -> Self {
        Self(Trips::new(
            |asked: &Asked| asked.answer.is_closed(),
            move |asked| {
                // A task of its own: what comes back of many charges takes a while to read.
                let mut tasks = JoinSet::new();
                tasks.spawn(trip(asked, Arc::clone(&servers), Arc::clone(&script)));
                async move { drop(tasks.join_next().await) }
            },
        ))
    }

    /// What became of each of `charges`, in their order.
    pub(super) async fn charge(&self, charges: Vec<Charging>) -> Vec<Result<Account, StoreError>> {
        let (count, (answer, answered)) = (charges.len(), oneshot::channel());
        self.0.ask(Asked { charges, answer }).await;
        answered.await.unwrap_or_else(|_| iter::repeat_n(Err(StoreError::Connecting), count).collect())
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
