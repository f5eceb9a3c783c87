//! Budgets in Redis: one string each, charged by one script. Charges of reports that wait at the same moment are sent
//! together: counts of one budget are joined, and several budgets go in one call.

use std::borrow::Cow;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use weir_budget::budget::{
    Account, CHARGE_TOKENS_MAX, COUNT_MAX, Charge, Demand, KEPT_US_MAX, PlanEntry, ReplicaDemand, STEP_KEPT_US, keep_us,
};
use weir_budget::id::{Hashed, Hex};
use weir_budget::records::{FAN_OUT_KEPT_US, MADE_MS_MAX, fill_us};
use weir_protocol::quota::Quota;

use super::Servers;
use super::exchange::{Asked, RoutedCommand, Trips};
use super::script::Lua;
use crate::StoreError;
use crate::clock::{DOUBLE, add_doubles, doubles, whole};

/// Number of doubles per budget before those of its counts; the last one is the number of counts.
const HEAD_DOUBLES: usize = 6;
const COUNT_DOUBLES: usize = 6;

#[derive(Debug)]
pub struct Charging {
    key: String,
    quota: Quota,
    replica: Arc<str>,
    sources: Vec<String>,
    /// Arguments for the budget and its counts, as doubles.
    numbers: Vec<u8>,
    /// Demand of the replica, one for each POP's counts.
    demands: Vec<Demand>,
}

/// Parts of the accounts that are not in the answer to a call.
#[derive(Debug)]
pub struct ImpliedReply {
    replica: Arc<str>,
    demands: Vec<Vec<Demand>>,
}

/// Arguments of a call that charges several budgets in the name of one replica.
#[derive(Debug)]
pub struct Arguments {
    pub keys: Vec<String>,
    /// First arguments: the replica, and the sources of the counts.
    pub texts: Vec<String>,
    /// Last argument, after the bounds of the store's clock.
    pub tail: Vec<u8>,
    pub implied: ImpliedReply,
}

impl Charging {
    /// Creates the charge of the budget `key`. `replica` must be that of the charge.
    pub fn new(key: String, replica: Arc<str>, charge: &Charge<'_>) -> Self {
        let Charge { quota, demand, pop, counts, .. } = *charge;
        let (token_ns, milli) = (quota.token_ns(), demand.milli.min(COUNT_MAX));
        let rows = counts.len().max(1);
        let mut numbers = Vec::with_capacity((HEAD_DOUBLES + rows * COUNT_DOUBLES) * DOUBLE);
        let head = [milli, demand.askers.into(), token_ns / 1_000, token_ns % 1_000, fill_us(quota)];
        add_doubles(&mut numbers, &head);
        add_doubles(&mut numbers, &[counts.len() as u64]);
        let (mut sources, pop) = (Vec::with_capacity(counts.len()), source_name(pop));
        for (n, count) in counts.iter().enumerate() {
            let admitted = count.admitted.min(COUNT_MAX);
            sources.push(source(count.epoch, &pop));
            let row = [
                admitted,
                count.unconfirmed.min(admitted),
                count.span_us.min(COUNT_MAX),
                count.missing.min(CHARGE_TOKENS_MAX),
                count.made_ms.min(MADE_MS_MAX),
                (counts.len() - n) as u64,
            ];
            add_doubles(&mut numbers, &row);
        }
        if counts.is_empty() {
            add_doubles(&mut numbers, &[0; COUNT_DOUBLES]);
        }
        Self { key, quota, replica, sources, numbers, demands: vec![Demand { milli, ..demand }] }
    }

    /// True if the counts of another POP may be joined with these: of the same budget and quota, `counts_max` in all.
    pub fn takes(&self, other: &Self, counts_max: usize) -> bool {
        let (mine, others) = (self.sources.len(), other.sources.len());
        let is_same = self.quota == other.quota && self.replica == other.replica && self.key == other.key;
        is_same && mine > 0 && others > 0 && mine + others <= counts_max
    }

