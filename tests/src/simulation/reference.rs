//! The reference: what was truly offered and admitted for each key under each rule.

use weir_budget::budget::BudgetId;
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::SECOND_NS;
use weir_rules::cost::Cost;
use weir_rules::{Rule, RuleSet};

use super::account::{Account, Meter, Tally};
use super::ideal::{At, AtPops, Ideal};
use super::setup::Setup;
use super::stretch::{Compared, Span, Stretch};
use super::traffic::{first_of, key_of, value_of};

/// Time between two samples, in nanoseconds.
pub const SAMPLE_NS: u64 = SECOND_NS / 10;

/// Every key under every rule, and the first key under the first rule over time.
#[derive(Debug)]
pub struct Reference {
    /// By rule, then by client; clients with the same key use the account of the first of them. Empty if nothing is
    /// accounted for.
    accounts: Vec<Vec<Account>>,
    /// A bucket for each account, rule by rule.
    ideal: Ideal,
    keys: u32,
    /// The bits of the address that the key of each rule keeps.
    bits: Vec<u8>,
    /// The stretch under way, by key.
    stretches: Vec<Stretch>,
    names: Vec<String>,
    costs: Vec<Cost>,
    regions: usize,
    /// The floor of region 0 in the first rule as its own bucket, and what it would have admitted of the first key.
    floor: Option<(Quota, Meter)>,
    by_floor: u64,
    /// The first key under the first rule, by region, and sampled.
    by_region: Vec<Tally>,
    pub samples: Vec<Sample>,
}

/// Sums from the begin of the traffic to the end of a tenth of a second.
#[derive(Clone, Debug)]
pub struct Sample {
    pub tally: Tally,
    /// Admissions of the ideal bucket.
    pub ideally: u64,
    /// Admissions there of an ideal bucket of region 0's floor alone.
    pub by_floor: u64,
    pub regions: Vec<Tally>,
}

impl Reference {
    /// Nothing seen yet.
    pub fn new(setup: &Setup, rules: &RuleSet) -> Self {
        let keys = if setup.is_accounted { setup.keys } else { 0 };
        let account = |rule: &Rule| {
            let sharing = rule.sharing.clone();
            Account::new(rule.quota, sharing, setup.pops, setup.settle_ns, setup.keeps_times)
        };
        let accounts = rules.rules().iter().map(|rule| (0..keys).map(|_| account(rule)).collect());
        let floor = rules.rules().first().and_then(|rule| floor_of(rule.quota, &rule.sharing));
        let each = |rule: &Rule| (0..keys).map(|_| (rule.quota, Meter::default(), 0)).collect::<Vec<_>>();
        Self {
            accounts: accounts.collect(),
            ideal: Ideal::new(rules.rules().iter().flat_map(each)),
            keys,
            bits: setup.rules.iter().map(|rule| rule.bits).collect(),
            stretches: Vec::new(),
            names: rules.rules().iter().map(|rule| rule.name.clone()).collect(),
            costs: rules.rules().iter().map(|rule| rule.cost.clone()).collect(),
            floor: floor.map(|quota| (quota, Meter::default())),
            by_floor: 0,
            regions: setup.regions,
            by_region: vec![Tally::default(); setup.regions],
            samples: Vec::new(),
        }
    }

    pub fn account(&self, rule: usize, key: u32) -> &Account {
        &self.accounts[rule][first_of(key, self.bits[rule]) as usize]
    }

    pub fn account_mut(&mut self, rule: usize, key: u32) -> &mut Account {
        &mut self.accounts[rule][first_of(key, self.bits[rule]) as usize]
    }

    /// The part of each rule's burst beyond its local burst, in nanoseconds of refill; `None` for a strict rule.
    pub fn withheld(&self) -> Vec<Option<u64>> {
        let withheld = |account: &Account| {
            let Account { quota, sharing, .. } = account;
            let tokens = quota.burst().saturating_sub(sharing.local_burst);
            (!sharing.strict).then(|| quota.token_ns() * u64::from(tokens))
        };
        self.accounts.iter().map(|keys| keys.first().and_then(withheld)).collect()
    }

    /// Every account, with its rule and key.
    pub fn accounts(&self) -> impl Iterator<Item = (usize, u32, &Account)> {
        let rules = self.accounts.iter().zip(&self.bits).enumerate();
        rules.flat_map(|(rule, (keys, bits))| {
            let keys = (0u32..).zip(keys).filter(|(key, _)| first_of(*key, *bits) == *key);
            keys.map(move |(key, account)| (rule, key, account))
        })
    }

    /// The same, to change them.
    pub fn accounts_mut(&mut self) -> impl Iterator<Item = (usize, u32, &mut Account)> {
        let rules = self.accounts.iter_mut().zip(&self.bits).enumerate();
        rules.flat_map(|(rule, (keys, bits))| {
            let keys = (0u32..).zip(keys).filter(|(key, _)| first_of(*key, *bits) == *key);
            keys.map(move |(key, account)| (rule, key, account))
        })
    }

