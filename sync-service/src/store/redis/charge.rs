//! Budgets in Redis: one string each, charged by one script.

use std::borrow::Cow;
use std::time::Duration;

use weir_budget::budget::{
    Account, CHARGE_TOKENS_MAX, COUNT_MAX, Charge, DEFICIT_NS_MAX, Demand, FORGOTTEN_US_MAX, GRACE_US,
    KEPT_US_MAX, LENIENCE_US, LOOK_US, MEMBER_IDLE_US, MEMBERS_MAX, Member, SOURCES_KEPT, SOURCES_MAX,
    STEP_KEPT_US, STEP_US, keep_us,
};
use weir_budget::plan::Entry;
use weir_budget::source::{DELAY_US_MAX, MADE_MS_MAX, PACE_US};
use weir_budget::spill::{SPILL_KEPT_US, SPILLS_MAX};
use weir_budget::spread::{
    AGAIN_MIN, SPREAD_DEBT_US_MAX, SPREAD_KEPT_US, SPREAD_MAX, SPREAD_MOMENT_US, fill_us,
};
use weir_wire::quota::Quota;

use super::exchange::Call;
use super::keys::BUDGET_PREFIX;
use super::script::{Lua, with_maxima};
use crate::store::StoreError;
use crate::store::clock::{DOUBLE, doubles, whole};

/// How long a budget's head is (see the script).
pub const HEAD_BYTES: usize = 93;

/// How many numbers the last argument begins with that are of the charge as a whole.
const HEAD_DOUBLES: usize = 5;

/// The script, with weir-budget's maxima in front.
pub fn script() -> String {
    with_maxima(&maxima(), include_str!("../charge.lua"))
}

/// The numbers that both scripts of charges go by.
pub(super) fn maxima() -> [(&'static str, u64); 24] {
    const { assert!(COUNT_MAX < 1 << 53, "Lua has doubles only") };
    [
        ("HEAD_BYTES", HEAD_BYTES as u64),
        ("CHARGE_TOKENS_MAX", CHARGE_TOKENS_MAX),
        ("DEFICIT_US_MAX", DEFICIT_NS_MAX / 1_000),
        ("SOURCES_MAX", SOURCES_MAX as u64),
        ("SOURCES_KEPT", SOURCES_KEPT as u64),
        ("MEMBERS_MAX", MEMBERS_MAX as u64),
        ("MEMBER_IDLE_US", MEMBER_IDLE_US),
        ("GRACE_US", GRACE_US),
        ("KEPT_US_MAX", KEPT_US_MAX),
        ("STEP_US", STEP_US),
        ("LOOK_US", LOOK_US),
        ("STEP_KEPT_US", STEP_KEPT_US),
        ("SPILL_KEPT_US", SPILL_KEPT_US),
        ("SPILLS_MAX", SPILLS_MAX as u64),
        ("DELAY_US_MAX", DELAY_US_MAX),
        ("FORGOTTEN_US_MAX", FORGOTTEN_US_MAX),
        ("LENIENCE_US", LENIENCE_US),
        ("PACE_US", PACE_US),
        ("SPREAD_KEPT_US", SPREAD_KEPT_US),
        ("AGAIN_MIN", u64::from(AGAIN_MIN)),
        ("SPREAD_MAX", u64::from(SPREAD_MAX)),
        ("SPREAD_MOMENT_US", SPREAD_MOMENT_US),
        ("SPREAD_DEBT_US_MAX", SPREAD_DEBT_US_MAX),
        ("PREFIX_BYTES", BUDGET_PREFIX.len() as u64),
    ]
}

/// A call of the script: what is charged to one budget, POP by POP.
#[derive(Debug)]
pub struct Charging {
    /// The budget.
    pub key: String,
    quota: Quota,
    /// The first arguments: the member, and the sources of the counts.
    pub texts: Vec<String>,
    /// The last one, behind what is known of the store's clock.
    pub tail: Vec<u8>,
    says: Says,
}

/// What an answer does not say.
#[derive(Debug)]
pub struct Says {
    member: String,
    /// The member's demand, with the counts of each POP.
    demands: Vec<Demand>,
}

impl Charging {
    /// What `charge` says of the budget of this key.
    pub fn new(key: String, charge: &Charge<'_>) -> Self {
        let Charge { quota, member, demand, pop, counts } = *charge;
        let (token_ns, milli) = (quota.token_ns(), demand.milli.min(COUNT_MAX));
        let head = [milli, demand.askers.into(), token_ns / 1_000, token_ns % 1_000, fill_us(quota)];
        let (mut texts, mut tail) = (Vec::with_capacity(1 + counts.len()), doubles(&head));
        texts.push(member.to_owned());
        let pop = source_name(pop);
        for (n, count) in counts.iter().enumerate() {
            let admitted = count.admitted.min(COUNT_MAX);
            texts.push(format!("\n{:016x}{pop}\n", count.epoch));
            tail.extend(doubles(&[
                admitted,
                count.unconfirmed.min(admitted),
                count.span_us.min(COUNT_MAX),
                count.missing.min(CHARGE_TOKENS_MAX),
                count.made_ms.min(MADE_MS_MAX),
                (counts.len() - n) as u64,
            ]));
        }
        let says = Says { member: member.to_owned(), demands: vec![Demand { milli, ..demand }] };
        Self { key, quota, texts, tail, says }
    }

    /// Whether another POP's counts may go with these, at most so many in all: of the same budget by the same quota.
    pub fn takes(&self, other: &Self, counts_max: usize) -> bool {
        let (mine, others) = (self.texts.len() - 1, other.texts.len() - 1);
        let is_same =
            (&self.key, self.quota, &self.says.member) == (&other.key, other.quota, &other.says.member);
        is_same && mine > 0 && others > 0 && mine + others <= counts_max
    }

    /// Charges `other`, which may go with this, right after this.
    pub fn join(&mut self, other: Self) {
        let (head, counts) = other.tail.split_at(HEAD_DOUBLES * DOUBLE);
        self.tail[..head.len()].copy_from_slice(head);
        self.tail.extend_from_slice(counts);
        self.texts.extend(other.texts.into_iter().skip(1));
        self.says.demands.extend(other.says.demands);
    }

    /// The call of `script`, and what its answer leaves out.
    pub(super) fn call(self, script: &Lua) -> (Call, Says) {
        let mut call = Call::of(script, &[&self.key]);
        call.arg(self.texts);
        call.tail = self.tail;
        (call, self.says)
    }

    /// The same without a call.
    pub fn says(self) -> Says {
        self.says
    }
}

/// A POP's name in the string, where a new line ends it.
fn source_name(pop: &str) -> Cow<'_, str> {
    if pop.contains(['\n', '\\']) {
        return pop.replace('\\', "\\\\").replace('\n', "\\n").into();
    }
    pop.into()
}