    /// Adds the charge `other`, which [`Self::takes`] allows, to be made right after this one.
    pub fn join(&mut self, other: Self) {
        // The demand is the latest one; the counts are those of both.
        let (head, counts) = other.numbers.split_at((HEAD_DOUBLES - 1) * DOUBLE);
        self.numbers[..head.len()].copy_from_slice(head);
        self.numbers.extend_from_slice(&counts[DOUBLE..]);
        self.sources.extend(other.sources);
        let counts = doubles(&[self.sources.len() as u64]);
        self.numbers[head.len()..][..DOUBLE].copy_from_slice(&counts);
        self.demands.extend(other.demands);
    }

    pub fn arguments(charges: Vec<Self>) -> Arguments {
        let replica = charges.first().map(|charge| Arc::clone(&charge.replica)).unwrap_or_default();
        let implied = ImpliedReply { replica, demands: Vec::with_capacity(charges.len()) };
        let texts = vec![String::from(&*implied.replica)];
        let mut all = Arguments { keys: Vec::with_capacity(charges.len()), texts, tail: Vec::new(), implied };
        for charge in charges {
            all.keys.push(charge.key);
            all.texts.extend(charge.sources);
            all.tail.extend_from_slice(&charge.numbers);
            all.implied.demands.push(charge.demands);
        }
        all
    }

    /// Call of `script` with these charges, which are of one replica and slot, and what its answer leaves out.
    pub(super) fn call(script: &Lua, charges: Vec<Self>) -> (RoutedCommand, ImpliedReply) {
        let Arguments { keys, texts, tail, implied } = Self::arguments(charges);
        let mut call = RoutedCommand::of(script, &keys);
        call.arg(texts);
        call.tail = Some(tail);
        (call, implied)
    }
}

/// Name of a source, before its counts in the string.
fn source(epoch: u64, pop: &str) -> String {
    let epoch = epoch.to_be_bytes();
    let mut source = String::with_capacity(2 * epoch.len() + pop.len() + 2);
    source.push('\n');
    Hex(&epoch).add_to(&mut source);
    source.push_str(pop);
    source.push('\n');
    source
}

/// A POP's name in the string, where a new line ends it.
fn source_name(pop: &str) -> Cow<'_, str> {
    if pop.contains(['\n', '\\']) {
        return pop.replace('\\', "\\\\").replace('\n', "\\n").into();
    }
    pop.into()
}

/// Accounts from the script's answer, for each budget and each POP.
pub fn accounts(answer: &[u8], implied: ImpliedReply) -> Result<Vec<Vec<Account>>, StoreError> {
    read_accounts(answer, implied).ok_or(StoreError::Invalid("an account that cannot be read"))
}

fn read_accounts(answer: &[u8], implied: ImpliedReply) -> Option<Vec<Vec<Account>>> {
    let (now_us, mut answer) = answer.split_at_checked(DOUBLE)?;
    let now_us = whole(now_us)?;
    let read = |demands| read_budget(&mut answer, now_us, &implied.replica, demands);
    implied.demands.into_iter().map(read).collect()
}

fn read_budget(answer: &mut &[u8], now_us: u64, replica: &Arc<str>, demands: Vec<Demand>) -> Option<Vec<Account>> {
    let (ahead_us, rest) = answer.split_at_checked(DOUBLE)?;
    let (&[low, mid, high], rest) = rest.split_first_chunk::<3>()?;
    let replicas_bytes = u32::from_le_bytes([low, mid, high, 0]);
    let (rows, rest) = rest.split_at_checked(4 * DOUBLE * demands.len())?;
    let (replicas, rest) = rest.split_at_checked(usize::try_from(replicas_bytes).ok()?)?;
    *answer = rest;
    #[allow(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    let ahead_us = f64::from_le_bytes(ahead_us.try_into().ok()?) as i64;
    let mut replicas = read_replicas(replicas, now_us.saturating_add_signed(ahead_us), replica)?;
    replicas.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let own = replicas.iter().position(|known| known.name == *replica);
    let last = demands.len().saturating_sub(1);
    let account = |(n, (row, demand)): (usize, (&[u8], Demand))| {
        let mut numbers = row.chunks_exact(DOUBLE).map(whole);
        let (whole_us, rest_ns) = (numbers.next()??, numbers.next()??);
        let (fan_out, charged) = (numbers.next()??, numbers.next()??);
        let mut replicas = if n == last { mem::take(&mut replicas) } else { replicas.clone() };
        if let Some(own) = own.and_then(|own| replicas.get_mut(own)) {
            own.demand = demand;
        }
        let deficit_ns = deficit(whole_us, rest_ns).ok()?;
        Some(Account { deficit_ns, fan_out: u32::try_from(fan_out).ok()?, charged, now_us, replicas })
    };
    rows.chunks_exact(4 * DOUBLE).zip(demands).enumerate().map(account).collect()
}

