//! Charges of budgets. Reports that wait at the same moment are sent together: counts of one budget are joined,
//! and several budgets go in one call.

use std::iter;
use std::mem;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use weir_budget::budget::Account;
use weir_budget::id::Hashed;

use super::charge::{Charging, accounts};
use super::cluster::Servers;
use super::script::Lua;
use super::trips::Trips;
use crate::StoreError;

/// Maximum number of counts in one call, during which Redis does nothing else.
const COUNTS_MAX: usize = 64;
/// Maximum number of budgets in one call. At this number, the overhead of a call is small compared to its charges.
const BUDGETS_MAX: usize = 16;

/// Sends charges to one server (see [`Trips`]).
#[derive(Debug)]
pub(super) struct Charger(Trips<Asked>);

/// Charges of a report, and the channel for their results.
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
    /// Creates the sender of calls of `script` to `servers`, which is a single server. Must be called inside a
    /// tokio runtime.
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