/// What the script said of the charges of each POP.
pub fn accounts(said: &[u8], says: &Says) -> Result<Vec<Account>, StoreError> {
    read_accounts(said, says).ok_or(StoreError::Nonsense("an account that cannot be read"))
}

fn read_accounts(said: &[u8], says: &Says) -> Option<Vec<Account>> {
    let (head, rest) = said.split_at_checked(2 * DOUBLE)?;
    let (rows, members) = rest.split_at_checked(4 * DOUBLE * says.demands.len())?;
    let (now_us, ahead_us) = head.split_at_checked(DOUBLE)?;
    let now_us = whole(now_us)?;
    #[allow(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    let ahead_us = f64::from_le_bytes(ahead_us.try_into().ok()?) as i64;
    let mut members = read_members(members, now_us.saturating_add_signed(ahead_us))?;
    members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let own = members.iter().position(|member| *member.name == *says.member);
    let account = |(row, demand): (&[u8], &Demand)| {
        let mut numbers = row.chunks_exact(DOUBLE).map(whole);
        let (whole_us, rest_ns) = (numbers.next()??, numbers.next()??);
        let (spread, charged) = (numbers.next()??, numbers.next()??);
        let mut members = members.clone();
        if let Some(own) = own.and_then(|own| members.get_mut(own)) {
            own.demand = *demand;
        }
        let deficit_ns = deficit(whole_us, rest_ns).ok()?;
        Some(Account { deficit_ns, spread: u32::try_from(spread).ok()?, charged, now_us, members })
    };
    rows.chunks_exact(4 * DOUBLE).zip(&says.demands).map(account).collect()
}

/// How long Redis keeps the budget at most, if it is not charged again.
pub(super) fn kept(entry: &Entry, account: &Account) -> Duration {
    let is_remembered = account.spread > 0 || account.deficit_ns > entry.quota.fill_ns();
    let longer_us = if is_remembered { SPREAD_KEPT_US + STEP_KEPT_US } else { 0 };
    Duration::from_micros(keep_us(account.deficit_ns).saturating_add(longer_us).min(KEPT_US_MAX))
}

/// Reads members as a budget keeps them; its own clock shows `own_us`.
fn read_members(mut bytes: &[u8], own_us: u64) -> Option<Vec<Member>> {
    let mut members = Vec::with_capacity(4);
    while let Some((len, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (numbers, rest) = rest.split_at_checked(3 * DOUBLE)?;
        let mut numbers = numbers.chunks_exact(DOUBLE).map(whole);
        let (milli, askers, at_us) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let demand = Demand { milli, askers: u32::try_from(askers).ok()? };
        let name = str::from_utf8(name).ok()?.into();
        members.push(Member { name, demand, age_us: own_us.saturating_sub(at_us) });
        bytes = rest;
    }
    Some(members)
}

/// A deficit in nanoseconds, of whole microseconds and the rest.
pub(super) fn deficit(whole_us: u64, rest_ns: u64) -> Result<u64, StoreError> {
    let deficit_ns = whole_us.checked_mul(1_000).and_then(|ns| ns.checked_add(rest_ns));
    deficit_ns.ok_or(StoreError::Nonsense("a deficit beyond its maximum"))
}