/// Maximum time for which Redis keeps the budget without another charge.
pub(super) fn kept(entry: &PlanEntry, account: &Account) -> Duration {
    let is_remembered = account.fan_out > 0 || account.deficit_ns > entry.quota.fill_ns();
    let longer_us = if is_remembered { FAN_OUT_KEPT_US + STEP_KEPT_US } else { 0 };
    Duration::from_micros(keep_us(account.deficit_ns).saturating_add(longer_us).min(KEPT_US_MAX))
}

/// Parses a budget's replicas; its own clock is at `own_us`. One of them is `known`, whose name is shared.
fn read_replicas(mut bytes: &[u8], own_us: u64, known: &Arc<str>) -> Option<Vec<ReplicaDemand>> {
    let mut replicas = Vec::with_capacity(1);
    while let Some((len, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (numbers, rest) = rest.split_at_checked(3 * DOUBLE)?;
        let mut numbers = numbers.chunks_exact(DOUBLE).map(whole);
        let (milli, askers, at_us) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let demand = Demand { milli, askers: u32::try_from(askers).ok()? };
        let is_known = name == known.as_bytes();
        let name = if is_known { Arc::clone(known) } else { str::from_utf8(name).ok()?.into() };
        replicas.push(ReplicaDemand { name, demand, age_us: own_us.saturating_sub(at_us) });
        bytes = rest;
    }
    Some(replicas)
}

pub(super) fn deficit(whole_us: u64, rest_ns: u64) -> Result<u64, StoreError> {
    let deficit_ns = whole_us.checked_mul(1_000).and_then(|ns| ns.checked_add(rest_ns));
    deficit_ns.ok_or(StoreError::Invalid("a deficit beyond its maximum"))
}

/// Maximum number of counts in one call, during which Redis does nothing else.
const COUNTS_MAX: usize = 64;
/// Maximum number of budgets in one call. At this number, the overhead of a call is small compared to its charges.
const BUDGETS_MAX: usize = 16;

type Accounts = Vec<Result<Account, StoreError>>;

/// Sends charges to one server (see [`Trips`]).
#[derive(Debug)]
pub(super) struct Charger(Trips<Vec<Charging>, Accounts>);

/// The joined charge of one budget, and the indexes of its charges in the trip.
struct Joined {
    charging: Charging,
    charges: Vec<usize>,
}

impl Charger {
    pub(super) fn new(servers: Arc<Servers>, script: Arc<Lua>) -> Self {
        Self(Trips::new(move |asked| {
            // A task of its own, as reading the answers to many charges takes a while.
            let mut tasks = JoinSet::new();
            tasks.spawn(trip(asked, Arc::clone(&servers), Arc::clone(&script)));
            async move { drop(tasks.join_next().await) }
        }))
    }

    pub(super) async fn charge(&self, charges: Vec<Charging>) -> Accounts {
        let count = charges.len();
        let answered = self.0.ask(charges).await;
        answered.await.unwrap_or_else(|_| iter::repeat_n(Err(StoreError::Connecting), count).collect())
    }
}

async fn trip(asked: Vec<Asked<Vec<Charging>, Accounts>>, servers: Arc<Servers>, script: Arc<Lua>) {
    let (mut charges, mut waiting) = (Vec::new(), Vec::with_capacity(asked.len()));
    for Asked { question, answer } in asked {
        waiting.push((question.len(), answer));
        charges.extend(question);
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
        let more = budget.charging.sources.len();
        let is_same = |last: &Joined| last.charging.replica == budget.charging.replica;
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