    /// A request of `key`, with its cost in tokens under each of these rules.
    pub(super) fn offer(&mut self, key: u32, costs: &[(usize, u32)], at: At) {
        let At { pop, now, .. } = at;
        let bucket = |rule: usize| rule * self.keys as usize + first_of(key, self.bits[rule]) as usize;
        let of_buckets: Vec<_> = costs.iter().map(|&(rule, cost)| (bucket(rule), cost)).collect();
        let ideally = self.ideal.take(&of_buckets, at);
        if let Some(stretch) = self.stretches.get_mut(key as usize) {
            let fan_outs = self.accounts.iter().map(|keys| keys[key as usize].fan_out);
            stretch.offer(costs, at, fan_outs);
        }
        for &(rule, cost) in costs {
            self.account_mut(rule, key).offer(pop, cost, ideally);
            if (rule, key, pop % self.regions) == (0, 0, 0)
                && let Some((quota, meter)) = &mut self.floor
            {
                self.by_floor += if meter.take_if_there(*quota, cost, now) { u64::from(cost) } else { 0 };
            }
        }
    }

    /// Begins to compare, at `now`. `at_pops` names the POPs' buckets for a key under a rule.
    pub(super) fn begin_stretch(&mut self, setup: &Setup, now: u64, mut at_pops: impl FnMut(usize, u32) -> AtPops) {
        let keys = 0..self.keys;
        let accounts = &mut self.accounts;
        let of_key = |key: u32| {
            let at_pops = (0..accounts.len()).map(|rule| at_pops(rule, key)).collect();
            Stretch::begin(accounts.iter_mut().map(|keys| &mut keys[key as usize]), at_pops, setup, now)
        };
        self.stretches = keys.map(of_key).collect();
    }

    /// Ends the comparison at `now` and returns its result.
    pub(super) fn end_stretch(&mut self, now: u64) -> Vec<Compared> {
        let stretches = std::mem::take(&mut self.stretches);
        let keyed = (0_u32..).zip(&stretches);
        let of_key = |(key, stretch): (u32, &Stretch)| {
            let end = |rule| stretch.end(rule, key, &self.accounts[rule][key as usize], now);
            (0..self.names.len()).map(end).collect::<Vec<_>>()
        };
        keyed.flat_map(of_key).collect()
    }

    /// Tokens that a request with a stated cost of `stated` takes of the rule at `rule`.
    pub fn cost(&self, rule: usize, stated: u32) -> u32 {
        match self.costs[rule] {
            Cost::Fixed(cost) => cost,
            Cost::Header { max, .. } => stated.min(max),
        }
    }

    pub fn id(&self, rule: usize, key: u32) -> BudgetId {
        BudgetId::new(self.names[rule].clone(), value_of(key, self.bits[rule]))
    }

    pub fn named(&self, id: &BudgetId) -> Option<(usize, u32)> {
        let rule = self.names.iter().position(|name| *name == id.rule)?;
        key_of(&id.value).filter(|key| (*key as usize) < self.accounts[rule].len()).map(|key| (rule, key))
    }

    /// Notes a request of `cost` tokens of the first key under the first rule for the samples.
    pub fn sample(&mut self, pop: usize, cost: u32, admitted: bool) {
        let region = &mut self.by_region[pop % self.regions];
        region.offered += u64::from(cost);
        region.admitted += if admitted { u64::from(cost) } else { 0 };
    }

    /// Closes the samples that ended before `now`, in nanoseconds from the begin of the traffic.
    pub fn sample_until(&mut self, now: u64) {
        let Some(account) = self.accounts.first().and_then(|keys| keys.first()) else { return };
        while (self.samples.len() as u64 + 1) * SAMPLE_NS <= now {
            let (tally, ideally, by_floor) = (account.tally, account.ideally, self.by_floor);
            self.samples.push(Sample { tally, ideally, by_floor, regions: self.by_region.clone() });
        }
    }

    /// The growth of `part` between two times, as a part of that of `whole`.
    pub fn part(&self, (from_s, to_s): Span, part: fn(&Sample) -> u64, whole: fn(&Sample) -> u64) -> f64 {
        self.between(from_s, to_s, part) / self.between(from_s, to_s, whole)
    }

    /// The growth of `figure` between two times, in seconds from the begin of the traffic.
    pub fn between(&self, from_s: u64, to_s: u64, figure: impl Fn(&Sample) -> u64) -> f64 {
        let at = |s: u64| {
            let end = usize::try_from(s * SECOND_NS / SAMPLE_NS).expect("some minutes");
            end.checked_sub(1).and_then(|i| self.samples.get(i).or(self.samples.last())).map_or(0, &figure)
        };
        (at(to_s) - at(from_s)) as f64
    }
}

pub(super) fn floor_of(quota: Quota, sharing: &Sharing) -> Option<Quota> {
    let percent = sharing.floor("region-0");
    let burst = u64::from(quota.burst()) * u64::from(percent) / 100;
    let token_ns = (quota.token_ns() * 100).checked_div(u64::from(percent))?;
    Quota::from_token_ns(token_ns, u32::try_from(burst).ok()?).ok()
}
